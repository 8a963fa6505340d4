# SPDX-License-Identifier: Apache-2.0
"""Prefix cache: finds pages whose content a new request would compute again.

A full page is known by its tokens and the content before it, compared by value, so a hash collision cannot hand out
wrong pages. Only pages whose text has passed a finite verify row are entered. H-Spec's drafter reads the target's
own pages and the last run token's states, so a hit, which always leaves a token to run, needs nothing for it. The cache
of another drafter lies in pages of the same numbers; where an entry of it also depends on the token after it, a page is
known by one token more than it holds.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from hspec_trt.runtime.pages import PageAllocator

_Key = tuple[int, bytes]


@dataclass
class PrefixChain:
    """How far the pages of one sequence are entered: the content id of the last one, and their number."""

    content_id: int = 0
    num_pages: int = 0


@dataclass
class PrefixHit:
    """Pages that already hold the start of a sequence, each with one owner added for it."""

    pages: list[int] = field(default_factory=list)
    chain: PrefixChain = field(default_factory=PrefixChain)


class PrefixCache:
    """Content index over the pages of one allocator (of which it becomes the eviction listener).

    Args:
        lookahead: tokens beyond a page that its content depends on.
    """

    def __init__(self, allocator: PageAllocator, page_size: int, *, lookahead: int = 0) -> None:
        self._allocator, self._page_size, self._lookahead = allocator, page_size, lookahead
        self._entries: dict[_Key, tuple[int, int]] = {}  # parent's content id, tokens -> content id, page
        self._keys: dict[int, _Key] = {}  # page -> its entry
        self._next_id = 1
        self.hit_tokens = self.asked_tokens = 0
        allocator.on_evict = self._forget

    def __len__(self) -> int:
        return len(self._entries)

    def count_hits(self, tokens: NDArray[np.int32]) -> tuple[int, int]:
        """How many pages `match` would return, and how many of them are idle now."""
        hit = self._walk(tokens)
        return len(hit.pages), sum(self._allocator.owners(page) == 0 for page in hit.pages)

    def match(self, tokens: NDArray[np.int32]) -> PrefixHit:
        """The longest run of entered pages that starts `tokens` and leaves at least one token to run.

        Args:
            tokens: int32 ``[n]``, the whole sequence.
        """
        hit = self._walk(tokens)
        self._allocator.share(hit.pages)
        self.asked_tokens += len(tokens)
        self.hit_tokens += len(hit.pages) * self._page_size
        return hit

    def enter(self, chain: PrefixChain, tokens: NDArray[np.int32], pages: NDArray[np.int32]) -> None:
        """Enter all full pages of a sequence that are not entered yet.

        Args:
            chain: the sequence's own; brought up to date.
            tokens: int32 ``[n]``, tokens committed to the pages.
            pages: int32 ``[m]``, the sequence's pages in order.
        """
        for number in range(chain.num_pages, (len(tokens) - self._lookahead) // self._page_size):
            key = self._key(chain.content_id, tokens, number)
            if key not in self._entries:
                page = int(pages[number])
                self._entries[key] = (self._next_id, page)
                self._keys[page] = key
                self._next_id += 1
                self._allocator.keep(page)
            chain.content_id = self._entries[key][0]
            chain.num_pages = number + 1

    def _walk(self, tokens: NDArray[np.int32]) -> PrefixHit:
        hit = PrefixHit()
        for number in range((len(tokens) - 1) // self._page_size):
            entry = self._entries.get(self._key(hit.chain.content_id, tokens, number))
            if entry is None:
                break
            hit.pages.append(entry[1])
            hit.chain = PrefixChain(entry[0], number + 1)
        return hit

    def _key(self, parent: int, tokens: NDArray[np.int32], number: int) -> _Key:
        return parent, tokens[number * self._page_size : (number + 1) * self._page_size + self._lookahead].tobytes()

    def _forget(self, page: int) -> None:
        del self._entries[self._keys.pop(page)]

# SPDX-License-Identifier: Apache-2.0
"""No page has two owners by accident, is lost, or is handed out while someone needs it."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from hspec_trt.runtime.pages import PageAllocator
from hspec_trt.runtime.prefix import PrefixCache, PrefixChain

PAGE_SIZE = 4


def test_null_page_is_never_handed_out() -> None:
    allocator = PageAllocator(5)
    assert sorted(allocator.allocate(4)) == [1, 2, 3, 4]
    assert allocator.available == 0
    with pytest.raises(ValueError, match="1 pages asked of 0"):
        allocator.allocate(1)


def test_shared_page_is_free_after_its_last_owner() -> None:
    allocator = PageAllocator(3)
    (page,) = allocator.allocate(1)
    allocator.share([page])
    allocator.release([page])
    assert allocator.available == 1
    allocator.release([page])
    assert allocator.available == 2
    with pytest.raises(ValueError, match="no owner"):
        allocator.release([page])


def test_least_recently_used_page_goes_first() -> None:
    evicted: list[int] = []
    allocator = PageAllocator(4, evicted.append)
    a, b, c = allocator.allocate(3)
    for page in (a, b, c):
        allocator.keep(page)
    allocator.release([b, a])
    allocator.release([c])
    assert allocator.idle == 3
    assert allocator.allocate(2) == [b, a]
    assert evicted == [b, a]
    assert not allocator.is_kept(b)
    assert allocator.is_kept(c)


def tokens(*values: int) -> np.ndarray:
    return np.array(values, np.int32)


def test_hit_leaves_a_token_to_run() -> None:
    allocator = PageAllocator(8)
    cache = PrefixCache(allocator, PAGE_SIZE)
    text = tokens(1, 2, 3, 4, 5, 6, 7, 8)
    pages = allocator.allocate(2)
    cache.enter(PrefixChain(), text, np.array(pages, np.int32))
    assert cache.match(text).pages == pages[:1]  # exactly two pages: the last one is run again
    assert cache.match(np.append(text, 9).astype(np.int32)).pages == pages
    assert cache.match(tokens(1, 2, 3)).pages == []
    assert cache.match(tokens(1, 2, 3, 0, 5, 6, 7, 8, 9)).pages == []


def test_same_page_content_after_another_start_is_another_content() -> None:
    allocator = PageAllocator(8)
    cache = PrefixCache(allocator, PAGE_SIZE)
    pages = allocator.allocate(2)
    cache.enter(PrefixChain(), tokens(1, 1, 1, 1, 2, 2, 2, 2), np.array(pages, np.int32))
    assert cache.match(tokens(2, 2, 2, 2, 3)).pages == []


def test_evicted_content_is_not_found() -> None:
    allocator = PageAllocator(3)
    cache = PrefixCache(allocator, PAGE_SIZE)
    pages = allocator.allocate(2)
    text = tokens(*range(9))
    cache.enter(PrefixChain(), text[:8], np.array(pages, np.int32))
    allocator.release(reversed(pages))
    assert cache.count_hits(text) == (2, 2)
    (taken,) = allocator.allocate(1)
    assert taken == pages[1]  # the end of a chain goes before its start
    assert cache.match(text).pages == pages[:1]


class PagesMachine(RuleBasedStateMachine):
    """Sequences over a small alphabet that begin, grow, share prefixes and end, against a plain model of owners."""

    def __init__(self) -> None:
        super().__init__()
        self.allocator = PageAllocator(9)
        self.cache = PrefixCache(self.allocator, PAGE_SIZE)
        self.content: dict[int, tuple[int, ...]] = {}  # page -> everything up to its end
        self.sequences: list[tuple[np.ndarray, list[int], PrefixChain]] = []

    @rule(text=st.lists(st.integers(0, 1), min_size=1, max_size=17))
    def begin(self, text: list[int]) -> None:
        ids = tokens(*text)
        needed = -(-len(ids) // PAGE_SIZE)
        hits, idle = self.cache.count_hits(ids)
        if needed - hits > self.allocator.available - idle:
            return
        hit = self.cache.match(ids)
        for number, page in enumerate(hit.pages):
            assert self.content[page] == tuple(text[: (number + 1) * PAGE_SIZE])
        pages = hit.pages + self.allocator.allocate(needed - len(hit.pages))
        for number in range(len(hit.pages), needed):
            self.content[pages[number]] = tuple(text[: (number + 1) * PAGE_SIZE])
        self.sequences.append((ids, pages, hit.chain))

    @rule(pick=st.integers(0, 99), length=st.integers(0, 17))
    def enter(self, pick: int, length: int) -> None:
        if self.sequences:
            ids, pages, chain = self.sequences[pick % len(self.sequences)]
            self.cache.enter(chain, ids[:length], np.array(pages, np.int32))

    @rule(pick=st.integers(0, 99))
    def end(self, pick: int) -> None:
        if self.sequences:
            _, pages, _ = self.sequences.pop(pick % len(self.sequences))
            self.allocator.release(reversed(pages))

    @invariant()
    def owners_are_right(self) -> None:
        owners = Counter(page for _, pages, _ in self.sequences for page in pages)
        assert all(self.allocator.owners(page) == owners[page] for page in range(9))
        assert self.allocator.in_use == len(owners)
        assert 0 not in owners


PagesMachine.TestCase.settings = settings(max_examples=40, stateful_step_count=40, deadline=None)
TestPages = PagesMachine.TestCase

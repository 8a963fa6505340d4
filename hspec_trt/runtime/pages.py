# SPDX-License-Identifier: Apache-2.0
"""Who owns which page: reference counts, the free list, and pages kept for reuse after their last owner left.

It knows page numbers only; what a page holds is `hspec_trt.runtime.prefix`'s business. Page 0 is never handed out.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable

from hspec_trt.contract import NULL_PAGE


class PageAllocator:
    """Reference-counted pages ``1 .. num_pages - 1``.

    A page with no owner is either free, or idle: kept because its content may be wanted again. Idle pages are given
    away when free ones run out, the least recently used first.

    Args:
        num_pages: P, the null page included.
        on_evict: called with an idle page that is given away, before its new owner gets it.
    """

    def __init__(self, num_pages: int, on_evict: Callable[[int], None] = lambda page: None) -> None:
        self.num_pages = num_pages
        self.on_evict = on_evict
        self._counts = [0] * num_pages
        self._free = list(range(num_pages - 1, NULL_PAGE, -1))
        self._idle: OrderedDict[int, None] = OrderedDict()
        self._kept: set[int] = set()

    @property
    def available(self) -> int:
        """Pages that `allocate` can hand out now."""
        return len(self._free) + len(self._idle)

    @property
    def idle(self) -> int:
        """Pages without an owner whose content is kept."""
        return len(self._idle)

    @property
    def in_use(self) -> int:
        """Pages that have an owner."""
        return self.num_pages - 1 - self.available

    def owners(self, page: int) -> int:
        """Owners of a page."""
        return self._counts[page]

    def allocate(self, count: int) -> list[int]:
        """Hand out `count` pages, each with one owner. The caller has compared `count` with `available`."""
        if count > self.available:
            raise ValueError(f"{count} pages asked of {self.available}")
        pages = [self._free.pop() if self._free else self._evict() for _ in range(count)]
        for page in pages:
            self._counts[page] = 1
        return pages

    def share(self, pages: Iterable[int]) -> None:
        """Add one owner to each page; idle pages come back into use."""
        for page in pages:
            if self._counts[page] == 0:
                del self._idle[page]
            self._counts[page] += 1

    def release(self, pages: Iterable[int]) -> None:
        """Take one owner off each page. Of the pages that become idle, the first released is the first evicted."""
        for page in pages:
            if self._counts[page] <= 0:
                raise ValueError(f"page {page} has no owner to release it")
            self._counts[page] -= 1
            if self._counts[page] == 0:
                if page in self._kept:
                    self._idle[page] = None
                else:
                    self._free.append(page)

    def keep(self, page: int) -> None:
        """Keep the page's content when its last owner leaves."""
        self._kept.add(page)

    def is_kept(self, page: int) -> bool:
        """True where the page's content stays when its last owner leaves."""
        return page in self._kept

    def drop_idle(self) -> None:
        """Give up all idle pages."""
        self._free.extend(self._evict() for _ in range(len(self._idle)))

    def _evict(self) -> int:
        page, _ = self._idle.popitem(last=False)
        self._kept.discard(page)
        self.on_evict(page)
        return page

// SPDX-License-Identifier: Apache-2.0
// Who owns which page (hspec_trt/runtime/pages.py): reference counts, the free list, and pages kept for reuse after
// their last owner left. It knows page numbers only. Page 0 is never handed out.
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <vector>

namespace hspec_trt {

// A page with no owner is either free, or idle: kept because its content may be wanted again. Idle pages are given away
// when free ones run out, the least recently used first.
class PageAllocator {
  public:
    explicit PageAllocator(int32_t numPages);

    // Called with an idle page that is given away, before its new owner gets it.
    std::function<void(int32_t)> onEvict = [](int32_t) {};

    int32_t numPages() const { return static_cast<int32_t>(counts_.size()); }
    // Pages that `allocate` can hand out now.
    int32_t available() const { return static_cast<int32_t>(free_.size() + idle_.size()); }
    int32_t inUse() const { return numPages() - 1 - available(); }
    int32_t owners(int32_t page) const { return counts_[static_cast<std::size_t>(page)]; }
    bool isKept(int32_t page) const { return kept_[static_cast<std::size_t>(page)]; }

    // A page with one owner. The caller has looked at `available`.
    int32_t allocate();
    // Add one owner; an idle page comes back into use.
    void share(int32_t page);
    // Take one owner off. Of the pages that become idle, the first released is the first evicted.
    void release(int32_t page);
    // Keep the page's content when its last owner leaves.
    void keep(int32_t page) { kept_[static_cast<std::size_t>(page)] = true; }

  private:
    int32_t evict();

    std::vector<int32_t> counts_;
    std::vector<int32_t> free_;
    std::list<int32_t> idle_;
    std::vector<std::list<int32_t>::iterator> idlePlaces_;  // valid for idle pages
    std::vector<bool> kept_;
};

}  // namespace hspec_trt

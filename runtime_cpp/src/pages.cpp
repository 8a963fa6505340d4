// SPDX-License-Identifier: Apache-2.0
#include "pages.h"

#include <cstddef>
#include <stdexcept>
#include <string>

#include "hspec_trt/contract_gen.h"

namespace hspec_trt {

PageAllocator::PageAllocator(int32_t numPages)
    : counts_(static_cast<std::size_t>(numPages), 0), idlePlaces_(counts_.size()), kept_(counts_.size(), false) {
    for (int32_t page = numPages - 1; page > contract::kNullPage; --page) {
        free_.push_back(page);
    }
}

int32_t PageAllocator::allocate() {
    if (available() == 0) {
        throw std::logic_error("a page is asked of none");
    }
    int32_t page = 0;
    if (free_.empty()) {
        page = evict();
    } else {
        page = free_.back();
        free_.pop_back();
    }
    counts_[static_cast<std::size_t>(page)] = 1;
    return page;
}

void PageAllocator::share(int32_t page) {
    int32_t& count = counts_[static_cast<std::size_t>(page)];
    if (count == 0) {
        idle_.erase(idlePlaces_[static_cast<std::size_t>(page)]);
    }
    ++count;
}

void PageAllocator::release(int32_t page) {
    int32_t& count = counts_[static_cast<std::size_t>(page)];
    if (count <= 0) {
        throw std::logic_error("page " + std::to_string(page) + " has no owner to release it");
    }
    if (--count > 0) {
        return;
    }
    if (isKept(page)) {
        idlePlaces_[static_cast<std::size_t>(page)] = idle_.insert(idle_.end(), page);
    } else {
        free_.push_back(page);
    }
}

int32_t PageAllocator::evict() {
    int32_t const page = idle_.front();
    idle_.pop_front();
    kept_[static_cast<std::size_t>(page)] = false;
    onEvict(page);
    return page;
}

}  // namespace hspec_trt

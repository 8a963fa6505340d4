// SPDX-License-Identifier: Apache-2.0
#include "prefix.h"

#include <algorithm>

namespace hspec_trt {

PrefixCache::PrefixCache(PageAllocator& allocator, int32_t pageSize, int32_t lookahead)
    : allocator_(allocator), pageSize_(pageSize), lookahead_(lookahead) {
    allocator_.onEvict = [this](int32_t page) {
        auto const place = keys_.find(page);
        entries_.erase(place->second);
        keys_.erase(place);
    };
}

PrefixHit PrefixCache::find(std::vector<int32_t> const& tokens) const {
    PrefixHit hit;
    auto const most = static_cast<int32_t>((tokens.size() - 1) / static_cast<std::size_t>(pageSize_));
    for (int32_t number = 0; number < most; ++number) {
        auto const found = entries_.find(key(hit.chain.contentId, tokens.data(), tokens.size(), number));
        if (found == entries_.end()) {
            break;
        }
        hit.pages.push_back(found->second.page);
        hit.chain = {found->second.contentId, number + 1};
    }
    return hit;
}

PrefixHit PrefixCache::match(std::vector<int32_t> const& tokens) {
    PrefixHit hit = find(tokens);
    for (int32_t page : hit.pages) {
        allocator_.share(page);
    }
    return hit;
}

void PrefixCache::enter(PrefixChain& chain, int32_t const* tokens, std::size_t size, int32_t const* pages) {
    int32_t const full = (static_cast<int32_t>(size) - lookahead_) / pageSize_;
    for (int32_t number = chain.numPages; number < full; ++number) {
        Key const wanted = key(chain.contentId, tokens, size, number);
        int32_t const page = pages[number];
        auto const [place, isNew] = entries_.try_emplace(wanted, Entry{nextId_, page});
        if (isNew) {
            keys_.emplace(page, wanted);
            ++nextId_;
            allocator_.keep(page);
        }
        chain = {place->second.contentId, number + 1};
    }
}

PrefixCache::Key PrefixCache::key(int64_t parent, int32_t const* tokens, std::size_t size, int32_t number) const {
    std::size_t const first = static_cast<std::size_t>(number) * static_cast<std::size_t>(pageSize_);
    std::size_t const last = std::min(first + static_cast<std::size_t>(pageSize_ + lookahead_), size);
    return {parent, std::vector<int32_t>(tokens + first, tokens + last)};
}

std::size_t PrefixCache::KeyHash::operator()(Key const& key) const {
    uint64_t hash = static_cast<uint64_t>(key.parent) * 0x9E3779B97F4A7C15U;
    for (int32_t token : key.tokens) {
        hash = (hash ^ static_cast<uint32_t>(token)) * 0x100000001B3U;
        hash ^= hash >> 29;
    }
    return static_cast<std::size_t>(hash);
}

}  // namespace hspec_trt

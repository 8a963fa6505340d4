// SPDX-License-Identifier: Apache-2.0
// Prefix cache (hspec_trt/runtime/prefix.py): finds pages whose content a new request would compute again. A full page
// is known by its tokens and the content before it, compared by value, so a hash collision cannot hand out wrong pages.
#pragma once

#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "pages.h"

namespace hspec_trt {

// How far the pages of one sequence are entered: the content id of the last one, and their number.
struct PrefixChain {
    int64_t contentId = 0;
    int32_t numPages = 0;
};

// Pages that already hold the start of a sequence.
struct PrefixHit {
    std::vector<int32_t> pages;
    PrefixChain chain;
};

// Content index over the pages of one allocator, of which it becomes the eviction listener.
class PrefixCache {
  public:
    // lookahead: tokens beyond a page that its content depends on.
    PrefixCache(PageAllocator& allocator, int32_t pageSize, int32_t lookahead);
    PrefixCache(PrefixCache const&) = delete;
    PrefixCache& operator=(PrefixCache const&) = delete;

    // The longest run of entered pages that starts `tokens` and leaves at least one token to run. Adds no owner.
    PrefixHit find(std::vector<int32_t> const& tokens) const;
    // The same, with one owner added to each page.
    PrefixHit match(std::vector<int32_t> const& tokens);
    // Enter all full pages of a sequence that are not entered yet.
    // tokens: the `size` tokens committed to the pages. pages: the sequence's, in order.
    void enter(PrefixChain& chain, int32_t const* tokens, std::size_t size, int32_t const* pages);

  private:
    struct Key {
        int64_t parent;  // content id of the page before
        std::vector<int32_t> tokens;
        bool operator==(Key const& other) const { return parent == other.parent && tokens == other.tokens; }
    };
    struct KeyHash {
        std::size_t operator()(Key const& key) const;
    };
    struct Entry {
        int64_t contentId;
        int32_t page;
    };

    Key key(int64_t parent, int32_t const* tokens, std::size_t size, int32_t number) const;

    PageAllocator& allocator_;
    int32_t pageSize_;
    int32_t lookahead_;
    std::unordered_map<Key, Entry, KeyHash> entries_;
    std::unordered_map<int32_t, Key> keys_;  // of each entered page
    int64_t nextId_ = 1;
};

}  // namespace hspec_trt

// SPDX-License-Identifier: Apache-2.0
#include "lookup.h"

#include <algorithm>

namespace hspec_trt {

std::vector<int32_t> NgramIndex::propose(int32_t const* text, std::size_t size, std::size_t limit) {
    // Every run that ends before the last token.
    for (std::size_t end = std::max<std::size_t>(indexed_, 1); end < size; ++end) {
        for (std::size_t length : kNgramSizes) {
            if (length <= end) {
                ends_[ngramBefore(text, end, length)] = end;
            }
        }
    }
    indexed_ = size;
    for (std::size_t length : kNgramSizes) {
        if (size > length) {
            auto const found = ends_.find(ngramBefore(text, size, length));
            if (found != ends_.end()) {
                return {text + found->second, text + std::min(found->second + limit, size)};
            }
        }
    }
    return {};
}

NgramIndex::Ngram NgramIndex::ngramBefore(int32_t const* text, std::size_t end, std::size_t size) {
    Ngram made;
    made.size = size;
    std::copy_n(text + end - size, size, made.tokens.begin());
    return made;
}

std::size_t NgramIndex::NgramHash::operator()(Ngram const& ngram) const {
    uint64_t hash = ngram.size;
    for (int32_t token : ngram.tokens) {
        hash = (hash ^ static_cast<uint32_t>(token)) * 0x9E3779B97F4A7C15U;
        hash ^= hash >> 31;
    }
    return static_cast<std::size_t>(hash);
}

}  // namespace hspec_trt

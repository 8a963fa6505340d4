// SPDX-License-Identifier: Apache-2.0
// Drafts made on the host by looking up what followed the last time the text ended like this
// (hspec_trt/runtime/lookup.py).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "hspec_trt/runtime/text.h"

namespace hspec_trt {

// Lengths of the text's end that are looked for, longest first.
constexpr std::array<std::size_t, 3> kNgramSizes = {4, 3, 2};

// Where each short run of tokens ended last in one text.
class NgramIndex : public HostDrafts {
  public:
    // Tokens that followed an earlier occurrence of the text's end; empty where nothing matches.
    std::vector<int32_t> propose(int32_t const* text, std::size_t size, std::size_t limit) override;

  private:
    struct Ngram {
        std::array<int32_t, kNgramSizes[0]> tokens{};
        std::size_t size = 0;
        bool operator==(Ngram const& other) const { return size == other.size && tokens == other.tokens; }
    };
    struct NgramHash {
        std::size_t operator()(Ngram const& ngram) const;
    };
    static Ngram ngramBefore(int32_t const* text, std::size_t end, std::size_t size);

    std::unordered_map<Ngram, std::size_t, NgramHash> ends_;
    std::size_t indexed_ = 0;
};

}  // namespace hspec_trt

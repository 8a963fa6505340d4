// SPDX-License-Identifier: Apache-2.0
// What the runtime asks of others about text: a tokenizer for stop strings and bad words, a grammar for guided
// decoding, and drafts from elsewhere. The runtime itself takes and gives token ids.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "hspec_trt/runtime/api.h"

namespace hspec_trt {

// A tokenizer. Its calls come from the thread that steps and from those that submit, so they must be safe together.
class HSPEC_TRT_RUNTIME_API Codec {
  public:
    virtual ~Codec() = default;
    // UTF-8 text of the tokens, special ones left out; bytes that are no character become U+FFFD.
    virtual std::string decode(std::vector<int32_t> const& ids) const = 0;
    // False for special tokens and ids without a token, which decoding leaves out.
    virtual bool hasText(int32_t token) const = 0;
    // True for a byte-fallback token, whose text depends on the byte tokens that follow.
    virtual bool isByte(int32_t token) const = 0;
    // Ids of a text, without what the tokenizer puts around one.
    virtual std::vector<int32_t> encode(std::string const& text) const = 0;
};

// The grammar of one answer.
class HSPEC_TRT_RUNTIME_API TextGuide {
  public:
    virtual ~TextGuide() = default;
    // Masks [V] of the rows of one step: one after the text, and one after each draft that fits; 0 forbids a token.
    // `text` is prompt and output and extends that of the call before. Throws Error where the grammar gives up.
    virtual std::vector<std::vector<uint8_t>> rows(int32_t const* text, std::size_t size,
                                                   std::vector<int32_t> const& drafts) = 0;
};

// A source of drafts that needs no engine; the engine verifies whatever drafts a row carries.
class HSPEC_TRT_RUNTIME_API HostDrafts {
  public:
    virtual ~HostDrafts() = default;
    // At most `limit` drafts for a text, which extends that of the call before.
    virtual std::vector<int32_t> propose(int32_t const* text, std::size_t size, std::size_t limit) = 0;
};

}  // namespace hspec_trt

// SPDX-License-Identifier: Apache-2.0
// Text from tokens as they come (hspec_trt/runtime/detokenizer.py): no broken characters, no part of a stop string, and
// nothing that changes later. The chunks put together are always the decoding of all tokens at once. Texts are UTF-8.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "hspec_trt/runtime/text.h"

namespace hspec_trt {

// Decodes a window of the last tokens, so that the cost of a token does not grow with the text. The window starts where
// the text was whole. It keeps a token that shows something before the new ones, because some decoders drop the space
// that starts a text.
class IncrementalDecoder {
  public:
    explicit IncrementalDecoder(std::shared_ptr<Codec const> codec) : codec_(std::move(codec)) {}

    // Add tokens; returns the text that no later token can change.
    std::string push(std::vector<int32_t> const& ids);
    // The text that was held back, whole or not.
    std::string flush();

  private:
    void slide(std::string const& text);

    std::shared_ptr<Codec const> codec_;
    std::vector<int32_t> window_;
    std::size_t shownLen_ = 0;  // tokens of the window whose text was given out
    std::string shown_;         // their text, decoded as the start of the window
};

// The text of one answer, chunk by chunk, ended by the first of its stop strings.
class TextStream {
  public:
    TextStream(std::shared_ptr<Codec const> codec, std::vector<std::string> stops)
        : incremental_(std::move(codec)), stops_(std::move(stops)) {}

    // A stop string was found; the text before it is out and nothing follows.
    bool stopped() const { return stopped_; }
    // Add tokens; returns the next chunk, which may be empty.
    std::string push(std::vector<int32_t> const& ids);
    // The last chunk, once no token follows.
    std::string flush();

  private:
    std::string filter(std::string const& fresh, bool last);
    // Length of the longest end of `text` that may grow into a stop string.
    std::size_t possibleStop(std::string const& text) const;

    IncrementalDecoder incremental_;
    std::vector<std::string> stops_;
    std::string held_;
    bool stopped_ = false;
};

}  // namespace hspec_trt

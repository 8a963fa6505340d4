// SPDX-License-Identifier: Apache-2.0
// The tokenizer, the grammar and the scripted drafts of the recorded traces, as in tests/support/table_codec.py and
// hspec_trt.runtime.lookup.ScriptedDrafts.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "hspec_trt/runtime/error.h"
#include "hspec_trt/runtime/text.h"

namespace hspec_trt::tests {

class TableCodec : public Codec {
  public:
    // hex: the bytes of each token in hexadecimal.
    explicit TableCodec(std::vector<std::string> const& hex) {
        for (std::string const& digits : hex) {
            std::string piece;
            for (std::size_t i = 0; i < digits.size(); i += 2) {
                piece += static_cast<char>(std::stoi(digits.substr(i, 2), nullptr, 16));
            }
            pieces_.push_back(std::move(piece));
        }
    }

    std::string decode(std::vector<int32_t> const& ids) const override {
        std::string bytes;
        for (int32_t id : ids) {
            bytes += piece(id);
        }
        std::string text;
        for (std::size_t at = 0; at < bytes.size(); ++at) {
            bool const isLead = static_cast<uint8_t>(bytes[at]) >= 0xC0;
            bool const isPair =
                isLead && at + 1 < bytes.size() && (static_cast<uint8_t>(bytes[at + 1]) & 0xC0U) == 0x80;
            if (isPair) {
                text += bytes.substr(at++, 2);
            } else if (static_cast<uint8_t>(bytes[at]) >= 0x80) {
                text += "\xEF\xBF\xBD";
            } else {
                text += bytes[at];
            }
        }
        return text.rfind(' ', 0) == 0 ? text.substr(1) : text;
    }

    bool hasText(int32_t token) const override { return !piece(token).empty(); }

    bool isByte(int32_t token) const override {
        return piece(token).size() == 1 && static_cast<uint8_t>(piece(token)[0]) >= 0x80;
    }

    std::vector<int32_t> encode(std::string const& text) const override {
        std::vector<int32_t> ids;
        for (std::size_t at = 0; at < text.size();) {
            std::size_t best = 0;
            std::size_t length = 0;
            for (std::size_t i = 0; i < pieces_.size(); ++i) {
                if (pieces_[i].size() > length && text.compare(at, pieces_[i].size(), pieces_[i]) == 0) {
                    best = i;
                    length = pieces_[i].size();
                }
            }
            ids.push_back(static_cast<int32_t>(best));
            at += std::max<std::size_t>(length, 1);
        }
        return ids;
    }

  private:
    std::string const& piece(int32_t token) const { return pieces_[static_cast<std::size_t>(token)]; }

    std::vector<std::string> pieces_;
};

// Even and odd tokens take turns, an even one first; gives up after `last` tokens (0: never).
class ParityGuide : public TextGuide {
  public:
    ParityGuide(int32_t vocabSize, std::size_t promptLen, std::size_t last)
        : vocabSize_(vocabSize), promptLen_(promptLen), last_(last) {}

    std::vector<std::vector<uint8_t>> rows(int32_t const*, std::size_t size,
                                           std::vector<int32_t> const& drafts) override {
        std::size_t count = size - promptLen_;
        if (last_ != 0 && count >= last_) {
            throw Error(Fault{"R222", "guided decoding failed: after " + std::to_string(count) + " tokens"});
        }
        std::vector<std::vector<uint8_t>> masks = {mask(count)};
        for (int32_t draft : drafts) {
            if (masks.back()[static_cast<std::size_t>(draft)] == 0) {
                break;
            }
            masks.push_back(mask(++count));
        }
        return masks;
    }

  private:
    std::vector<uint8_t> mask(std::size_t count) const {
        std::vector<uint8_t> made(static_cast<std::size_t>(vocabSize_));
        for (std::size_t id = 0; id < made.size(); ++id) {
            made[id] = id % 2 == count % 2 ? 1 : 0;
        }
        return made;
    }

    int32_t vocabSize_;
    std::size_t promptLen_;
    std::size_t last_;
};

// Right for so many drafts and then wrong, given the text that will come.
class ScriptedDrafts : public HostDrafts {
  public:
    ScriptedDrafts(std::vector<int32_t> text, std::size_t right, int32_t vocabSize)
        : text_(std::move(text)), right_(right), vocabSize_(vocabSize) {}

    std::vector<int32_t> propose(int32_t const*, std::size_t size, std::size_t limit) override {
        std::vector<int32_t> drafts;
        for (std::size_t j = 0; j < limit && size + j < text_.size(); ++j) {
            int32_t const next = text_[size + j];
            drafts.push_back(j < right_ ? next : (next + 1) % vocabSize_);
        }
        return drafts;
    }

  private:
    std::vector<int32_t> text_;
    std::size_t right_;
    int32_t vocabSize_;
};

}  // namespace hspec_trt::tests

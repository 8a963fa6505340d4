// SPDX-License-Identifier: Apache-2.0
#include "utf8.h"

namespace hspec_trt::utf8 {
namespace {

uint8_t byteOf(std::string_view text, std::size_t place) {
    return static_cast<uint8_t>(text[place]);
}

bool continues(std::string_view text, std::size_t count) {
    if (text.size() <= count) {
        return false;
    }
    for (std::size_t i = 1; i <= count; ++i) {
        if ((byteOf(text, i) & 0xC0) != 0x80) {
            return false;
        }
    }
    return true;
}

}  // namespace

std::size_t sequenceLength(std::string_view text) {
    if (text.empty()) {
        return 0;
    }
    uint8_t const first = byteOf(text, 0);
    if (first < 0x80) {
        return 1;
    }
    if (first >= 0xC2 && first < 0xE0) {
        return continues(text, 1) ? 2 : 0;
    }
    uint8_t const second = text.size() > 1 ? byteOf(text, 1) : uint8_t{0};
    if (first >= 0xE0 && first < 0xF0) {
        bool const allowed = !(first == 0xE0 && second < 0xA0) && !(first == 0xED && second > 0x9F);
        return allowed && continues(text, 2) ? 3 : 0;
    }
    if (first >= 0xF0 && first < 0xF5) {
        bool const allowed = !(first == 0xF0 && second < 0x90) && !(first == 0xF4 && second > 0x8F);
        return allowed && continues(text, 3) ? 4 : 0;
    }
    return 0;
}

uint32_t decode(std::string_view sequence) {
    uint32_t const first = byteOf(sequence, 0);
    if (sequence.size() == 1) {
        return first;
    }
    uint32_t point = first & (0x7FU >> sequence.size());
    for (std::size_t i = 1; i < sequence.size(); ++i) {
        point = (point << 6) | (byteOf(sequence, i) & 0x3FU);
    }
    return point;
}

void append(uint32_t codePoint, std::string& text) {
    auto const put = [&text](uint32_t byte) { text += static_cast<char>(byte); };
    if (codePoint < 0x80) {
        put(codePoint);
        return;
    }
    if (codePoint < 0x800) {
        put(0xC0 | (codePoint >> 6));
    } else if (codePoint < 0x10000) {
        put(0xE0 | (codePoint >> 12));
        put(0x80 | ((codePoint >> 6) & 0x3F));
    } else {
        put(0xF0 | (codePoint >> 18));
        put(0x80 | ((codePoint >> 12) & 0x3F));
        put(0x80 | ((codePoint >> 6) & 0x3F));
    }
    put(0x80 | (codePoint & 0x3F));
}

bool isValid(std::string_view text) {
    for (std::size_t at = 0; at < text.size();) {
        std::size_t const length = sequenceLength(text.substr(at));
        if (length == 0) {
            return false;
        }
        at += length;
    }
    return true;
}

}  // namespace hspec_trt::utf8

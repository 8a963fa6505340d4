// SPDX-License-Identifier: Apache-2.0
// UTF-8, character by character.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace hspec_trt::utf8 {

// Bytes of the character that `text` begins with; 0 where it begins with none (overlong forms, surrogates and what lies
// beyond U+10FFFF are none).
std::size_t sequenceLength(std::string_view text);

// The code point of one whole sequence.
uint32_t decode(std::string_view sequence);

void append(uint32_t codePoint, std::string& text);

bool isValid(std::string_view text);

}  // namespace hspec_trt::utf8

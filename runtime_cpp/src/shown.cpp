// SPDX-License-Identifier: Apache-2.0
#include "shown.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <iterator>
#include <string_view>
#include <utility>

#include "utf8.h"

namespace hspec_trt {
namespace {

constexpr int32_t kMaxShown = 200;  // characters

// First and last code points of what Python does not print: controls, formats, spaces but ' ', and private use. What no
// version of Unicode has assigned yet is left out: the two would differ from one Python to the next.
constexpr std::pair<uint32_t, uint32_t> kNotPrinted[] = {
    {0x0, 0x1F},        {0x7F, 0xA0},       {0xAD, 0xAD},        {0x600, 0x605},     {0x61C, 0x61C},
    {0x6DD, 0x6DD},     {0x70F, 0x70F},     {0x890, 0x891},      {0x8E2, 0x8E2},     {0x1680, 0x1680},
    {0x180E, 0x180E},   {0x2000, 0x200F},   {0x2028, 0x202F},    {0x205F, 0x2064},   {0x2066, 0x206F},
    {0x3000, 0x3000},   {0xE000, 0xF8FF},   {0xFEFF, 0xFEFF},    {0xFFF9, 0xFFFB},   {0x110BD, 0x110BD},
    {0x110CD, 0x110CD}, {0x13430, 0x13438}, {0x1BCA0, 0x1BCA3},  {0x1D173, 0x1D17A}, {0xE0001, 0xE0001},
    {0xE0020, 0xE007F}, {0xF0000, 0xFFFFD}, {0x100000, 0x10FFFD}};

bool isPrintable(uint32_t codePoint) {
    return std::none_of(std::begin(kNotPrinted), std::end(kNotPrinted), [codePoint](auto const& range) {
        return codePoint >= range.first && codePoint <= range.second;
    });
}

std::string escaped(uint32_t codePoint) {
    switch (codePoint) {
        case '\n':
            return "\\n";
        case '\t':
            return "\\t";
        case '\r':
            return "\\r";
        default:
            break;
    }
    std::array<char, 16> text{};
    char const* const format = codePoint < 0x100 ? "\\x%02x" : codePoint < 0x10000 ? "\\u%04x" : "\\U%08x";
    std::snprintf(text.data(), text.size(), format, static_cast<unsigned>(codePoint));
    return text.data();
}

}  // namespace

std::string shortened(std::string const& text) {
    std::size_t end = 0;
    for (int32_t count = 0; end < text.size() && count < kMaxShown; ++count) {
        end += std::max<std::size_t>(utf8::sequenceLength(std::string_view(text).substr(end)), 1);
    }
    return end < text.size() ? text.substr(0, end) + " ..." : text;
}

std::string shown(int64_t value) {
    return std::to_string(value);
}

// The shortest digits that give the value back; with an exponent where it is below -4 or above 15.
std::string shown(double value) {
    if (std::isnan(value)) {
        return "nan";
    }
    if (std::isinf(value)) {
        return value < 0 ? "-inf" : "inf";
    }
    double const size = std::fabs(value);
    bool const isPlain = size == 0.0 || (size >= 1e-4 && size < 1e16);
    std::array<char, 64> buffer{};
    auto const format = isPlain ? std::chars_format::fixed : std::chars_format::scientific;
    char* const end = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value, format).ptr;
    std::string text(buffer.data(), end);
    return isPlain && text.find('.') == std::string::npos ? text + ".0" : text;
}

std::string shown(std::string const& value) {
    bool const hasSingle = value.find('\'') != std::string::npos;
    char const quote = hasSingle && value.find('"') == std::string::npos ? '"' : '\'';
    std::string text(1, quote);
    for (std::string_view rest = value; !rest.empty();) {
        std::size_t const size = utf8::sequenceLength(rest);
        if (size == 0) {  // a byte that is no text, as Python's surrogateescape keeps it
            text += escaped(0xDC00U + static_cast<unsigned char>(rest.front()));
            rest.remove_prefix(1);
            continue;
        }
        std::string_view const character = rest.substr(0, size);
        rest.remove_prefix(size);
        char const c = character.front();
        if (c == '\\' || c == quote) {
            text += '\\';
        }
        uint32_t const codePoint = utf8::decode(character);
        text += isPrintable(codePoint) ? std::string(character) : escaped(codePoint);
    }
    return text + quote;
}

}  // namespace hspec_trt

// SPDX-License-Identifier: Apache-2.0
#include "json.h"

#include <array>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <stdexcept>
#include <unordered_map>

#include "utf8.h"

namespace hspec_trt::json {
namespace {

constexpr int kMaxDepth = 200;

class Parser {
  public:
    explicit Parser(std::string_view text) : text_(text) {}

    Value whole() {
        Value value = next(0);
        skipSpace();
        if (at_ != text_.size()) {
            fail("text after the value");
        }
        if (beyond_) {
            throw std::out_of_range("a whole number beyond 64 bits");
        }
        return value;
    }

  private:
    [[noreturn]] void fail(char const* what) const {
        throw std::invalid_argument(std::string(what) + " at byte " + std::to_string(at_));
    }

    char peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }

    bool take(char wanted) {
        bool const there = at_ < text_.size() && text_[at_] == wanted;
        at_ += there ? 1 : 0;
        return there;
    }

    bool takeWord(std::string_view word) {
        bool const there = text_.substr(at_, word.size()) == word;
        at_ += there ? word.size() : 0;
        return there;
    }

    void skipSpace() {
        while (at_ < text_.size() && std::string_view(" \t\r\n").find(text_[at_]) != std::string_view::npos) {
            ++at_;
        }
    }

    Value next(int depth) {
        skipSpace();
        Value value;
        switch (peek()) {
            case '{':
                return object(depth + 1);
            case '[':
                return array(depth + 1);
            case '"':
                value.kind = Kind::kString;
                value.string = string();
                return value;
            default:
                return scalar();
        }
    }

    Value scalar() {
        Value value;
        if (takeWord("null")) {
            return value;
        }
        bool const yes = takeWord("true");
        if (yes || takeWord("false")) {
            value.kind = Kind::kBool;
            value.boolean = yes;
            return value;
        }
        double const infinity = std::numeric_limits<double>::infinity();
        for (auto const& [word, number] : {std::pair<std::string_view, double>{"NaN", std::nan("")},
                                           {"Infinity", infinity},
                                           {"-Infinity", -infinity}}) {
            if (takeWord(word)) {
                value.kind = Kind::kFloat;
                value.string = word;
                value.number = number;
                return value;
            }
        }
        return number();
    }

    std::size_t digits() {
        std::size_t const start = at_;
        while (peek() >= '0' && peek() <= '9') {
            ++at_;
        }
        return at_ - start;
    }

    Value number() {
        Value value;
        std::size_t const start = at_;
        take('-');
        if (peek() < '0' || peek() > '9') {
            fail("no value");
        }
        if (!take('0')) {
            digits();
        }
        bool whole = true;
        if (take('.')) {
            whole = false;
            if (digits() == 0) {
                fail("a number without its fraction");
            }
        }
        if (take('e') || take('E')) {
            whole = false;
            if (!take('+')) {
                take('-');
            }
            if (digits() == 0) {
                fail("a number without its exponent");
            }
        }
        value.string = std::string(text_.substr(start, at_ - start));
        value.kind = whole ? Kind::kInteger : Kind::kFloat;
        value.number = std::strtod(value.string.c_str(), nullptr);
        if (whole) {
            errno = 0;
            value.integer = std::strtoll(value.string.c_str(), nullptr, 10);
            beyond_ = beyond_ || errno == ERANGE;
            value.string.clear();
        }
        return value;
    }

    Value array(int depth) {
        descend(depth);
        Value value;
        value.kind = Kind::kArray;
        take('[');
        skipSpace();
        if (take(']')) {
            return value;
        }
        do {
            value.array.push_back(next(depth));
            skipSpace();
        } while (take(','));
        if (!take(']')) {
            fail("no , or ]");
        }
        return value;
    }

    Value object(int depth) {
        descend(depth);
        Value value;
        value.kind = Kind::kObject;
        std::unordered_map<std::string, std::size_t> places;
        take('{');
        skipSpace();
        if (take('}')) {
            return value;
        }
        do {
            skipSpace();
            if (peek() != '"') {
                fail("no key");
            }
            std::string key = string();
            skipSpace();
            if (!take(':')) {
                fail("no :");
            }
            auto const [place, fresh] = places.emplace(key, value.members.size());
            Value member = next(depth);
            if (fresh) {
                value.members.emplace_back(std::move(key), std::move(member));
            } else {
                value.members[place->second].second = std::move(member);
            }
            skipSpace();
        } while (take(','));
        if (!take('}')) {
            fail("no , or }");
        }
        return value;
    }

    void descend(int depth) const {
        if (depth > kMaxDepth + 1) {
            fail("nested too deeply");
        }
    }

    std::string string() {
        std::string result;
        ++at_;
        while (!take('"')) {
            if (at_ >= text_.size()) {
                fail("a string without an end");
            }
            if (take('\\')) {
                escape(result);
                continue;
            }
            if (static_cast<unsigned char>(text_[at_]) < 0x20) {
                fail("a control character in a string");
            }
            std::size_t const length = utf8::sequenceLength(text_.substr(at_));
            if (length == 0) {
                fail("bytes that are no UTF-8");
            }
            result.append(text_.substr(at_, length));
            at_ += length;
        }
        return result;
    }

    void escape(std::string& result) {
        constexpr std::string_view kNames = "\"\\/bfnrt";
        constexpr std::string_view kBytes = "\"\\/\b\f\n\r\t";
        if (take('u')) {
            utf8::append(codePoint(), result);
            return;
        }
        std::size_t const place = at_ < text_.size() ? kNames.find(text_[at_]) : std::string_view::npos;
        if (place == std::string_view::npos) {
            fail("an unknown escape");
        }
        result += kBytes[place];
        ++at_;
    }

    uint32_t codePoint() {
        uint32_t const first = hex();
        if (first < 0xD800 || first > 0xDFFF) {
            return first;
        }
        if (first > 0xDBFF || !takeWord("\\u")) {
            fail("a lone surrogate");
        }
        uint32_t const second = hex();
        if (second < 0xDC00 || second > 0xDFFF) {
            fail("a lone surrogate");
        }
        return 0x10000 + ((first - 0xD800) << 10) + (second - 0xDC00);
    }

    uint32_t hex() {
        constexpr std::string_view kDigits = "0123456789abcdef";
        uint32_t value = 0;
        for (int i = 0; i < 4; ++i, ++at_) {
            char const digit = peek() >= 'A' && peek() <= 'F' ? static_cast<char>(peek() - 'A' + 'a') : peek();
            std::size_t const place = digit == '\0' ? std::string_view::npos : kDigits.find(digit);
            if (place == std::string_view::npos) {
                fail("an escape without four hex digits");
            }
            value = value * 16 + static_cast<uint32_t>(place);
        }
        return value;
    }

    std::string_view text_;
    std::size_t at_ = 0;
    bool beyond_ = false;
};

void appendEscaped(uint32_t unit, std::string& result) {
    std::array<char, 16> text{};
    std::snprintf(text.data(), text.size(), "\\u%04x", static_cast<unsigned>(unit));
    result += text.data();
}

}  // namespace

Value const* Value::find(std::string_view key) const {
    for (Member const& member : members) {
        if (member.first == key) {
            return &member.second;
        }
    }
    return nullptr;
}

Value const& Value::at(std::string_view key) const {
    Value const* member = find(key);
    if (member == nullptr) {
        throw std::invalid_argument("no member " + std::string(key));
    }
    return *member;
}

std::string Value::dump() const {
    std::string text;
    switch (kind) {
        case Kind::kNull:
            return "null";
        case Kind::kBool:
            return boolean ? "true" : "false";
        case Kind::kInteger:
            return std::to_string(integer);
        case Kind::kFloat:
            return string;
        case Kind::kString:
            return quoted(string);
        case Kind::kArray:
            for (Value const& value : array) {
                text += (text.empty() ? "" : ", ") + value.dump();
            }
            return "[" + text + "]";
        case Kind::kObject:
            break;
    }
    for (Member const& member : members) {
        text += (text.empty() ? "" : ", ") + quoted(member.first) + ": " + member.second.dump();
    }
    return "{" + text + "}";
}

Value parse(std::string_view text) {
    return Parser(text).whole();
}

std::string quoted(std::string_view text) {
    constexpr std::string_view kNames = "\"\\bfnrt";
    constexpr std::string_view kBytes = "\"\\\b\f\n\r\t";
    std::string result = "\"";
    for (std::size_t at = 0; at < text.size();) {
        std::size_t const length = utf8::sequenceLength(text.substr(at));
        uint32_t const point = length == 0 ? 0xFFFD : utf8::decode(text.substr(at, length));
        at += length == 0 ? 1 : length;
        std::size_t const place = point < 0x80 ? kBytes.find(static_cast<char>(point)) : std::string_view::npos;
        if (place != std::string_view::npos) {
            result += {'\\', kNames[place]};
        } else if (point >= 0x20 && point < 0x7F) {
            result += static_cast<char>(point);
        } else if (point > 0xFFFF) {
            appendEscaped(0xD800 + ((point - 0x10000) >> 10), result);
            appendEscaped(0xDC00 + ((point - 0x10000) & 0x3FF), result);
        } else {
            appendEscaped(point, result);
        }
    }
    return result + "\"";
}

}  // namespace hspec_trt::json

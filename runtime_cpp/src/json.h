// SPDX-License-Identifier: Apache-2.0
// Reading JSON texts that nobody vouches for. Accepts what Python's side accepts (RFC 8259, NaN and Infinity, the last
// of equal keys wins) and refuses the rest: bad UTF-8, lone surrogates, deep nesting, whole numbers beyond 64 bits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace hspec_trt::json {

enum class Kind : int8_t { kNull, kBool, kInteger, kFloat, kString, kArray, kObject };

class Value {
  public:
    using Member = std::pair<std::string, Value>;

    Kind kind = Kind::kNull;
    bool boolean = false;
    int64_t integer = 0;
    double number = 0.0;  // of an integer, too
    std::string string;   // of a float, its text in the file
    std::vector<Value> array;
    std::vector<Member> members;  // of an object, in order, each key once

    // The member of that name; nullptr where there is none or this is no object.
    Value const* find(std::string_view key) const;
    // The member of that name. Throws std::invalid_argument where there is none.
    Value const& at(std::string_view key) const;
    bool isNull() const { return kind == Kind::kNull; }

    // As one line of ASCII, spaced as Python's json.dumps.
    std::string dump() const;
};

// Throws std::invalid_argument with what is wrong and at which byte; std::out_of_range for JSON with a whole number
// beyond 64 bits.
Value parse(std::string_view text);

// A string as JSON, in ASCII; `text` is UTF-8.
std::string quoted(std::string_view text);

}  // namespace hspec_trt::json

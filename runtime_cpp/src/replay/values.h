// SPDX-License-Identifier: Apache-2.0
// Typed reading of the JSON in a trace. Throws std::invalid_argument where a value is of another kind.
#pragma once

#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "json.h"

namespace hspec_trt {

template <typename T>
T valueAs(json::Value const& value);

template <>
inline int64_t valueAs<int64_t>(json::Value const& value) {
    if (value.kind != json::Kind::kInteger) {
        throw std::invalid_argument(value.dump() + " is no whole number");
    }
    return value.integer;
}

template <>
inline int32_t valueAs<int32_t>(json::Value const& value) {
    return static_cast<int32_t>(valueAs<int64_t>(value));
}

template <>
inline double valueAs<double>(json::Value const& value) {
    return value.number;
}

template <>
inline bool valueAs<bool>(json::Value const& value) {
    return value.boolean;
}

template <>
inline std::string valueAs<std::string>(json::Value const& value) {
    return value.string;
}

template <typename T>
std::vector<T> vectorOf(json::Value const& value) {
    std::vector<T> made;
    for (json::Value const& one : value.array) {
        made.push_back(valueAs<T>(one));
    }
    return made;
}

// None where there is no such member, or it is null.
template <typename T>
std::optional<T> memberOf(json::Value const& object, std::string_view key) {
    json::Value const* const found = object.find(key);
    return found == nullptr || found->isNull() ? std::nullopt : std::optional<T>(valueAs<T>(*found));
}

}  // namespace hspec_trt

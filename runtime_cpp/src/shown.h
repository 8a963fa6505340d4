// SPDX-License-Identifier: Apache-2.0
// Values in messages, written as Python's repr writes them, so that both runtimes say the same.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace hspec_trt {

std::string shown(int64_t value);
inline std::string shown(int32_t value) {
    return shown(static_cast<int64_t>(value));
}
std::string shown(double value);
std::string shown(std::string const& value);

// A text of a message, cut where it is longer than a message shows of one value.
std::string shortened(std::string const& text);

// A tuple.
template <typename T>
std::string shown(std::vector<T> const& values);

template <typename T, typename U>
std::string shown(std::pair<T, U> const& values) {
    return "(" + shown(values.first) + ", " + shown(values.second) + ")";
}

template <typename T>
std::string shown(std::vector<T> const& values) {
    std::string text = "(";
    for (std::size_t i = 0; i < values.size(); ++i) {
        text += (i > 0 ? ", " : "") + shown(values[i]);
    }
    return text + (values.size() == 1 ? ",)" : ")");
}

}  // namespace hspec_trt

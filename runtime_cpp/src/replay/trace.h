// SPDX-License-Identifier: Apache-2.0
// A recorded run (tests/support/recorder.py): a safetensors file with the arrays of all steps, and a JSON text in its
// metadata. It knows the file's form; what is compared with it is the replay engine's business.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "hspec_trt/runtime/step.h"
#include "json.h"

namespace hspec_trt {

// Elements of one array; they point into the trace.
template <typename T>
struct Span {
    T const* data = nullptr;
    std::size_t size = 0;
};

// Sizes of one step.
struct StepSizes {
    int32_t rows, tokens, longestQuery, logitRows, draftRows, pagesPerRow, edits, masks, tops;
};

class Trace {
  public:
    // Throws Error R321.
    explicit Trace(std::string const& path);

    // Limits, options, events and answers.
    json::Value const& meta() const { return meta_; }
    Limits limits() const;
    std::vector<StepSizes> const& steps() const { return steps_; }

    // The whole tensor; empty where there is none of the name.
    template <typename T>
    Span<T> tensor(std::string const& name) const {
        auto const found = tensors_.find(name);
        if (found == tensors_.end()) {
            return {};
        }
        auto const [begin, end] = found->second;
        return {reinterpret_cast<T const*>(data_.data() + begin), (end - begin) / sizeof(T)};
    }

  private:
    void addTensor(std::string const& name, json::Value const& entry);

    json::Value meta_;
    std::map<std::string, std::pair<std::size_t, std::size_t>> tensors_;  // where each begins and ends in data_
    std::vector<char> data_;  // aligned as operator new aligns; tensors lie at multiples of their element size
    std::vector<StepSizes> steps_;
};

}  // namespace hspec_trt

// SPDX-License-Identifier: Apache-2.0
// Types, shapes and pointers as the launchers see them; knows neither TensorRT nor CUDA.
#pragma once

#include <array>
#include <cstdint>

#include "hspec_trt/contract_gen.h"

namespace hspec_trt {

// Values are part of the C interface (hspec_trt/plugins.h).
enum class DType : int32_t { kFloat32 = 0, kFloat16 = 1, kBFloat16 = 2, kInt32 = 3, kInt64 = 4, kBool = 5 };

char const* toString(DType dtype);

constexpr int32_t kMaxRank = 8;

struct Shape {
    int32_t rank = 0;
    std::array<int64_t, kMaxRank> dims{};
    int64_t operator[](int32_t axis) const { return dims[static_cast<std::size_t>(axis)]; }
};

struct Tensor {
    void* data = nullptr;  // device memory
    DType dtype = DType::kFloat32;
    Shape shape;
};

// Attribute values in the order of the op's table, four bytes each; Attributes structs are read from it.
constexpr int32_t kMaxAttributes = 8;
using AttributeWords = std::array<int32_t, kMaxAttributes>;

}  // namespace hspec_trt

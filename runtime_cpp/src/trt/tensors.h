// SPDX-License-Identifier: Apache-2.0
// The small arrays of a step: which of the contract's tensors a plan has, and where each lies in one block of memory,
// so that a step costs one copy each way.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "hspec_trt/contract_gen.h"
#include "hspec_trt/runtime/step.h"
#include "trt/buckets.h"
#include "trt/plan.h"

namespace hspec_trt::trt {

// Sizes of one step that the contract names.
struct Sizes {
    StepShape shape;
    int64_t numDrafts = 0;
    int64_t vocabSize = 0;
    int64_t edits = 0;  // E
    int64_t masks = 0;  // L
    int64_t tops = 0;   // J

    static Sizes of(StepShape const& shape, StepExtras const& extras, Limits const& limits);
    // The size of a dim, such as "R+1".
    int64_t at(std::string const& dim) const;
};

// A contract tensor of a plan.
struct Tensor {
    std::string name;
    std::size_t itemSize;           // bytes
    std::vector<std::string> dims;  // names, in order

    explicit Tensor(contract::Operand const& operand);
};

// Where a tensor lies in a block.
struct Place {
    Tensor const* tensor;
    std::size_t offset;
    std::size_t bytes;
    Shape shape;
};

struct Layout {
    std::vector<Place> places;  // in the order of the tensors
    std::size_t bytes = 0;      // of the whole block

    // One after the other, each aligned. Empty arrays get a place as well: TensorRT wants an address for every tensor.
    static Layout of(std::vector<Tensor> const& tensors, Sizes const& sizes);
    // nullptr where the plan has no such tensor.
    Place const* find(char const* name) const;
};

// Write a step's inputs into a block, padded to `layout` as the contract allows: idle rows, tokens beyond
// cu_query_lens[R], rows of logits beyond cu_verify_lens[R], the null page; rows to draft for are repeated.
void writeInputs(StepInputs const& inputs, Layout const& layout, std::byte* block);

// Read what the first rows and drafts of a block hold.
void readOutputs(Layout const& layout, std::byte const* block, std::size_t rows, std::size_t drafts,
                 StepOutputs& outputs);

}  // namespace hspec_trt::trt

// SPDX-License-Identifier: Apache-2.0
// The contract's type and shape table of one op, with the attribute values of one node filled in.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "core/status.h"
#include "core/tensor.h"

namespace hspec_trt {

// One dimension: a constant plus, when symbol >= 0, one size of the call.
struct DimRule {
    int64_t constant = 0;
    int32_t symbol = -1;
};

class OpRules {
  public:
    // Fills the attribute values into the dims of the table.
    static Status create(contract::OpSpec const& spec, AttributeWords const& attributes, OpRules* rules);

    contract::OpSpec const& spec() const { return *spec_; }
    int32_t numOperands() const { return spec_->numInputs + spec_->numOutputs; }
    std::vector<DimRule> const& dims(int32_t operand) const { return dims_[static_cast<std::size_t>(operand)]; }

    // The first input that has the engine's own type, or -1.
    int32_t kvInput() const;
    bool typeFits(int32_t operand, DType dtype, DType kvDtype) const;

    // Compares types and shapes of inputs, then outputs, with the table; names the first operand that does not fit.
    Status check(Tensor const* inputs, Tensor const* outputs) const;

  private:
    static constexpr std::size_t kMaxSymbols = 8;
    using Sizes = std::array<int64_t, kMaxSymbols>;

    Status checkShape(int32_t operand, Shape const& shape, Sizes* sizes) const;
    Status misfit(int32_t operand, std::string const& found) const;

    contract::OpSpec const* spec_ = nullptr;
    std::vector<std::vector<DimRule>> dims_;
    std::vector<std::string> symbols_;
};

}  // namespace hspec_trt

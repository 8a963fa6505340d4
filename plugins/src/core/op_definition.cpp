// SPDX-License-Identifier: Apache-2.0
#include "core/op_definition.h"

#include <algorithm>

namespace hspec_trt {
namespace {

// Compiled into every kernel (build_scripts/kernel_compiler.py): a pointer off it ends the CUDA context.
constexpr uint64_t kPointerAlign = 16;

bool isAligned(void const* data) {
    return address(data) % kPointerAlign == 0;
}

// Nothing is read of a tensor without elements, wherever it lies.
bool isUsable(Tensor const& tensor) {
    auto const* const dims = tensor.shape.dims.data();
    return isAligned(tensor.data) || std::count(dims, dims + tensor.shape.rank, 0) > 0;
}

Status misaligned(contract::OpSpec const& spec, char const* name, void const* data) {
    return Status::error(std::string(spec.name) + " " + name + ": starts " +
                         std::to_string(address(data) % kPointerAlign) + " bytes behind a multiple of " +
                         std::to_string(kPointerAlign) + " bytes, needed a multiple");
}

}  // namespace

Status launchOp(OpDefinition const& definition, OpCall const& call) {
    contract::OpSpec const& spec = definition.spec;
    for (int32_t i = 0; i < spec.numInputs + spec.numOutputs; ++i) {
        Tensor const& tensor = i < spec.numInputs ? call.inputs[i] : call.outputs[i - spec.numInputs];
        if (!isUsable(tensor)) {
            return misaligned(spec, spec.operands[i].name, tensor.data);
        }
    }
    return isAligned(call.workspace) ? definition.launch(call) : misaligned(spec, "workspace", call.workspace);
}

}  // namespace hspec_trt

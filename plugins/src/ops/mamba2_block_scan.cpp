// SPDX-License-Identifier: Apache-2.0
// Launcher of Mamba2BlockScan: one kernel, no workspace. Knows nothing of TensorRT.
#include "core/op_definition.h"

namespace hspec_trt {
namespace {

namespace op = contract::mamba2_block_scan;
using op::Attributes;

KernelRequest scanKernel(Attributes const& a, DType dtype) {
    return request<Mamba2BlockScanArgs>(kernelType(dtype),
                                        {a.numHeads, a.headDim, a.stateSize, a.nGroups, a.convKernel, a.blockSize});
}

Status checkAttributes(AttributeWords const& words) {
    auto const a = attributesOf<Attributes>(words);
    if (a.numHeads < 1 || a.headDim < 1 || a.stateSize < 1 || a.convKernel < 1) {
        return Status::error("num_heads, head_dim, state_size and conv_kernel must be at least 1");
    }
    if (a.nGroups < 1 || a.numHeads % a.nGroups != 0) {
        return Status::error("num_heads " + std::to_string(a.numHeads) + " is not a multiple of n_groups " +
                             std::to_string(a.nGroups));
    }
    if (a.blockSize < 1 || a.blockSize > kMaxBlockLen) {
        return Status::error("block_size " + std::to_string(a.blockSize) + " is not in 1 to " +
                             std::to_string(kMaxBlockLen));
    }
    return Status::ok();
}

std::size_t workspaceBytes(AttributeWords const& /*words*/, Shape const* /*inputs*/) {
    return 0;
}

std::vector<KernelRequest> kernels(AttributeWords const& words, DType kvDtype, Shape const* /*inputs*/) {
    return {scanKernel(attributesOf<Attributes>(words), kvDtype)};
}

Status launch(OpCall const& call) {
    Tensor const* in = call.inputs;
    auto const a = attributesOf<Attributes>(call.attributes);
    int64_t const numRows = in[op::kXbc].shape[0];
    if (numRows == 0) {
        return Status::ok();
    }
    Mamba2BlockScanArgs args;
    args.xbc = address(in[op::kXbc].data);
    args.dt = address(in[op::kDt].data);
    args.conv_weight = address(in[op::kConvWeight].data);
    args.conv_bias = address(in[op::kConvBias].data);
    args.dt_bias = address(in[op::kDtBias].data);
    args.a_log = address(in[op::kALog].data);
    args.d = address(in[op::kD].data);
    args.state = address(in[op::kState].data);
    args.output = address(call.outputs[op::kOutputResult].data);
    return launchKernel(scanKernel(a, in[op::kXbc].dtype), {a.numHeads, numRows, 1}, args, call.stream);
}

}  // namespace

OpDefinition const& mamba2BlockScan() {
    static OpDefinition const definition{op::kSpec, checkAttributes, workspaceBytes, kernels, launch};
    return definition;
}

}  // namespace hspec_trt

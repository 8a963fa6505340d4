// SPDX-License-Identifier: Apache-2.0
// Launcher of AppendKv: the first half of PagedAttention alone. Knows nothing of TensorRT.
#include "core/geometry.h"
#include "core/op_definition.h"

namespace hspec_trt {
namespace {

namespace op = contract::append_kv;
using op::Attributes;

constexpr int32_t kNoOutput = 0;  // in place of the group: there is no attention output to zero

KernelRequest appendKernel(Attributes const& a, DType dtype) {
    return request<AppendKvArgs>(kernelType(dtype), {a.headDim, kNoOutput, a.pageSize});
}

Status checkAttributes(AttributeWords const& words) {
    auto const a = attributesOf<Attributes>(words);
    return a.numKvHeads >= 1 && a.headDim >= 1 && a.pageSize >= 1
               ? Status::ok()
               : Status::error("num_kv_heads, head_dim and page_size must be at least 1");
}

std::size_t workspaceBytes(AttributeWords const& /*words*/, Shape const* /*inputs*/) {
    return 0;
}

std::vector<KernelRequest> kernels(AttributeWords const& words, DType kvDtype, Shape const* /*inputs*/) {
    return {appendKernel(attributesOf<Attributes>(words), kvDtype)};
}

Status launch(OpCall const& call) {
    Tensor const* in = call.inputs;
    auto const a = attributesOf<Attributes>(call.attributes);
    int64_t const numTokens = in[op::kKey].shape[0];
    if (call.outputs[op::kKvPagesOutResult].data != in[op::kKvPages].data) {
        return Status::error("AppendKv: kv_pages_out does not share the memory of kv_pages");
    }
    if (numTokens == 0) {
        return Status::ok();
    }
    AppendKvArgs args;
    args.key = address(in[op::kKey].data);
    args.value = address(in[op::kValue].data);
    args.kv_pages = address(in[op::kKvPages].data);
    args.page_table = address(in[op::kPageTable].data);
    args.token_rows = address(in[op::kTokenRows].data);
    args.token_positions = address(in[op::kTokenPositions].data);
    args.num_rows = static_cast<int32_t>(in[op::kPageTable].shape[0]);
    args.max_pages = static_cast<int32_t>(in[op::kPageTable].shape[1]);
    args.num_kv_heads = a.numKvHeads;
    int64_t const blocks = ceilDiv(int64_t{a.numKvHeads} * a.headDim, kAppendBlock);
    return launchKernel(appendKernel(a, in[op::kKey].dtype), {numTokens, blocks, 1}, args, call.stream);
}

}  // namespace

OpDefinition const& appendKv() {
    static OpDefinition const definition{op::kSpec, checkAttributes, workspaceBytes, kernels, launch};
    return definition;
}

}  // namespace hspec_trt

// SPDX-License-Identifier: Apache-2.0
// Launcher of SharedKvAttention: a drafter block over the target's pages and its own K and V. Knows nothing of
// TensorRT.
#include "core/geometry.h"
#include "core/op_definition.h"
#include "ops/attention.h"

namespace hspec_trt {
namespace {

namespace op = contract::shared_kv_attention;
using op::Attributes;

constexpr std::size_t kTileIndex = 3;
constexpr int32_t kNotPacked = 0;
constexpr int32_t kBlockAxis = 1;

int32_t groupOf(Attributes const& attributes) {
    return attributes.numHeads / attributes.numKvHeads;
}

// The least compiled tile that holds the whole block; tile 0 where none is compiled.
KernelRequest blockKernel(Attributes const& a, DType dtype, int64_t blockLen) {
    KernelRequest kernel = request<SharedKvAttentionArgs>(
        kernelType(dtype), {a.headDim, groupOf(a), a.pageSize, 0, a.causal, a.noContext});
    kernel.key[kTileIndex] = compiledValue(kernel, kTileIndex, blockLen * groupOf(a));
    return kernel;
}

KernelRequest mergeKernel(Attributes const& a, DType dtype) {
    return request<MergeSplitsArgs>(kernelType(dtype), {a.headDim, kNotPacked});
}

Status checkAttributes(AttributeWords const& words) {
    auto const a = attributesOf<Attributes>(words);
    HSPEC_TRT_RETURN_IF_ERROR(checkHeads({a.numHeads, a.numKvHeads, a.headDim, a.pageSize, a.window}));
    if ((a.causal != 0 && a.causal != 1) || (a.noContext != 0 && a.noContext != 1)) {
        return Status::error("causal and no_context are 0 or 1");
    }
    return Status::ok();
}

std::size_t workspaceBytes(AttributeWords const& words, Shape const* inputs) {
    auto const a = attributesOf<Attributes>(words);
    if (a.noContext != 0) {
        return 0;
    }
    return splitWorkspace(groupOf(a), inputs[op::kQuery][kBlockAxis], a.headDim).bytes();
}

std::vector<KernelRequest> kernels(AttributeWords const& words, DType kvDtype, Shape const* inputs) {
    auto const a = attributesOf<Attributes>(words);
    std::vector<KernelRequest> kernels{blockKernel(a, kvDtype, inputs[op::kQuery][kBlockAxis])};
    if (a.noContext == 0) {
        kernels.push_back(mergeKernel(a, kvDtype));
    }
    return kernels;
}

Status checkBlock(Attributes const& a, int64_t blockLen, int32_t tile) {
    if (blockLen <= kMaxBlockLen && (tile == 0 || blockLen * groupOf(a) <= tile)) {
        return Status::ok();
    }
    return Status::error("SharedKvAttention: a block of " + std::to_string(blockLen) + " slots with " +
                         std::to_string(groupOf(a)) + " heads a K/V head does not fit; needed: at most " +
                         std::to_string(kMaxBlockLen) + " slots, and slots x heads at most the compiled tile of " +
                         std::to_string(tile));
}

Status checkSizes(AttributeWords const& words, DType kvDtype, Shape const* inputs) {
    auto const a = attributesOf<Attributes>(words);
    int64_t const blockLen = inputs[op::kQuery][kBlockAxis];
    return checkBlock(a, blockLen, blockKernel(a, kvDtype, blockLen).key[kTileIndex]);
}

Status merge(OpCall const& call, SharedKvAttentionArgs const& parts, int64_t splits) {
    auto const a = attributesOf<Attributes>(call.attributes);
    MergeSplitsArgs args;
    args.partial_out = parts.partial_out;
    args.partial_lse = parts.partial_lse;
    args.output = parts.output;
    args.max_query = parts.block_len;
    args.splits = static_cast<int32_t>(splits);
    Grid const grid{parts.block_len, a.numHeads, call.inputs[op::kQuery].shape[0]};
    return launchKernel(mergeKernel(a, call.inputs[op::kQuery].dtype), grid, args, call.stream);
}

Status launch(OpCall const& call) {
    Tensor const* in = call.inputs;
    auto const a = attributesOf<Attributes>(call.attributes);
    int64_t const numRows = in[op::kQuery].shape[0];
    int64_t const blockLen = in[op::kQuery].shape[kBlockAxis];
    int64_t const maxPages = in[op::kPageTable].shape[1];
    if (numRows == 0 || blockLen == 0) {
        return Status::ok();
    }
    KernelRequest const kernel = blockKernel(a, in[op::kQuery].dtype, blockLen);
    HSPEC_TRT_RETURN_IF_ERROR(checkBlock(a, blockLen, kernel.key[kTileIndex]));
    int64_t splits = 1;
    if (a.noContext == 0) {
        int64_t const longest = longestRange(maxPages, a.pageSize, a.window, blockLen);
        HSPEC_TRT_RETURN_IF_ERROR(splitsOnDevice(numRows, a.numKvHeads, longest, &splits));
    }
    SharedKvAttentionArgs args;
    args.query = address(in[op::kQuery].data);
    args.key = address(in[op::kKey].data);
    args.value = address(in[op::kValue].data);
    args.kv_pages = address(in[op::kKvPages].data);
    args.page_table = address(in[op::kPageTable].data);
    args.prefix_lens = address(in[op::kPrefixLens].data);
    args.output = address(call.outputs[op::kOutputResult].data);
    if (splits > 1) {
        args.partial_out = address(call.workspace);
        args.partial_lse = args.partial_out + splitWorkspace(groupOf(a), blockLen, a.headDim).lseOffset();
    }
    args.scale = a.scale;
    args.window = a.window;
    args.max_pages = static_cast<int32_t>(maxPages);
    args.block_len = static_cast<int32_t>(blockLen);
    HSPEC_TRT_RETURN_IF_ERROR(launchKernel(kernel, {splits, a.numKvHeads, numRows}, args, call.stream));
    return splits > 1 ? merge(call, args, splits) : Status::ok();
}

}  // namespace

OpDefinition const& sharedKvAttention() {
    static OpDefinition const definition{op::kSpec, checkAttributes, workspaceBytes, kernels, launch, checkSizes};
    return definition;
}

}  // namespace hspec_trt

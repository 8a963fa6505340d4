// SPDX-License-Identifier: Apache-2.0
// Launcher of PagedAttention: appends K and V to the pages, then attends. Knows nothing of TensorRT.
#include "core/geometry.h"
#include "core/op_definition.h"
#include "ops/attention.h"

namespace hspec_trt {
namespace {

namespace op = contract::paged_attention;
using op::Attributes;

constexpr std::size_t kTileIndex = 3;
constexpr int32_t kPacked = 1;

int32_t groupOf(Attributes const& attributes) {
    return attributes.numHeads / attributes.numKvHeads;
}

KernelRequest appendKernel(Attributes const& a, DType dtype) {
    return request<AppendKvArgs>(kernelType(dtype), {a.headDim, groupOf(a), a.pageSize});
}

KernelRequest verifyKernel(Attributes const& a, DType dtype, int32_t tile) {
    return request<VerifyAttentionArgs>(kernelType(dtype), {a.headDim, groupOf(a), a.pageSize, tile});
}

KernelRequest prefillKernel(Attributes const& a, DType dtype) {
    return request<PrefillAttentionArgs>(kernelType(dtype), {a.headDim, groupOf(a), a.pageSize});
}

KernelRequest mergeKernel(Attributes const& a, DType dtype) {
    return request<MergeSplitsArgs>(kernelType(dtype), {a.headDim, kPacked});
}

// The least compiled tile that holds the query tokens of a row and their grouped heads, else the greatest.
int32_t verifyTile(Attributes const& a, DType dtype, int64_t longestQuery) {
    return compiledValue(verifyKernel(a, dtype, 0), kTileIndex, longestQuery * groupOf(a));
}

Status checkAttributes(AttributeWords const& words) {
    auto const a = attributesOf<Attributes>(words);
    return checkHeads({a.numHeads, a.numKvHeads, a.headDim, a.pageSize, a.window});
}

std::size_t workspaceBytes(AttributeWords const& words, Shape const* inputs) {
    auto const a = attributesOf<Attributes>(words);
    int64_t const maxQuery = widestQuery(groupOf(a), inputs[op::kQuerySlots][1]);
    return splitWorkspace(groupOf(a), maxQuery, a.headDim).bytes();
}

std::vector<KernelRequest> kernels(AttributeWords const& words, DType kvDtype, Shape const* /*inputs*/) {
    auto const a = attributesOf<Attributes>(words);
    std::vector<KernelRequest> kernels{appendKernel(a, kvDtype), prefillKernel(a, kvDtype), mergeKernel(a, kvDtype)};
    int32_t tile = verifyTile(a, kvDtype, 1);
    kernels.push_back(verifyKernel(a, kvDtype, tile));
    for (int32_t next = 0; (next = compiledValue(verifyKernel(a, kvDtype, 0), kTileIndex, tile + 1)) > tile;) {
        tile = next;
        kernels.push_back(verifyKernel(a, kvDtype, tile));
    }
    return kernels;
}

// Rows of T tokens, the verify width, need a tile that holds them: without it they run as prompts do, slowly.
Status checkSizes(AttributeWords const& words, DType kvDtype, Shape const* inputs) {
    auto const a = attributesOf<Attributes>(words);
    int64_t const width = inputs[op::kQuerySlots][1];
    int32_t const needed = tileRows(width * groupOf(a));
    if (width < 1 || verifyTile(a, kvDtype, width) >= std::min<int64_t>(width * groupOf(a), needed)) {
        return Status::ok();
    }
    return Status::error("the plugin library has no kernel " + describe(verifyKernel(a, kvDtype, needed)) +
                         " or wider, for rows of " + std::to_string(width) + " tokens");
}

// One call, with the sizes that the kernels share.
class Launch {
  public:
    explicit Launch(OpCall const& call)
        : call_(call),
          a_(attributesOf<Attributes>(call.attributes)),
          dtype_(call.inputs[op::kQuery].dtype),
          numTokens_(call.inputs[op::kQuery].shape[0]),
          numRows_(call.inputs[op::kContextLens].shape[0]),
          longestQuery_(call.inputs[op::kQuerySlots].shape[1]),
          maxPages_(call.inputs[op::kPageTable].shape[1]) {}

    Status run() const {
        if (numTokens_ == 0) {
            return Status::ok();
        }
        HSPEC_TRT_RETURN_IF_ERROR(append());
        if (numRows_ == 0 || longestQuery_ == 0 || maxPages_ == 0) {
            return Status::ok();
        }
        int32_t const tile = verifyTile(a_, dtype_, longestQuery_);
        auto const maxQuery = static_cast<int32_t>(std::min<int64_t>(tile / groupOf(a_), longestQuery_));
        HSPEC_TRT_RETURN_IF_ERROR(verify(tile, maxQuery));
        return longestQuery_ > maxQuery ? prefill(maxQuery) : Status::ok();
    }

  private:
    uint64_t input(op::Input index) const { return address(call_.inputs[index].data); }
    uint64_t output() const { return address(call_.outputs[op::kOutputResult].data); }

    Status append() const {
        AppendKvArgs args;
        args.key = input(op::kKey);
        args.value = input(op::kValue);
        args.kv_pages = input(op::kKvPages);
        args.page_table = input(op::kPageTable);
        args.token_rows = input(op::kTokenRows);
        args.token_positions = input(op::kTokenPositions);
        args.output = output();
        args.num_rows = static_cast<int32_t>(numRows_);
        args.max_pages = static_cast<int32_t>(maxPages_);
        args.num_kv_heads = a_.numKvHeads;
        int64_t const blocks = ceilDiv(int64_t{a_.numKvHeads} * a_.headDim, kAppendBlock);
        return launchKernel(appendKernel(a_, dtype_), {numTokens_, blocks, 1}, args, call_.stream);
    }

    Status verify(int32_t tile, int32_t maxQuery) const {
        int64_t splits = 1;
        int64_t const longest = longestRange(maxPages_, a_.pageSize, a_.window, maxQuery);
        HSPEC_TRT_RETURN_IF_ERROR(splitsOnDevice(numRows_, a_.numKvHeads, longest, &splits));
        VerifyAttentionArgs args;
        args.query = input(op::kQuery);
        args.kv_pages = input(op::kKvPages);
        args.cu_query_lens = input(op::kCuQueryLens);
        args.context_lens = input(op::kContextLens);
        args.page_table = input(op::kPageTable);
        args.output = output();
        SplitWorkspace const space = splitWorkspace(groupOf(a_), maxQuery, a_.headDim);
        args.partial_out = address(call_.workspace);
        args.partial_lse = args.partial_out + space.lseOffset();
        args.scale = a_.scale;
        args.window = a_.window;
        args.max_pages = static_cast<int32_t>(maxPages_);
        args.max_query = maxQuery;
        HSPEC_TRT_RETURN_IF_ERROR(
            launchKernel(verifyKernel(a_, dtype_, tile), {splits, a_.numKvHeads, numRows_}, args, call_.stream));
        return splits > 1 ? merge(args, static_cast<int32_t>(splits)) : Status::ok();
    }

    Status merge(VerifyAttentionArgs const& parts, int32_t splits) const {
        MergeSplitsArgs args;
        args.partial_out = parts.partial_out;
        args.partial_lse = parts.partial_lse;
        args.cu_query_lens = parts.cu_query_lens;
        args.output = parts.output;
        args.max_query = parts.max_query;
        args.splits = splits;
        return launchKernel(mergeKernel(a_, dtype_), {parts.max_query, a_.numHeads, numRows_}, args, call_.stream);
    }

    Status prefill(int32_t maxQuery) const {
        PrefillAttentionArgs args;
        args.query = input(op::kQuery);
        args.kv_pages = input(op::kKvPages);
        args.cu_query_lens = input(op::kCuQueryLens);
        args.context_lens = input(op::kContextLens);
        args.page_table = input(op::kPageTable);
        args.output = output();
        args.scale = a_.scale;
        args.window = a_.window;
        args.max_pages = static_cast<int32_t>(maxPages_);
        args.min_query = maxQuery + 1;
        int64_t const tiles = ceilDiv(longestQuery_, kPrefillTile / groupOf(a_));
        return launchKernel(prefillKernel(a_, dtype_), {tiles, a_.numKvHeads, numRows_}, args, call_.stream);
    }

    OpCall const& call_;
    Attributes const a_;
    DType const dtype_;
    int64_t const numTokens_;
    int64_t const numRows_;
    int64_t const longestQuery_;
    int64_t const maxPages_;
};

Status launch(OpCall const& call) {
    if (call.outputs[op::kKvPagesOutResult].data != call.inputs[op::kKvPages].data) {
        return Status::error("PagedAttention: kv_pages_out does not share the memory of kv_pages");
    }
    return Launch(call).run();
}

}  // namespace

OpDefinition const& pagedAttention() {
    static OpDefinition const definition{op::kSpec, checkAttributes, workspaceBytes, kernels, launch, checkSizes};
    return definition;
}

}  // namespace hspec_trt

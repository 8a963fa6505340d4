// SPDX-License-Identifier: Apache-2.0
// Launcher of SampleTokens: four kernels one after the other. Knows nothing of TensorRT.
#include "core/geometry.h"
#include "core/op_definition.h"

namespace hspec_trt {
namespace {

namespace op = contract::sample_tokens;

constexpr int32_t kVocabAxis = 1;
constexpr int32_t kVocabAlign = 16;
constexpr std::size_t kChunkedTensors = 7;

template <typename Args>
KernelRequest alignedKernel(int64_t vocabSize) {
    return request<Args>(KernelDType::kNone, {vocabSize % kVocabAlign == 0 ? kVocabAlign : 1});
}

Status checkAttributes(AttributeWords const& /*words*/) {
    return Status::ok();
}

std::size_t workspaceBytes(AttributeWords const& /*words*/, Shape const* inputs) {
    auto const rows = static_cast<std::size_t>(inputs[op::kLogits][0]);
    std::size_t const chunked = rows * static_cast<std::size_t>(sampleChunks(inputs[op::kLogits][kVocabAxis]));
    return kChunkedTensors * alignUp(4 * chunked) + alignUp(4 * rows);
}

std::vector<KernelRequest> kernels(AttributeWords const& /*words*/, DType /*kvDtype*/, Shape const* inputs) {
    int64_t const vocabSize = inputs[op::kLogits][kVocabAxis];
    return {alignedKernel<SampleScanArgs>(vocabSize), alignedKernel<SampleFilterArgs>(vocabSize),
            alignedKernel<SamplePickArgs>(vocabSize), request<SampleFinishArgs>(KernelDType::kNone, {})};
}

// One call, with its scratch tensors in the order in which they lie; each starts on kWorkspaceAlign bytes.
class Launch {
  public:
    explicit Launch(OpCall const& call)
        : call_(call),
          numLogitRows_(call.inputs[op::kLogits].shape[0]),
          vocabSize_(call.inputs[op::kLogits].shape[kVocabAxis]),
          numRows_(static_cast<int32_t>(call.inputs[op::kTemperature].shape[0])) {
        std::size_t const step = alignUp(4 * static_cast<std::size_t>(numLogitRows_ * sampleChunks(vocabSize_)));
        uint64_t next = address(call.workspace);
        for (uint64_t* tensor : {&scanMax_, &scanSum_, &scanId_, &scanBad_, &pickScore_, &pickId_, &pickLogit_}) {
            *tensor = next;
            next += step;
        }
        thresholds_ = next;
    }

    Status run() const {
        if (numLogitRows_ == 0) {
            return Status::ok();
        }
        if (vocabSize_ < 1 || vocabSize_ > contract::kMaxVocabSize || numRows_ < 1) {
            return Status::error("SampleTokens: V is " + std::to_string(vocabSize_) + " and R is " +
                                 std::to_string(numRows_) + ", needed: V in 1 to " +
                                 std::to_string(contract::kMaxVocabSize) + " and R at least 1");
        }
        HSPEC_TRT_RETURN_IF_ERROR(scan());
        HSPEC_TRT_RETURN_IF_ERROR(filter());
        HSPEC_TRT_RETURN_IF_ERROR(pick());
        return finish();
    }

  private:
    uint64_t input(op::Input index) const { return address(call_.inputs[index].data); }
    uint64_t output(op::Output index) const { return address(call_.outputs[index].data); }
    Grid chunkGrid() const { return {sampleChunks(vocabSize_), numLogitRows_, 1}; }
    Grid rowGrid() const { return {numLogitRows_, 1, 1}; }

    Status scan() const {
        SampleScanArgs args;
        args.logits = input(op::kLogits);
        args.token_ids = input(op::kTokenIds);
        args.scan_max = scanMax_;
        args.scan_sum = scanSum_;
        args.scan_id = scanId_;
        args.scan_bad = scanBad_;
        args.vocab_size = static_cast<int32_t>(vocabSize_);
        return launchKernel(alignedKernel<SampleScanArgs>(vocabSize_), chunkGrid(), args, call_.stream);
    }

    Status filter() const {
        SampleFilterArgs args;
        args.logits = input(op::kLogits);
        args.row_ids = input(op::kRowIds);
        args.temperature = input(op::kTemperature);
        args.top_p = input(op::kTopP);
        args.min_p = input(op::kMinP);
        args.top_k = input(op::kTopK);
        args.scan_max = scanMax_;
        args.thresholds = thresholds_;
        args.vocab_size = static_cast<int32_t>(vocabSize_);
        args.num_rows = numRows_;
        return launchKernel(alignedKernel<SampleFilterArgs>(vocabSize_), rowGrid(), args, call_.stream);
    }

    Status pick() const {
        SamplePickArgs args;
        args.logits = input(op::kLogits);
        args.token_ids = input(op::kTokenIds);
        args.row_ids = input(op::kRowIds);
        args.positions = input(op::kPositions);
        args.temperature = input(op::kTemperature);
        args.seed = input(op::kSeed);
        args.scan_max = scanMax_;
        args.thresholds = thresholds_;
        args.pick_score = pickScore_;
        args.pick_id = pickId_;
        args.pick_logit = pickLogit_;
        args.vocab_size = static_cast<int32_t>(vocabSize_);
        args.num_rows = numRows_;
        return launchKernel(alignedKernel<SamplePickArgs>(vocabSize_), chunkGrid(), args, call_.stream);
    }

    Status finish() const {
        SampleFinishArgs args;
        args.row_ids = input(op::kRowIds);
        args.temperature = input(op::kTemperature);
        args.scan_max = scanMax_;
        args.scan_sum = scanSum_;
        args.scan_id = scanId_;
        args.scan_bad = scanBad_;
        args.pick_score = pickScore_;
        args.pick_id = pickId_;
        args.pick_logit = pickLogit_;
        args.ids = output(op::kIdsResult);
        args.logprobs = output(op::kLogprobsResult);
        args.finite = output(op::kFiniteResult);
        args.num_rows = numRows_;
        args.chunks = static_cast<int32_t>(sampleChunks(vocabSize_));
        return launchKernel(request<SampleFinishArgs>(KernelDType::kNone, {}), rowGrid(), args, call_.stream);
    }

    OpCall const& call_;
    int64_t const numLogitRows_;
    int64_t const vocabSize_;
    int32_t const numRows_;
    uint64_t scanMax_ = 0;
    uint64_t scanSum_ = 0;
    uint64_t scanId_ = 0;
    uint64_t scanBad_ = 0;
    uint64_t pickScore_ = 0;
    uint64_t pickId_ = 0;
    uint64_t pickLogit_ = 0;
    uint64_t thresholds_ = 0;
};

Status launch(OpCall const& call) {
    return Launch(call).run();
}

}  // namespace

OpDefinition const& sampleTokens() {
    static OpDefinition const definition{op::kSpec, checkAttributes, workspaceBytes, kernels, launch};
    return definition;
}

}  // namespace hspec_trt

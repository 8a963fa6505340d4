// SPDX-License-Identifier: Apache-2.0
#include "replay/replay_engine.h"

#include <algorithm>
#include <cstring>

#include "hspec_trt/contract_gen.h"
#include "hspec_trt/runtime/error.h"
#include "hspec_trt/runtime/replay.h"
#include "replay/values.h"
#include "step_checks.h"

namespace hspec_trt {
namespace {

// What differs between an array and the recorded one, of which `size` elements from `first` are meant; empty where
// nothing.
template <typename T>
std::string compare(char const* name, std::vector<T> const& asked, Span<T> recorded, std::size_t first,
                    std::size_t size) {
    if (first + size > recorded.size) {
        return std::string(name) + " was not recorded";
    }
    T const* const wanted = recorded.data + first;
    if (asked.size() != size) {
        return std::string(name) + " has " + std::to_string(asked.size()) + " elements, recorded " +
               std::to_string(size);
    }
    if (size == 0 || std::memcmp(asked.data(), wanted, size * sizeof(T)) == 0) {
        return "";
    }
    std::size_t at = 0;
    while (std::memcmp(&asked[at], wanted + at, sizeof(T)) == 0) {
        ++at;
    }
    return std::string(name) + "[" + std::to_string(at) + "] is " + std::to_string(asked[at]) + ", recorded " +
           std::to_string(wanted[at]);
}

template <typename T>
void take(std::vector<T>& output, Span<T> recorded, std::size_t first, std::size_t size) {
    if (first + size > recorded.size) {
        throw Error(Fault{"R320", "the trace has no outputs for this step"});
    }
    output.assign(recorded.data + first, recorded.data + first + size);
}

}  // namespace

void ReplayEngine::Place::add(StepSizes const& sizes) {
    auto const count = [](int32_t size) { return static_cast<std::size_t>(size); };
    rows += count(sizes.rows);
    cumulative += count(sizes.rows) + 1;
    tokens += count(sizes.tokens);
    slots += count(sizes.rows) * count(sizes.longestQuery);
    logitRows += count(sizes.logitRows);
    draftRows += count(sizes.draftRows);
    pages += count(sizes.rows) * count(sizes.pagesPerRow);
    edits += count(sizes.edits);
    masks += count(sizes.masks);
    tops += count(sizes.tops);
}

ReplayEngine::ReplayEngine(std::shared_ptr<Trace const> trace)
    : trace_(std::move(trace)), limits_(trace_->limits()), numPages_(valueAs<int32_t>(trace_->meta().at("num_pages"))) {
    for (int64_t step : vectorOf<int64_t>(trace_->meta().at("failed_steps"))) {
        failedSteps_.insert(static_cast<std::size_t>(step));
    }
    if (json::Value const* const followed = trace_->meta().find("followed_steps")) {
        for (int64_t step : vectorOf<int64_t>(*followed)) {
            followedSteps_.insert(static_cast<std::size_t>(step));
        }
    }
}

void ReplayEngine::launch(StepInputs const& inputs) {
    checkStep(inputs, limits_, numPages_);
    enter(difference(inputs));
    isFollowable_ = limits_.extensions.feedback && canBeFollowed(inputs);
}

void ReplayEngine::follow(std::vector<int32_t> const& pageTable, int32_t pagesPerRow,
                          std::vector<int32_t> const& mostContext) {
    enter(followDifference(pageTable, pagesPerRow, mostContext));
}

void ReplayEngine::enter(std::string const& difference) {
    isFollowable_ = isFollowable_ && difference.empty();
    if (!difference.empty()) {
        std::string const where = "step " + std::to_string(step_) + " of the trace";
        if (firstDifference_.empty()) {
            firstDifference_ = where + ": " + difference;
        }
        throw Error(Fault{"R320", difference, "the recorded inputs", where});
    }
    inputPlace_.add(trace_->steps()[step_]);
    if (failedSteps_.count(step_++) != 0) {
        throw Error(Fault{"R302", "the script fails this step"});
    }
}

void ReplayEngine::drop() {
    for (; finished_ < step_; ++finished_) {
        if (failedSteps_.count(finished_) == 0) {
            outputPlace_.add(trace_->steps()[finished_]);
        }
    }
    isFollowable_ = false;
}

void ReplayEngine::finish(StepOutputs& outputs) {
    StepSizes const& sizes = trace_->steps()[finished_];
    Place const& at = outputPlace_;
    auto const rows = static_cast<std::size_t>(sizes.rows);
    auto const drafts = static_cast<std::size_t>(limits_.numDrafts);
    auto const drafted = static_cast<std::size_t>(sizes.draftRows);
    auto const tops = static_cast<std::size_t>(sizes.tops);
    constexpr auto kTops = static_cast<std::size_t>(contract::kMaxTopLogprobs);
    take(outputs.emittedIds, trace_->tensor<int32_t>("out.emitted_ids"), at.rows * (drafts + 1), rows * (drafts + 1));
    take(outputs.emittedLens, trace_->tensor<int32_t>("out.emitted_lens"), at.rows, rows);
    take(outputs.emittedLogprobs, trace_->tensor<float>("out.emitted_logprobs"), at.rows * (drafts + 1),
         rows * (drafts + 1));
    take(outputs.draftIds, trace_->tensor<int32_t>("out.draft_ids"), at.draftRows * drafts, drafted * drafts);
    take(outputs.finite, trace_->tensor<uint8_t>("out.finite"), at.rows, rows);
    take(outputs.topIds, trace_->tensor<int32_t>("out.top_ids"), at.tops * kTops, tops * kTops);
    take(outputs.topLogprobs, trace_->tensor<float>("out.top_logprobs"), at.tops * kTops, tops * kTops);
    outputs.seconds = trace_->tensor<double>("seconds").data[finished_++];
    outputPlace_.add(sizes);
}

std::string ReplayEngine::difference(StepInputs const& inputs) const {
    if (step_ >= trace_->steps().size()) {
        return "a step beyond the last recorded one";
    }
    if (followedSteps_.count(step_) != 0) {
        return "a step of its own, recorded one that follows";
    }
    StepSizes const& sizes = trace_->steps()[step_];
    Place const& at = inputPlace_;
    Place end = at;
    end.add(sizes);
    StepExtras const& extras = inputs.extras;
    Trace const& trace = *trace_;
    auto const ints = [&](char const* name, std::vector<int32_t> const& asked, std::size_t first, std::size_t last) {
        return compare(name, asked, trace.tensor<int32_t>(std::string("in.") + name), first, last - first);
    };
    auto const floats = [&](char const* name, std::vector<float> const& asked, std::size_t first, std::size_t last) {
        return compare(name, asked, trace.tensor<float>(std::string("in.") + name), first, last - first);
    };
    auto const vocab = static_cast<std::size_t>(limits_.vocabSize);
    std::string const found[] = {
        ints("input_ids", inputs.inputIds, at.tokens, end.tokens),
        ints("cu_query_lens", inputs.cuQueryLens, at.cumulative, end.cumulative),
        ints("context_lens", inputs.contextLens, at.rows, end.rows),
        ints("query_slots", inputs.querySlots, at.slots, end.slots),
        ints("verify_rows", inputs.verifyRows, at.logitRows, end.logitRows),
        ints("cu_verify_lens", inputs.cuVerifyLens, at.cumulative, end.cumulative),
        ints("draft_rows", inputs.draftRows, at.draftRows, end.draftRows),
        ints("page_table", inputs.pageTable, at.pages, end.pages),
        floats("temperature", inputs.temperature, at.rows, end.rows),
        floats("top_p", inputs.topP, at.rows, end.rows),
        floats("min_p", inputs.minP, at.rows, end.rows),
        ints("top_k", inputs.topK, at.rows, end.rows),
        compare("seed", inputs.seed, trace.tensor<int64_t>("in.seed"), at.rows, end.rows - at.rows),
        ints("next_ids", inputs.nextIds, at.rows, end.rows),
        ints("edit_rows", extras.editRows, at.edits, end.edits),
        ints("edit_ids", extras.editIds, at.edits, end.edits),
        floats("edit_scales", extras.editScales, at.edits, end.edits),
        floats("edit_biases", extras.editBiases, at.edits, end.edits),
        ints("mask_rows", extras.maskRows, at.masks, end.masks),
        compare("token_masks", extras.tokenMasks, trace.tensor<uint8_t>("in.token_masks"), at.masks * vocab,
                (end.masks - at.masks) * vocab),
        ints("top_rows", extras.topRows, at.tops, end.tops),
    };
    auto const* const first =
        std::find_if(std::begin(found), std::end(found), [](std::string const& one) { return !one.empty(); });
    return first == std::end(found) ? "" : *first;
}

std::string ReplayEngine::followDifference(std::vector<int32_t> const& pageTable, int32_t pagesPerRow,
                                           std::vector<int32_t> const& mostContext) const {
    if (followedSteps_.count(step_) == 0) {
        return "a step that follows, recorded none";
    }
    StepSizes const& sizes = trace_->steps()[step_];
    std::size_t const rows = static_cast<std::size_t>(sizes.rows);
    if (pagesPerRow != sizes.pagesPerRow) {
        return "page_table has " + std::to_string(pagesPerRow) + " columns, recorded " +
               std::to_string(sizes.pagesPerRow);
    }
    std::string const pages = compare("page_table", pageTable, trace_->tensor<int32_t>("in.page_table"),
                                      inputPlace_.pages, rows * static_cast<std::size_t>(pagesPerRow));
    return pages.empty() ? compare("most_context", mostContext, trace_->tensor<int32_t>("in.most_context"),
                                   inputPlace_.rows, rows)
                         : pages;
}

std::unique_ptr<StepEngine> openReplay(std::string const& path) {
    return std::make_unique<ReplayEngine>(std::make_shared<Trace const>(path));
}

}  // namespace hspec_trt

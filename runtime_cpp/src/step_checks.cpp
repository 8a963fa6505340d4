// SPDX-License-Identifier: Apache-2.0
#include "step_checks.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "hspec_trt/runtime/error.h"

namespace hspec_trt {
namespace {

using Faults = std::vector<std::string>;

void checkSize(std::string const& name, std::size_t size, int64_t needed, Faults& faults) {
    if (static_cast<int64_t>(size) != needed) {
        faults.push_back(name + " has " + std::to_string(size) + " entries, needs " + std::to_string(needed));
    }
}

// Values in [low, high).
template <typename Values>
void checkSpan(std::string const& name, Values const& values, int64_t low, int64_t high, Faults& faults) {
    if (values.empty()) {
        return;
    }
    auto least = values.front();  // a plain loop, which compilers vectorise as they do not std::minmax_element
    auto most = least;
    for (auto const value : values) {
        least = std::min(least, value);
        most = std::max(most, value);
    }
    if (least < low || most >= high) {
        faults.push_back(name + " spans [" + std::to_string(least) + ", " + std::to_string(most) + "], needs [" +
                         std::to_string(low) + ", " + std::to_string(high - 1) + "]");
    }
}

void checkSum(std::string const& name, std::vector<int32_t> const& starts, std::size_t total, Faults& faults) {
    bool const isRising = std::is_sorted(starts.begin(), starts.end());
    if (starts.front() != 0 || !isRising || static_cast<std::size_t>(starts.back()) > total) {
        faults.push_back(name + " is not a rising sum within its array");
    }
}

std::vector<int32_t> differences(std::vector<int32_t> const& starts) {
    std::vector<int32_t> lens;
    for (std::size_t i = 1; i < starts.size(); ++i) {
        lens.push_back(starts[i] - starts[i - 1]);
    }
    return lens;
}

void checkSizes(StepInputs const& inputs, Limits const& limits, Faults& faults) {
    int64_t const rows = inputs.numRows;
    checkSize("cu_query_lens", inputs.cuQueryLens.size(), rows + 1, faults);
    checkSize("context_lens", inputs.contextLens.size(), rows, faults);
    checkSize("query_slots", inputs.querySlots.size(), rows * inputs.longestQuery, faults);
    checkSize("cu_verify_lens", inputs.cuVerifyLens.size(), rows + 1, faults);
    checkSize("page_table", inputs.pageTable.size(), rows * inputs.pagesPerRow, faults);
    checkSize("temperature", inputs.temperature.size(), rows, faults);
    checkSize("top_p", inputs.topP.size(), rows, faults);
    checkSize("min_p", inputs.minP.size(), rows, faults);
    checkSize("top_k", inputs.topK.size(), rows, faults);
    checkSize("seed", inputs.seed.size(), rows, faults);
    checkSize("next_ids", inputs.nextIds.size(), rows, faults);
    StepExtras const& extras = inputs.extras;
    auto const edits = static_cast<int64_t>(extras.editRows.size());
    checkSize("edit_ids", extras.editIds.size(), edits, faults);
    checkSize("edit_scales", extras.editScales.size(), edits, faults);
    checkSize("edit_biases", extras.editBiases.size(), edits, faults);
    int64_t const masks = static_cast<int64_t>(extras.maskRows.size()) * limits.vocabSize;
    checkSize("token_masks", extras.tokenMasks.size(), masks, faults);
}

void checkRows(StepInputs const& inputs, Limits const& limits, Faults& faults) {
    std::vector<int32_t> const queryLens = differences(inputs.cuQueryLens);
    std::vector<int32_t> ends = inputs.contextLens;
    for (std::size_t r = 0; r < ends.size(); ++r) {
        ends[r] += queryLens[r];
    }
    checkSpan("context_lens + query_len", ends, 0, limits.maxSeqLen + 1, faults);
    int32_t const longest = *std::max_element(ends.begin(), ends.end());
    if (static_cast<int64_t>(inputs.pagesPerRow) * limits.pageSize < longest) {
        faults.push_back("page_table has " + std::to_string(inputs.pagesPerRow) + " pages a row for " +
                         std::to_string(longest) + " tokens");
    }
    checkSpan("verify lengths", differences(inputs.cuVerifyLens), 0, limits.numDrafts + 2, faults);
}

void checkValues(StepInputs const& inputs, Limits const& limits, int32_t numPages, Faults& faults) {
    auto const tokens = static_cast<int64_t>(inputs.inputIds.size());
    checkSpan("number of rows", std::vector<int32_t>{inputs.numRows}, 1, limits.maxRows + 1, faults);
    if (inputs.numRows < 1) {
        return;
    }
    checkSpan("number of tokens", std::vector<int32_t>{inputs.cuQueryLens.back()}, 1, limits.maxTokens + 1, faults);
    checkSum("cu_query_lens", inputs.cuQueryLens, inputs.inputIds.size(), faults);
    checkSum("cu_verify_lens", inputs.cuVerifyLens, inputs.verifyRows.size(), faults);
    checkSpan("input_ids", inputs.inputIds, 0, limits.vocabSize, faults);
    checkSpan("next_ids", inputs.nextIds, 0, limits.vocabSize, faults);
    checkSpan("query_slots", inputs.querySlots, 0, tokens, faults);
    checkSpan("verify_rows", inputs.verifyRows, 0, tokens, faults);
    checkSpan("page_table", inputs.pageTable, 0, numPages, faults);
    checkSpan("draft_rows", inputs.draftRows, 0, inputs.numRows, faults);
    checkRows(inputs, limits, faults);
    if (!inputs.draftRows.empty() && !limits.hasDrafter) {
        faults.push_back("draft_rows is not empty, but the engine has no drafter");
    }
}

void checkExtras(StepInputs const& inputs, Limits const& limits, Faults& faults) {
    StepExtras const& extras = inputs.extras;
    auto const logitRows = static_cast<int64_t>(inputs.verifyRows.size());
    checkSpan("edit_rows", extras.editRows, 0, logitRows, faults);
    checkSpan("edit_ids", extras.editIds, 0, limits.vocabSize, faults);
    checkSpan("mask_rows", extras.maskRows, 0, logitRows, faults);
    checkSpan("top_rows", extras.topRows, 0, logitRows, faults);
    if (!std::all_of(extras.editScales.begin(), extras.editScales.end(), [](float scale) { return scale > 0; })) {
        faults.push_back("edit_scales has a value that is not above 0");
    }
    auto const isFinite = [](float value) { return std::isfinite(value); };
    if (!std::all_of(extras.editScales.begin(), extras.editScales.end(), isFinite) ||
        !std::all_of(extras.editBiases.begin(), extras.editBiases.end(), isFinite)) {
        faults.push_back("edit_scales or edit_biases is not finite");
    }
}

}  // namespace

bool usesExtras(StepExtras const& extras) {
    return !extras.editRows.empty() || !extras.maskRows.empty() || !extras.topRows.empty();
}

bool canBeFollowed(StepInputs const& inputs) {
    auto const rows = static_cast<std::size_t>(inputs.numRows);
    if (inputs.draftRows.size() != rows || usesExtras(inputs.extras)) {
        return false;
    }
    for (std::size_t row = 0; row < rows; ++row) {
        if (inputs.draftRows[row] != static_cast<int32_t>(row)) {
            return false;
        }
    }
    return true;
}

void checkStep(StepInputs const& inputs, Limits const& limits, int32_t numPages) {
    Faults faults;
    auto const check = [&](bool isUsed, bool isThere, char const* name) {
        if (isUsed && !isThere) {
            faults.push_back(std::string("the engine was built without ") + name);
        }
    };
    check(!inputs.extras.editRows.empty(), limits.extensions.logitEdits, "logit_edits");
    check(!inputs.extras.maskRows.empty(), limits.extensions.tokenMasks, "token_masks");
    check(!inputs.extras.topRows.empty(), limits.extensions.topLogprobs, "top_logprobs");
    checkSizes(inputs, limits, faults);
    if (faults.empty()) {
        checkValues(inputs, limits, numPages, faults);
        checkExtras(inputs, limits, faults);
    }
    if (faults.empty()) {
        return;
    }
    std::string found;
    for (std::string const& fault : faults) {
        found += (found.empty() ? "" : "; ") + fault;
    }
    throw Error(Fault{"R310", found, "arrays as the step contract says", "step inputs"});
}

}  // namespace hspec_trt

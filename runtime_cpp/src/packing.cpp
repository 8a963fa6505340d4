// SPDX-License-Identifier: Apache-2.0
#include "packing.h"

#include <algorithm>
#include <numeric>

namespace hspec_trt {
namespace {

void clear(StepInputs& inputs) {
    for (auto* array :
         {&inputs.inputIds, &inputs.cuQueryLens, &inputs.contextLens, &inputs.querySlots, &inputs.verifyRows,
          &inputs.cuVerifyLens, &inputs.draftRows, &inputs.pageTable, &inputs.topK, &inputs.nextIds}) {
        array->clear();
    }
    for (auto* array : {&inputs.temperature, &inputs.topP, &inputs.minP}) {
        array->clear();
    }
    inputs.seed.clear();
}

void addSampling(Slot const& slot, StepInputs& inputs) {
    inputs.temperature.push_back(slot.temperature);
    inputs.topP.push_back(slot.topP);
    inputs.minP.push_back(slot.minP);
    inputs.topK.push_back(slot.topK);
    inputs.seed.push_back(slot.seed);
}

void addTokens(PlanRow const& row, Slot const& slot, int32_t const* tokens, StepInputs& inputs) {
    int32_t const first = inputs.cuQueryLens.back();
    int32_t const last = first + row.queryLen;
    inputs.inputIds.insert(inputs.inputIds.end(), tokens + slot.context, tokens + slot.context + row.queryLen);
    inputs.nextIds.push_back(tokens[slot.context + row.queryLen]);
    std::size_t const slots = inputs.querySlots.size();
    inputs.querySlots.resize(slots + static_cast<std::size_t>(inputs.longestQuery), last - 1);
    std::iota(inputs.querySlots.begin() + static_cast<std::ptrdiff_t>(slots),
              inputs.querySlots.begin() + static_cast<std::ptrdiff_t>(slots) + row.queryLen, first);
    std::size_t const verified = inputs.verifyRows.size();
    inputs.verifyRows.resize(verified + static_cast<std::size_t>(row.verifyLen));
    std::iota(inputs.verifyRows.begin() + static_cast<std::ptrdiff_t>(verified), inputs.verifyRows.end(),
              last - row.verifyLen);
    inputs.cuQueryLens.push_back(last);
    inputs.cuVerifyLens.push_back(inputs.cuVerifyLens.back() + row.verifyLen);
}

}  // namespace

void pack(std::vector<PlanRow> const& plan, SlotTable const& table, StepInputs& inputs) {
    clear(inputs);
    inputs.numRows = static_cast<int32_t>(plan.size());
    inputs.longestQuery = 0;
    int32_t longest = 0;
    for (PlanRow const& row : plan) {
        inputs.longestQuery = std::max(inputs.longestQuery, row.queryLen);
        longest = std::max(longest, table[row.slot].context + row.queryLen);
    }
    int32_t const pageSize = table.limits().pageSize;
    inputs.pagesPerRow = (longest + pageSize - 1) / pageSize;
    inputs.cuQueryLens.push_back(0);
    inputs.cuVerifyLens.push_back(0);
    for (std::size_t r = 0; r < plan.size(); ++r) {
        PlanRow const& row = plan[r];
        Slot const& slot = table[row.slot];
        inputs.contextLens.push_back(slot.context);
        addTokens(row, slot, table.tokens(row.slot), inputs);
        addSampling(slot, inputs);
        int32_t const* const pages = table.pages(row.slot);
        inputs.pageTable.insert(inputs.pageTable.end(), pages, pages + inputs.pagesPerRow);
        if (row.draft) {
            inputs.draftRows.push_back(static_cast<int32_t>(r));
        }
    }
    if (inputs.verifyRows.empty()) {
        inputs.verifyRows.push_back(0);
    }
}

}  // namespace hspec_trt

// SPDX-License-Identifier: Apache-2.0
#include "shaping.h"

#include <algorithm>

namespace hspec_trt {
namespace {

void clear(StepExtras& extras) {
    for (auto* array : {&extras.editRows, &extras.editIds, &extras.maskRows, &extras.topRows}) {
        array->clear();
    }
    extras.editScales.clear();
    extras.editBiases.clear();
    extras.tokenMasks.clear();
}

void addMasks(TextGuide& guide, int32_t const* text, std::size_t known, std::vector<int32_t> const& drafts,
              int32_t first, StepExtras& extras) {
    for (std::vector<uint8_t> const& mask : guide.rows(text, known, drafts)) {
        extras.maskRows.push_back(first++);
        extras.tokenMasks.insert(extras.tokenMasks.end(), mask.begin(), mask.end());
    }
}

}  // namespace

ShapedStep shapeStep(std::vector<PlanRow> const& plan, SlotTable& table, StepExtras& extras) {
    clear(extras);
    ShapedStep shaped;
    int32_t first = 0;  // entry of verify_rows
    for (std::size_t r = 0; r < plan.size(); first += plan[r].verifyLen, ++r) {
        PlanRow const& row = plan[r];
        Slot const& slot = table[row.slot];
        if (!slot.shaped || row.verifyLen == 0) {
            continue;
        }
        Shaper& shaper = slot.sequence->shaper;
        int32_t const* const text = table.tokens(row.slot);
        auto const known = static_cast<std::size_t>(slot.known);
        int32_t const* const drafts = text + slot.known;
        if (shaper.edits) {
            shaper.edits->addRows(text, known, drafts, row.numDrafts, first, extras);
        }
        if (shaper.guide != nullptr) {
            try {
                addMasks(*shaper.guide, text, known, {drafts, drafts + row.numDrafts}, first, extras);
            } catch (Error const& error) {
                shaped.failed.emplace_back(slot.sequence, error);
            }
        }
        if (shaper.numTop > 0) {
            shaped.topOwners.emplace_back(r, extras.topRows.size());
            for (int32_t cell = first; cell < first + row.verifyLen; ++cell) {
                extras.topRows.push_back(cell);
            }
        }
    }
    return shaped;
}

void takeTops(ShapedStep const& shaped, std::vector<PlanRow> const& plan, SlotTable& table, StepOutputs const& outputs,
              std::vector<Committed> const& committed) {
    if (shaped.topOwners.empty() || outputs.topIds.empty()) {
        return;
    }
    std::size_t lines = 0;
    for (auto const& [row, first] : shaped.topOwners) {
        lines = first + static_cast<std::size_t>(plan[row].verifyLen);
    }
    std::size_t const width = outputs.topIds.size() / lines;
    for (auto const& [row, first] : shaped.topOwners) {
        Shaper& shaper = table[plan[row].slot].sequence->shaper;
        std::size_t const count = std::min(static_cast<std::size_t>(shaper.numTop), width);
        for (std::size_t line = first; line < first + static_cast<std::size_t>(committed[row].kept); ++line) {
            TopTokens tops;
            for (std::size_t i = line * width; i < line * width + count; ++i) {
                tops.emplace_back(outputs.topIds[i], outputs.topLogprobs[i]);
            }
            shaper.tops.push_back(std::move(tops));
        }
    }
}

}  // namespace hspec_trt

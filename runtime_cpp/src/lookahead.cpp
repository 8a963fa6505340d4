// SPDX-License-Identifier: Apache-2.0
#include "lookahead.h"

#include <algorithm>
#include <utility>

namespace hspec_trt {
namespace {

// The lines of a matrix with `rows` lines that are listed in `kept`.
template <typename T>
void keepLines(std::vector<T>& values, std::size_t rows, std::vector<std::size_t> const& kept) {
    std::size_t const width = values.size() / rows;
    for (std::size_t line = 0; line < kept.size(); ++line) {
        std::copy_n(values.data() + kept[line] * width, width, values.data() + line * width);
    }
    values.resize(kept.size() * width);
}

}  // namespace

bool Lookahead::take() {
    if (ahead_.plan.empty()) {
        return false;
    }
    std::swap(taken_, ahead_);
    ahead_.plan.clear();
    taken_.kept.clear();
    for (std::size_t r = 0; r < taken_.plan.size(); ++r) {
        Sequence const* const sequence = scheduler_.table()[taken_.plan[r].slot].sequence;
        if (sequence != nullptr && sequence->number == taken_.requests[r]) {
            taken_.plan[taken_.kept.size()] = taken_.plan[r];
            taken_.kept.push_back(r);
        }
    }
    taken_.isWhole = taken_.kept.size() == taken_.plan.size();
    taken_.plan.resize(taken_.kept.size());
    if (taken_.plan.empty()) {
        engine_.drop();
    }
    return !taken_.plan.empty();
}

void Lookahead::keepRows(StepOutputs& outputs) const {
    if (taken_.isWhole) {
        return;
    }
    std::size_t const rows = outputs.emittedLens.size();  // every one of them was drafted for
    keepLines(outputs.emittedIds, rows, taken_.kept);
    keepLines(outputs.emittedLens, rows, taken_.kept);
    keepLines(outputs.emittedLogprobs, rows, taken_.kept);
    keepLines(outputs.draftIds, rows, taken_.kept);
    keepLines(outputs.finite, rows, taken_.kept);
}

bool Lookahead::canFollow(std::vector<PlanRow> const& plan, bool isTaken) const {
    Limits const& limits = scheduler_.limits();
    int32_t const drafts = limits.numDrafts;
    std::size_t const rows = plan.size();
    if (!limits.extensions.feedback || (isTaken && !taken_.isWhole) || scheduler_.hasWaiting() ||
        rows != scheduler_.running().size() || static_cast<int64_t>(rows) * (drafts + 1) > scheduler_.maxTokens() ||
        !engine_.canFollow()) {
        return false;
    }
    int32_t const least = std::max(drafts, 2);
    return std::all_of(plan.begin(), plan.end(), [&](PlanRow const& row) {
        Slot const& slot = scheduler_.table()[row.slot];
        int32_t const mostKnown = slot.known + row.verifyLen;
        bool const isFar = slot.end - mostKnown > least && limits.draftMaxPosition - mostKnown >= least;
        return row.draft && isFar && slot.mostDrafts >= drafts && !slot.lookup && !slot.shaped;
    });
}

bool Lookahead::follow(std::vector<PlanRow> const& plan) {
    Limits const& limits = scheduler_.limits();
    SlotTable& table = scheduler_.table();
    int32_t const width = limits.numDrafts + 1;
    mostContext_.clear();
    ends_.clear();
    for (PlanRow const& row : plan) {
        mostContext_.push_back(table[row.slot].context + row.queryLen);
        ends_.push_back(mostContext_.back() + width);
    }
    if (!scheduler_.reserve(plan, ends_)) {
        return false;
    }
    int32_t const longest = *std::max_element(ends_.begin(), ends_.end());
    int32_t const pagesPerRow = (longest + limits.pageSize - 1) / limits.pageSize;
    pageTable_.clear();
    ahead_.plan.clear();
    ahead_.requests.clear();
    for (PlanRow const& row : plan) {
        int32_t const* const pages = table.pages(row.slot);
        pageTable_.insert(pageTable_.end(), pages, pages + pagesPerRow);
        ahead_.plan.push_back({row.slot, width, width - 1, width, true, false, NoDrafts::kOff});
        ahead_.requests.push_back(table[row.slot].sequence->number);
    }
    engine_.follow(pageTable_, pagesPerRow, mostContext_);
    return true;
}

}  // namespace hspec_trt

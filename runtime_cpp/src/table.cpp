// SPDX-License-Identifier: Apache-2.0
#include "table.h"

#include <algorithm>

namespace hspec_trt {

SlotTable::SlotTable(Limits const& limits, int32_t numSlots)
    : limits_(limits),
      width_(static_cast<std::size_t>(limits.maxSeqLen + limits.numDrafts + 1)),
      maxPages_(static_cast<std::size_t>(limits.maxPagesPerRow())),
      slots_(static_cast<std::size_t>(numSlots)),
      tokens_(slots_.size() * width_),
      logprobs_(slots_.size() * width_),
      pages_(slots_.size() * maxPages_) {
    for (int32_t slot = numSlots - 1; slot >= 0; --slot) {
        free_.push_back(slot);
    }
}

void SlotTable::moveIn(Sequence& sequence, std::vector<int32_t> const& pages, bool defaultEos) {
    sequence.slot = free_.back();
    free_.pop_back();
    SamplingParams const& params = sequence.params;
    std::copy(sequence.tokens.begin(), sequence.tokens.end(), tokens(sequence.slot));
    std::copy(sequence.logprobs.begin(), sequence.logprobs.end(), logprobs(sequence.slot) + sequence.promptLen);
    std::copy(pages.begin(), pages.end(), this->pages(sequence.slot));
    Slot& slot = (*this)[sequence.slot];
    slot = Slot{};
    slot.sequence = &sequence;
    slot.known = static_cast<int32_t>(sequence.tokens.size());
    slot.end = sequence.endLen;
    slot.context = static_cast<int32_t>(pages.size()) * limits_.pageSize;
    slot.numPages = slot.entered = static_cast<int32_t>(pages.size());
    slot.temperature = static_cast<float>(params.temperature);
    slot.topP = static_cast<float>(params.topP);
    slot.minP = static_cast<float>(params.minP);
    slot.topK = static_cast<int32_t>(params.topK);
    slot.seed = sequence.seed;
    slot.eos = defaultEos;
    slot.custom = sequence.text.has_value() || !(defaultEos || sequence.rules.isEmpty());
    slot.mode = params.drafts;
    slot.mostDrafts = params.numDrafts.value_or(limits_.numDrafts);
    slot.drafter = sequence.usesDrafter;
    slot.lookup = sequence.lookup != nullptr;
    slot.streaming = sequence.streaming;
    slot.shaped = sequence.shaper.isNeeded();
    auto const drafts = static_cast<std::size_t>(limits_.numDrafts);
    slot.stats.offered.assign(drafts, 0);
    slot.stats.accepted.assign(drafts, 0);
    slot.stats.lengths.assign(drafts + 2, 0);
}

std::vector<int32_t> SlotTable::moveOut(Sequence& sequence) {
    Slot& slot = (*this)[sequence.slot];
    int32_t* const held = pages(sequence.slot);
    std::vector<int32_t> taken(held, held + slot.numPages);
    std::fill(held, held + slot.numPages, 0);
    sequence.tokens.assign(tokens(sequence.slot), tokens(sequence.slot) + slot.known);
    float const* const logprob = logprobs(sequence.slot);
    sequence.logprobs.assign(logprob + sequence.promptLen, logprob + slot.known);
    sequence.drafts.add(slot.stats);
    slot.sequence = nullptr;
    slot.numPages = 0;
    free_.push_back(sequence.slot);
    sequence.slot = kNoSlot;
    return taken;
}

}  // namespace hspec_trt

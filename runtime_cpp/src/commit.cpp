// SPDX-License-Identifier: Apache-2.0
#include "commit.h"

#include <algorithm>

namespace hspec_trt {

Committer::Committer(SlotTable& table, std::unordered_set<int32_t> const& eosIds)
    : table_(table), isEos_(static_cast<std::size_t>(table.limits().vocabSize), false) {
    for (int32_t id : eosIds) {
        if (id < table.limits().vocabSize) {
            isEos_[static_cast<std::size_t>(id)] = true;
        }
    }
}

std::vector<Committed> const& Committer::commit(std::vector<PlanRow> const& plan, StepOutputs const& outputs) {
    auto const width = static_cast<std::size_t>(table_.limits().numDrafts) + 1;
    committed_.assign(plan.size(), {});
    std::size_t numDrafted = 0;
    for (std::size_t r = 0; r < plan.size(); ++r) {
        PlanRow const& row = plan[r];
        Slot& slot = table_[row.slot];
        Committed& done = committed_[r];
        bool const isVerified = row.verifyLen > 0;
        bool const isGood = isVerified && outputs.finite[r] != 0;
        int32_t const emittedLen = isGood ? outputs.emittedLens[r] : 0;
        int32_t const* const emittedIds = outputs.emittedIds.data() + r * width;
        if (isGood) {
            done = findEnding(row, emittedIds, emittedLen);
        } else if (isVerified) {
            done.ending = FinishReason::kError;
        }
        // All of a row's columns: what is not kept lies beyond the known tokens, where nobody looks.
        std::transform(emittedIds, emittedIds + width, table_.tokens(row.slot) + slot.known,
                       [](int32_t id) { return std::max(id, 0); });
        std::copy_n(outputs.emittedLogprobs.data() + r * width, width, table_.logprobs(row.slot) + slot.known);
        slot.known += done.kept;
        slot.context = isVerified ? slot.known - 1 : slot.context + row.queryLen;
        done.accepted = std::max(std::min(done.kept, emittedLen - 1), 0);
        slot.numDrafts = 0;
        if (row.draft) {
            storeDrafts(row, outputs.draftIds.data() + numDrafted++ * (width - 1));
        }
        if (isVerified) {
            noteReason(slot);
            lookUp(row.slot);
        }
        if (isGood) {
            count(row, done);
        }
    }
    return committed_;
}

Committed Committer::findEnding(PlanRow const& row, int32_t const* emittedIds, int32_t emittedLen) {
    Slot const& slot = table_[row.slot];
    int32_t const budget = slot.end - slot.known;
    Committed done;
    if (slot.custom && emittedLen > 0) {
        Sequence& sequence = *slot.sequence;
        TextStream* const text = sequence.text ? &*sequence.text : nullptr;
        Ending const ending = findEnd(emittedIds, emittedLen, budget, sequence.rules, text);
        done.kept = ending.kept;
        done.ending = ending.reason;
        return done;
    }
    done.kept = std::min(emittedLen, budget);
    if (emittedLen >= budget) {
        done.ending = FinishReason::kLength;
    }
    for (int32_t j = 0; slot.eos && j < done.kept; ++j) {
        if (isEos_[static_cast<std::size_t>(std::max(emittedIds[j], 0))]) {
            done.kept = j + 1;
            done.ending = FinishReason::kEos;
        }
    }
    return done;
}

// Drafts go right after the known tokens; as many count as length and the drafter's positions allow.
void Committer::storeDrafts(PlanRow const& row, int32_t const* draftIds) {
    Slot& slot = table_[row.slot];
    Limits const& limits = table_.limits();
    std::copy_n(draftIds, limits.numDrafts, table_.tokens(row.slot) + slot.known);
    int32_t const usable = std::min({limits.draftMaxPosition - slot.known, slot.end - slot.known - 1, slot.mostDrafts});
    slot.numDrafts = std::max(usable, 0);
}

// Why the next step of a row has no drafts, if it has none.
void Committer::noteReason(Slot& slot) {
    if (slot.mode == Drafting::kOff) {
        slot.noDrafts = NoDrafts::kOff;
    } else if (slot.end - slot.known < 2) {
        slot.noDrafts = NoDrafts::kLength;
    } else if (slot.known >= table_.limits().draftMaxPosition) {
        slot.noDrafts = NoDrafts::kPosition;
    } else {
        slot.noDrafts = slot.drafter ? NoDrafts::kPolicy : NoDrafts::kNoMatch;
    }
}

void Committer::lookUp(int32_t number) {
    Slot& slot = table_[number];
    int32_t const limit = std::min(slot.mostDrafts, slot.end - slot.known - 1);
    if (!slot.lookup || slot.mode == Drafting::kOff || limit < 1) {
        return;
    }
    int32_t* const tokens = table_.tokens(number);
    auto const known = static_cast<std::size_t>(slot.known);
    std::vector<int32_t> const found = slot.sequence->lookup->propose(tokens, known, static_cast<std::size_t>(limit));
    if (!found.empty()) {
        std::copy_n(found.begin(), std::min(found.size(), static_cast<std::size_t>(limit)), tokens + slot.known);
        slot.numDrafts = std::min(static_cast<int32_t>(found.size()), limit);
    }
}

void Committer::count(PlanRow const& row, Committed const& done) {
    DraftStats& stats = table_[row.slot].stats;
    if (stats.firstTokens == 0) {  // the step ended the prompt
        ++stats.firstTokens;
        return;
    }
    ++stats.steps;
    stats.emitted += done.kept;
    ++stats.lengths[static_cast<std::size_t>(done.kept)];
    for (std::size_t j = 0; j < static_cast<std::size_t>(row.numDrafts); ++j) {
        ++stats.offered[j];
    }
    for (std::size_t j = 0; j < static_cast<std::size_t>(done.accepted); ++j) {
        ++stats.accepted[j];
    }
    if (row.bare) {
        ++stats.without[static_cast<std::size_t>(row.reason)];
    }
}

}  // namespace hspec_trt

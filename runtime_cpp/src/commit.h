// SPDX-License-Identifier: Apache-2.0
// Writes what a step emitted into the table (hspec_trt/runtime/commit.py): tokens kept, drafts for the next step, and
// who ended why. Whom to tell and whose pages go back is the core's business.
#pragma once

#include <cstdint>
#include <optional>
#include <unordered_set>
#include <vector>

#include "hspec_trt/runtime/step.h"
#include "scheduler.h"
#include "table.h"

namespace hspec_trt {

// What a step did for one row of its plan.
struct Committed {
    int32_t kept = 0;                    // tokens that were kept
    std::optional<FinishReason> ending;  // none where the text goes on
    int32_t accepted = 0;                // drafts that were accepted and kept
};

class Committer {
  public:
    // eosIds: the model's end tokens.
    Committer(SlotTable& table, std::unordered_set<int32_t> const& eosIds);

    // Keep what each row may keep, move its context on, store its drafts and count. One entry per row.
    std::vector<Committed> const& commit(std::vector<PlanRow> const& plan, StepOutputs const& outputs);

  private:
    Committed findEnding(PlanRow const& row, int32_t const* emittedIds, int32_t emittedLen);
    void storeDrafts(PlanRow const& row, int32_t const* draftIds);
    void noteReason(Slot& slot);
    void lookUp(int32_t slot);
    void count(PlanRow const& row, Committed const& done);

    SlotTable& table_;
    std::vector<bool> isEos_;  // [V]
    std::vector<Committed> committed_;
};

}  // namespace hspec_trt

// SPDX-License-Identifier: Apache-2.0
// The step loop (hspec_trt/runtime/core.py): plan, pack, run, commit, tell. One thread uses it; the runtime brings the
// thread. What callers are told waits until the next step is under way, so that callbacks cost the engine no time.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <vector>

#include "commit.h"
#include "drafting.h"
#include "hspec_trt/runtime/runtime.h"
#include "intake.h"
#include "lookahead.h"
#include "scheduler.h"
#include "sequence.h"
#include "shaping.h"

namespace hspec_trt {

// Seconds of a monotonic clock.
double now();

class EngineCore {
  public:
    // engine: with its pages allocated.
    EngineCore(StepEngine& engine, RuntimeOptions const& options);

    // Checks of requests; safe from any thread.
    Intake& intake() { return intake_; }
    Scheduler& scheduler() { return scheduler_; }
    bool isIdle() const { return scheduler_.isIdle(); }

    // Put a sequence in the line.
    void add(std::unique_ptr<Sequence> sequence);
    // End a request now; nothing happens where it has ended already.
    void cancel(RequestId id);
    // End everything that runs or waits.
    void failAll(Error const& error);
    // Run one step; false where there was nothing to run. What the step before emitted is told meanwhile.
    bool step();
    // Tell what has not been told.
    void deliver();

    // Any thread.
    RuntimeStats stats() const;

  private:
    // What one callback will be given: `count` tokens from `first` of the texts below, or the end of an answer.
    struct News {
        Sequence* sequence;
        std::size_t first;
        std::size_t count;
        std::unique_ptr<Sequence> ended;
        std::unique_ptr<RequestResult> result;
    };

    std::vector<PlanRow> const& planStep(ShapedStep& shaped);
    DraftChoice choose();
    // Start the step after this one, where it can be known and the policy would have it full.
    void lookAhead(std::vector<PlanRow> const& plan, bool isTaken);
    // Launch a step, unless it went ahead, and bring its outputs; news go out meanwhile.
    void runEngine(std::vector<PlanRow> const& plan, bool isTaken);
    void observe(std::vector<PlanRow> const& plan, std::vector<Committed> const& committed);
    void enterPages(std::vector<PlanRow> const& plan);
    void tell(std::vector<PlanRow> const& plan, std::vector<Committed> const& committed);
    // The one place where a sequence ends: frees its slot and pages, and prepares the last update.
    void end(Sequence& sequence, FinishReason reason, Error const* error = nullptr);
    void scrub(std::vector<int32_t> const& pages);
    void failRows(std::vector<PlanRow> const& plan, Error const& error);
    std::unique_ptr<RequestResult> makeResult(Sequence& sequence, FinishReason reason, Error const* error) const;

    StepEngine& engine_;
    bool usesPrefixCache_;
    Scheduler scheduler_;
    DraftPolicy policy_;
    std::optional<DraftChoice> choice_;  // of the next step, where it is made already
    Lookahead lookahead_;
    Committer committer_;
    Intake intake_;
    std::unordered_map<RequestId, std::unique_ptr<Sequence>> sequences_;  // that run or wait
    StepInputs inputs_;
    StepOutputs outputs_;
    std::vector<int64_t> offered_;  // of one step, per position
    std::vector<int64_t> accepted_;
    std::vector<News> news_;
    std::vector<int32_t> newsIds_;
    std::vector<float> newsLogprobs_;
    std::vector<RequestId> unwanted_;  // whose callback threw
    mutable std::mutex statsMutex_;
    RuntimeStats stats_;
};

}  // namespace hspec_trt

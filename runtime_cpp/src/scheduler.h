// SPDX-License-Identifier: Apache-2.0
// Which rows a step runs, with how many tokens and drafts (hspec_trt/runtime/scheduler.py): admission, chunked prefill,
// preemption. Every sequence that decodes gets a row in every step; what is left of the token budget goes to prompts,
// in the order of the queue.
#pragma once

#include <cstdint>
#include <map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "hspec_trt/runtime/runtime.h"
#include "pages.h"
#include "prefix.h"
#include "sequence.h"
#include "table.h"

namespace hspec_trt {

struct PlanRow {
    int32_t slot;
    int32_t queryLen;   // tokens to run, drafts included
    int32_t numDrafts;  // drafts among them
    int32_t verifyLen;  // drafts + 1, or 0 in mid-prefill
    bool draft;         // the drafter drafts for the row
    bool bare;          // a decode row that could have carried drafts and carries none, with `reason` why
    NoDrafts reason;
};

class Scheduler {
  public:
    // eosIds: the model's end tokens.
    Scheduler(Limits const& limits, int32_t numPages, SchedulerOptions const& options,
              std::unordered_set<int32_t> eosIds);

    Limits const& limits() const { return limits_; }
    // Packed tokens of a step at most.
    int32_t maxTokens() const { return maxTokens_; }
    PageAllocator& allocator() { return allocator_; }
    PrefixCache& cache() { return cache_; }
    SlotTable& table() { return table_; }
    std::vector<Sequence*> const& running() const { return running_; }
    std::vector<Sequence*> waiting() const;
    bool hasWaiting() const { return !waiting_.empty(); }
    bool isIdle() const { return running_.empty() && waiting_.empty(); }
    // Tokens that one request can reach: maxSeqLen, or what the whole pool holds.
    int32_t longest() const;

    // Put a sequence in the line.
    void add(Sequence& sequence);
    // Take a sequence that ended while it waited out of the line.
    void dropWaiting(Sequence& sequence);
    // Take a running sequence off its slot; returns its pages, which the caller gives back with `release`.
    std::vector<int32_t> remove(Sequence& sequence);
    // Give pages back. A sequence's last page is the first to be used again.
    void release(std::vector<int32_t> const& pages);

    // Give running rows pages for contexts of these lengths; false, and nothing given, where there are too few.
    bool reserve(std::vector<PlanRow> const& rows, std::vector<int32_t> const& ends);

    // Choose the rows of the next step and give them their pages; empty where there is nothing to run.
    // autoDrafts: drafts that a row with Drafting::kAuto may carry in this step. draftNext: whether such a row is
    // drafted for, for the step after. `now`: seconds, for the timing of those that start.
    std::vector<PlanRow> const& plan(int32_t autoDrafts, bool draftNext, double now);

  private:
    // What a running sequence gets of a step; the entries of `shares_` go with those of `running_`.
    struct Share {
        int32_t query = 0;  // 0: not in this step
        int32_t drafts = 0;
        NoDrafts reason = NoDrafts::kOff;
        int32_t pages = 0;  // to allocate
    };

    void admit(double now);
    bool fits(Sequence const& sequence);
    void start(Sequence& sequence, double now);
    void preempt(Sequence& sequence);
    void shareTokens(int32_t autoDrafts, int32_t most);
    int64_t countPages();
    void givePages();
    void givePages(int32_t slot, int32_t count);
    void finishPlan(bool draftNext);
    bool anyDrafts() const;

    Limits limits_;
    SchedulerOptions options_;
    std::unordered_set<int32_t> eosIds_;
    int32_t maxTokens_;
    int32_t maxChunk_;
    PageAllocator allocator_;
    PrefixCache cache_;
    SlotTable table_;
    std::vector<Sequence*> running_;
    std::map<std::pair<int64_t, int64_t>, Sequence*> waiting_;
    int32_t blockedAt_ = -1;  // pages that were available when the head of the line did not fit
    std::vector<Share> shares_;
    std::vector<int32_t> allowed_;  // drafts that each running row may carry; scratch of `shareTokens`
    std::vector<PlanRow> plan_;
};

}  // namespace hspec_trt

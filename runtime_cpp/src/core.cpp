// SPDX-License-Identifier: Apache-2.0
#include "core.h"

#include <algorithm>
#include <chrono>
#include <string>
#include <utility>

#include "hspec_trt/contract_gen.h"
#include "packing.h"

namespace hspec_trt {
namespace {

std::unordered_set<int32_t> setOf(std::vector<int32_t> const& ids) {
    return {ids.begin(), ids.end()};
}

Error nonFinite(Sequence const& sequence, int32_t position) {
    return Error(Fault{"R301", "non-finite target logits at position " + std::to_string(position), "",
                       "request " + std::to_string(sequence.number) + " ended, engine healthy"});
}

}  // namespace

double now() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

EngineCore::EngineCore(StepEngine& engine, RuntimeOptions const& options)
    : engine_(engine),
      usesPrefixCache_(options.scheduler.prefixCache),
      scheduler_(engine.limits(), engine.numPages(), options.scheduler, setOf(options.eosIds)),
      policy_(engine.limits().numDrafts, engine.limits().hasDrafter),
      lookahead_(engine, scheduler_),
      committer_(scheduler_.table(), setOf(options.eosIds)),
      intake_(engine.limits(), scheduler_.longest(), setOf(options.eosIds), options.codec) {}

void EngineCore::add(std::unique_ptr<Sequence> sequence) {
    Sequence& added = *sequence;
    sequences_.emplace(added.number, std::move(sequence));
    scheduler_.add(added);
}

void EngineCore::cancel(RequestId id) {
    auto const found = sequences_.find(id);
    if (found != sequences_.end()) {
        end(*found->second, FinishReason::kCancelled);
    }
}

void EngineCore::failAll(Error const& error) {
    std::vector<Sequence*> all = scheduler_.running();
    std::vector<Sequence*> const waiting = scheduler_.waiting();
    all.insert(all.end(), waiting.begin(), waiting.end());
    for (Sequence* sequence : all) {
        end(*sequence, FinishReason::kError, &error);
    }
}

bool EngineCore::step() {
    for (RequestId id : std::exchange(unwanted_, {})) {
        cancel(id);
    }
    ShapedStep shaped;
    bool const isTaken = lookahead_.take();
    std::vector<PlanRow> const& plan = isTaken ? lookahead_.plan() : planStep(shaped);
    if (plan.empty()) {
        deliver();
        return false;
    }
    try {
        runEngine(plan, isTaken);
    } catch (Error const& error) {
        lookahead_.drop();
        engine_.drop();
        failRows(plan, error);
        return true;
    }
    std::vector<Committed> const& committed = committer_.commit(plan, outputs_);
    observe(plan, committed);
    enterPages(plan);
    takeTops(shaped, plan, scheduler_.table(), outputs_, committed);
    tell(plan, committed);
    return true;
}

// The next step's rows and what they want of their logits; answers whose grammar gives up end here.
std::vector<PlanRow> const& EngineCore::planStep(ShapedStep& shaped) {
    DraftChoice const choice = choose();
    while (true) {
        std::vector<PlanRow> const& plan = scheduler_.plan(choice.verify, choice.draft, now());
        shaped = shapeStep(plan, scheduler_.table(), inputs_.extras);
        if (shaped.failed.empty()) {
            return plan;
        }
        for (auto const& [sequence, error] : shaped.failed) {
            end(*sequence, FinishReason::kError, &error);
        }
    }
}

DraftChoice EngineCore::choose() {
    std::optional<DraftChoice> const made = std::exchange(choice_, std::nullopt);
    return made ? *made : policy_.choose(static_cast<int32_t>(scheduler_.running().size()));
}

void EngineCore::lookAhead(std::vector<PlanRow> const& plan, bool isTaken) {
    if (!lookahead_.canFollow(plan, isTaken)) {
        return;
    }
    DraftChoice const choice = choose();
    bool const isFull = choice.draft && choice.verify >= engine_.limits().numDrafts;
    bool const anyAuto = std::any_of(plan.begin(), plan.end(), [this](PlanRow const& row) {
        return scheduler_.table()[row.slot].mode == Drafting::kAuto;
    });
    if ((anyAuto && !isFull) || !lookahead_.follow(plan)) {
        choice_ = choice;
        return;
    }
    std::lock_guard<std::mutex> const lock(statsMutex_);
    ++stats_.followedSteps;
}

void EngineCore::runEngine(std::vector<PlanRow> const& plan, bool isTaken) {
    if (!isTaken) {
        pack(plan, scheduler_.table(), inputs_);
        engine_.launch(inputs_);
    }
    lookAhead(plan, isTaken);
    deliver();
    engine_.finish(outputs_);
    if (isTaken) {
        lookahead_.keepRows(outputs_);
    }
}

void EngineCore::observe(std::vector<PlanRow> const& plan, std::vector<Committed> const& committed) {
    offered_.assign(static_cast<std::size_t>(engine_.limits().numDrafts), 0);
    accepted_.assign(offered_.size(), 0);
    StepSize size{0, 0, 0, 0};
    int64_t newTokens = 0;
    for (std::size_t r = 0; r < plan.size(); ++r) {
        PlanRow const& row = plan[r];
        for (int32_t j = 0; j < row.numDrafts; ++j) {
            ++offered_[static_cast<std::size_t>(j)];
        }
        for (int32_t j = 0; j < committed[r].accepted; ++j) {
            ++accepted_[static_cast<std::size_t>(j)];
        }
        size.rows += row.verifyLen > 0 ? 1 : 0;
        size.drafts += row.numDrafts;
        size.drafted += row.draft ? 1 : 0;
        size.promptTokens += row.queryLen - row.verifyLen;
        newTokens += committed[r].kept;
    }
    if (size.drafts > 0) {
        policy_.observeAcceptance(offered_, accepted_);
    }
    policy_.observeStep(size, outputs_.seconds);
    std::lock_guard<std::mutex> const lock(statsMutex_);
    ++stats_.steps;
    stats_.stepSeconds += outputs_.seconds;
    stats_.promptTokens += size.promptTokens;
    stats_.newTokens += newTokens;
}

// Full pages become findable once a finite row has read them.
void EngineCore::enterPages(std::vector<PlanRow> const& plan) {
    SlotTable& table = scheduler_.table();
    for (std::size_t r = 0; usesPrefixCache_ && r < plan.size(); ++r) {
        Slot& slot = table[plan[r].slot];
        if (slot.context / table.limits().pageSize <= slot.entered || plan[r].verifyLen == 0 ||
            outputs_.finite[r] == 0) {
            continue;
        }
        PrefixChain& chain = slot.sequence->chain;
        int32_t const* const tokens = table.tokens(plan[r].slot);
        scheduler_.cache().enter(chain, tokens, static_cast<std::size_t>(slot.context), table.pages(plan[r].slot));
        slot.entered = chain.numPages;
    }
}

void EngineCore::tell(std::vector<PlanRow> const& plan, std::vector<Committed> const& committed) {
    SlotTable& table = scheduler_.table();
    for (std::size_t r = 0; r < plan.size(); ++r) {
        Slot const& slot = table[plan[r].slot];
        int32_t const kept = committed[r].kept;
        if (kept == 0) {
            continue;
        }
        Sequence& sequence = *slot.sequence;
        if (sequence.timing.firstToken == 0.0) {
            sequence.timing.firstToken = now();
        }
        if (slot.streaming && !committed[r].ending) {
            int32_t const first = slot.known - kept;
            int32_t const* const ids = table.tokens(plan[r].slot) + first;
            float const* const logprobs = table.logprobs(plan[r].slot) + first;
            news_.push_back({&sequence, newsIds_.size(), static_cast<std::size_t>(kept), nullptr, nullptr});
            newsIds_.insert(newsIds_.end(), ids, ids + kept);
            newsLogprobs_.insert(newsLogprobs_.end(), logprobs, logprobs + kept);
            sequence.told += kept;
        }
    }
    for (std::size_t r = 0; r < plan.size(); ++r) {
        if (!committed[r].ending) {
            continue;
        }
        Slot const& slot = table[plan[r].slot];
        Sequence& sequence = *slot.sequence;
        if (*committed[r].ending == FinishReason::kError) {
            Error const error = nonFinite(sequence, slot.known);
            end(sequence, FinishReason::kError, &error);
        } else {
            end(sequence, *committed[r].ending);
        }
    }
}

void EngineCore::end(Sequence& sequence, FinishReason reason, Error const* error) {
    if (sequence.slot == kNoSlot) {
        scheduler_.dropWaiting(sequence);
    } else {
        std::vector<int32_t> const pages = scheduler_.remove(sequence);
        if (error != nullptr) {
            scrub(pages);
        }
        scheduler_.release(pages);
    }
    sequence.timing.finished = now();
    auto const place = sequences_.find(sequence.number);
    std::unique_ptr<Sequence> ended = std::move(place->second);
    sequences_.erase(place);
    {
        std::lock_guard<std::mutex> const lock(statsMutex_);
        ++stats_.finished[reason];
        stats_.cachedTokens += sequence.timing.cachedTokens;
        stats_.preemptions += sequence.timing.preemptions;
        stats_.drafts.add(sequence.drafts);
    }
    std::unique_ptr<RequestResult> result = makeResult(sequence, reason, error);
    news_.push_back({&sequence, 0, 0, std::move(ended), std::move(result)});
}

std::unique_ptr<RequestResult> EngineCore::makeResult(Sequence& sequence, FinishReason reason,
                                                      Error const* error) const {
    auto made = std::make_unique<RequestResult>();
    made->id = sequence.number;
    made->tokenIds.assign(sequence.tokens.begin() + sequence.promptLen, sequence.tokens.end());
    made->logprobs = std::move(sequence.logprobs);
    made->topLogprobs = std::move(sequence.shaper.tops);
    made->finishReason = reason;
    if (error != nullptr) {
        made->error = *error;
    }
    made->drafts = std::move(sequence.drafts);
    made->timing = sequence.timing;
    return made;
}

void EngineCore::deliver() {
    for (News& one : news_) {
        Update update;
        update.id = one.sequence->number;
        if (one.result != nullptr) {
            auto const told = static_cast<std::size_t>(one.sequence->told);
            update.tokenIds = one.result->tokenIds.data() + told;
            update.logprobs = one.result->logprobs.data() + told;
            update.numTokens = one.result->tokenIds.size() - told;
            update.result = one.result.get();
        } else {
            update.tokenIds = newsIds_.data() + one.first;
            update.logprobs = newsLogprobs_.data() + one.first;
            update.numTokens = one.count;
        }
        try {
            one.sequence->callback(update);
        } catch (...) {  // whatever a caller's code throws must not end the other requests
            unwanted_.push_back(update.id);
        }
    }
    news_.clear();
    newsIds_.clear();
    newsLogprobs_.clear();
}

// Zero what a failed row may have written: its own pages and the null page, never those found good.
void EngineCore::scrub(std::vector<int32_t> const& pages) {
    std::vector<int32_t> own = {contract::kNullPage};
    for (int32_t page : pages) {
        if (!scheduler_.allocator().isKept(page)) {
            own.push_back(page);
        }
    }
    engine_.scrub(own);
}

void EngineCore::failRows(std::vector<PlanRow> const& plan, Error const& error) {
    {
        std::lock_guard<std::mutex> const lock(statsMutex_);
        ++stats_.failedSteps;
    }
    for (PlanRow const& row : plan) {
        end(*scheduler_.table()[row.slot].sequence, FinishReason::kError, &error);
    }
}

RuntimeStats EngineCore::stats() const {
    std::lock_guard<std::mutex> const lock(statsMutex_);
    return stats_;
}

}  // namespace hspec_trt

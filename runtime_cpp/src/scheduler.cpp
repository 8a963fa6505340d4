// SPDX-License-Identifier: Apache-2.0
#include "scheduler.h"

#include <algorithm>

namespace hspec_trt {
namespace {

int32_t numSlots(Limits const& limits, SchedulerOptions const& options) {
    return std::min(options.maxBatchSize.value_or(limits.maxRows), limits.maxRows);
}

int32_t ceilDiv(int32_t tokens, int32_t pageSize) {
    return (tokens + pageSize - 1) / pageSize;
}

// The largest equal number of drafts a row that fits the room.
int32_t fitDrafts(std::vector<int32_t> const& allowed, int32_t room) {
    int32_t most = *std::max_element(allowed.begin(), allowed.end());
    auto const total = [&] {
        int64_t sum = 0;
        for (int32_t drafts : allowed) {
            sum += std::min(drafts, most);
        }
        return sum;
    };
    while (most > 0 && total() > room) {
        --most;
    }
    return most;
}

}  // namespace

Scheduler::Scheduler(Limits const& limits, int32_t numPages, SchedulerOptions const& options,
                     std::unordered_set<int32_t> eosIds)
    : limits_(limits),
      options_(options),
      eosIds_(std::move(eosIds)),
      maxTokens_(std::max(std::min(options.maxNumTokens.value_or(limits.maxTokens), limits.maxTokens),
                          numSlots(limits, options))),
      maxChunk_(options.maxChunk.value_or(maxTokens_)),
      allocator_(numPages),
      cache_(allocator_, limits.pageSize, limits.cacheLookahead),
      table_(limits, numSlots(limits, options)) {}

std::vector<Sequence*> Scheduler::waiting() const {
    std::vector<Sequence*> all;
    for (auto const& [place, sequence] : waiting_) {
        all.push_back(sequence);
    }
    return all;
}

int32_t Scheduler::longest() const {
    int64_t const held = static_cast<int64_t>(allocator_.numPages() - 1) * limits_.pageSize;
    return static_cast<int32_t>(std::min<int64_t>(limits_.maxSeqLen, held));
}

void Scheduler::add(Sequence& sequence) {
    waiting_.emplace(sequence.place(), &sequence);
    blockedAt_ = -1;
}

void Scheduler::dropWaiting(Sequence& sequence) {
    waiting_.erase(sequence.place());
    blockedAt_ = -1;
}

std::vector<int32_t> Scheduler::remove(Sequence& sequence) {
    running_.erase(std::find(running_.begin(), running_.end(), &sequence));
    blockedAt_ = -1;
    return table_.moveOut(sequence);
}

void Scheduler::release(std::vector<int32_t> const& pages) {
    for (auto page = pages.rbegin(); page != pages.rend(); ++page) {
        allocator_.release(*page);
    }
}

bool Scheduler::reserve(std::vector<PlanRow> const& rows, std::vector<int32_t> const& ends) {
    int64_t total = 0;
    for (std::size_t r = 0; r < rows.size(); ++r) {
        total += std::max(ceilDiv(ends[r], limits_.pageSize) - table_[rows[r].slot].numPages, 0);
    }
    if (total > allocator_.available()) {
        return false;
    }
    for (std::size_t r = 0; r < rows.size(); ++r) {
        givePages(rows[r].slot, ceilDiv(ends[r], limits_.pageSize) - table_[rows[r].slot].numPages);
    }
    return true;
}

std::vector<PlanRow> const& Scheduler::plan(int32_t autoDrafts, bool draftNext, double now) {
    plan_.clear();
    admit(now);
    int32_t most = limits_.numDrafts;
    while (!running_.empty()) {
        shareTokens(std::min(autoDrafts, most), most);
        if (countPages() <= allocator_.available()) {
            givePages();
            finishPlan(draftNext);
            break;
        }
        if (most > 0 && anyDrafts()) {
            most = 0;
        } else {
            preempt(*running_.back());
        }
    }
    return plan_;
}

void Scheduler::admit(double now) {
    while (!waiting_.empty() && table_.hasFreeSlot()) {
        Sequence& sequence = *waiting_.begin()->second;
        if (!fits(sequence)) {
            return;
        }
        waiting_.erase(waiting_.begin());
        start(sequence, now);
    }
}

// Whether the pages for all its tokens are there, beyond those that running rows still need for theirs.
bool Scheduler::fits(Sequence const& sequence) {
    int32_t const available = allocator_.available();
    if (running_.empty()) {
        return true;
    }
    if (available <= blockedAt_) {
        return false;
    }
    int64_t hits = 0;
    int64_t idleHits = 0;
    if (options_.prefixCache) {
        for (int32_t page : cache_.find(sequence.tokens).pages) {
            ++hits;
            idleHits += allocator_.owners(page) == 0 ? 1 : 0;
        }
    }
    int64_t promised = 0;
    for (Sequence const* one : running_) {
        Slot const& slot = table_[one->slot];
        promised += std::max(ceilDiv(slot.known + 1, limits_.pageSize) - slot.numPages, 0);
    }
    int64_t const needed = static_cast<int64_t>(sequence.tokens.size()) / limits_.pageSize + 1 - hits;
    bool const isRoom = needed + static_cast<int64_t>(running_.size()) <= available - idleHits - promised;
    blockedAt_ = isRoom ? -1 : available;
    return isRoom;
}

void Scheduler::start(Sequence& sequence, double now) {
    if (sequence.timing.scheduled == 0.0) {
        sequence.timing.scheduled = now;
    }
    PrefixHit hit;
    if (options_.prefixCache) {
        hit = cache_.match(sequence.tokens);
        sequence.timing.cachedTokens += static_cast<int64_t>(hit.pages.size()) * limits_.pageSize;
    }
    sequence.chain = hit.chain;
    bool const plain = !sequence.text && sequence.rules.stopIds.empty() && sequence.rules.eosIds == eosIds_;
    table_.moveIn(sequence, hit.pages, plain);
    auto const later = [](Sequence const* left, Sequence const* right) { return left->place() < right->place(); };
    running_.insert(std::upper_bound(running_.begin(), running_.end(), &sequence, later), &sequence);
    blockedAt_ = -1;
}

// Take all pages from a sequence and let it wait; what it said is kept, and computed again later.
void Scheduler::preempt(Sequence& sequence) {
    release(remove(sequence));
    ++sequence.timing.preemptions;
    add(sequence);
}

void Scheduler::shareTokens(int32_t autoDrafts, int32_t most) {
    shares_.assign(running_.size(), {});
    allowed_.assign(running_.size(), 0);
    int32_t numDecode = 0;
    int64_t promptTokens = 0;
    NoDrafts const lost = most == limits_.numDrafts ? NoDrafts::kPolicy : NoDrafts::kPages;
    for (std::size_t i = 0; i < running_.size(); ++i) {
        Slot const& slot = table_[running_[i]->slot];
        Share& share = shares_[i];
        share.reason = slot.noDrafts;
        int32_t const need = slot.known - slot.context;
        if (need == 1) {
            ++numDecode;
            allowed_[i] = std::min(slot.numDrafts, slot.mode == Drafting::kAuto ? autoDrafts : most);
            if (slot.numDrafts > 0 && allowed_[i] == 0) {
                share.reason = lost;
            }
        } else {
            share.query = std::min(need, maxChunk_);
            promptTokens += share.query;
        }
    }
    int32_t const room = maxTokens_ - numDecode;
    int32_t const forPrompts = static_cast<int32_t>(std::min<int64_t>(promptTokens, room / 2));
    int32_t const width = fitDrafts(allowed_, room - forPrompts);
    int32_t left = room;
    for (std::size_t i = 0; i < running_.size(); ++i) {
        Share& share = shares_[i];
        share.drafts = std::min(allowed_[i], width);
        left -= share.drafts;
        if (allowed_[i] > 0 && share.drafts == 0) {
            share.reason = NoDrafts::kBudget;
        }
    }
    for (std::size_t i = 0; i < running_.size(); ++i) {
        Share& share = shares_[i];
        if (share.query == 0) {
            share.query = 1 + share.drafts;
        } else {
            share.query = std::min(share.query, left);
            left -= share.query;
        }
    }
}

int64_t Scheduler::countPages() {
    int64_t total = 0;
    for (std::size_t i = 0; i < running_.size(); ++i) {
        Slot const& slot = table_[running_[i]->slot];
        Share& share = shares_[i];
        int32_t const end = share.query > 0 ? slot.context + share.query : 0;
        share.pages = std::max(ceilDiv(end, limits_.pageSize) - slot.numPages, 0);
        total += share.pages;
    }
    return total;
}

void Scheduler::givePages() {
    for (std::size_t i = 0; i < running_.size(); ++i) {
        givePages(running_[i]->slot, shares_[i].pages);
    }
}

void Scheduler::givePages(int32_t slot, int32_t count) {
    int32_t* const pages = table_.pages(slot);
    for (int32_t& held = table_[slot].numPages; count > 0; --count) {
        pages[held++] = allocator_.allocate();
    }
}

void Scheduler::finishPlan(bool draftNext) {
    for (std::size_t i = 0; i < running_.size(); ++i) {
        Share const& share = shares_[i];
        if (share.query == 0) {
            continue;
        }
        Slot const& slot = table_[running_[i]->slot];
        bool const isLast = slot.context + share.query - share.drafts == slot.known;
        bool const isWanted = slot.mode == Drafting::kOn || (slot.mode == Drafting::kAuto && draftNext);
        bool const isRoom = slot.end - slot.known >= 3 && slot.known + 1 < limits_.draftMaxPosition;
        PlanRow row{};
        row.slot = running_[i]->slot;
        row.queryLen = share.query;
        row.numDrafts = share.drafts;
        row.verifyLen = isLast ? share.drafts + 1 : 0;
        row.draft = isLast && slot.drafter && isWanted && isRoom;
        row.bare = slot.known - slot.context == 1 && share.drafts == 0;
        row.reason = share.reason;
        plan_.push_back(row);
    }
}

bool Scheduler::anyDrafts() const {
    return std::any_of(shares_.begin(), shares_.end(), [](Share const& share) { return share.drafts > 0; });
}

}  // namespace hspec_trt

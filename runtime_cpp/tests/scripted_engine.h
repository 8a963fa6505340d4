// SPDX-License-Identifier: Apache-2.0
// An engine that computes: the next token is a function of the whole context, read through the page table, and of the
// seed. So a wrong page, a stale token or a mixed-up row changes the text. Its drafter is right for as many drafts as a
// hash says.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <stdexcept>
#include <utility>
#include <vector>

#include "hspec_trt/runtime/error.h"
#include "hspec_trt/runtime/step.h"
#include "step_checks.h"

namespace hspec_trt::tests {

inline uint64_t mix(uint64_t hash, uint64_t value) {
    hash = (hash ^ value) * 0x9E3779B97F4A7C15U;
    return hash ^ (hash >> 29U);
}

// The token after a context.
inline int32_t nextToken(std::vector<int32_t> const& context, int64_t seed, int32_t vocabSize) {
    uint64_t hash = static_cast<uint64_t>(seed);
    for (int32_t token : context) {
        hash = mix(hash, static_cast<uint64_t>(token));
    }
    return static_cast<int32_t>(hash % static_cast<uint64_t>(vocabSize));
}

class ScriptedEngine : public StepEngine {
  public:
    // failEvery, nonFiniteEvery: every so many steps, the step raises or its first row is not finite; 0 is never.
    ScriptedEngine(Limits limits, int32_t numPages, int64_t failEvery = 0, int64_t nonFiniteEvery = 0)
        : limits_(limits),
          numPages_(numPages),
          failEvery_(failEvery),
          nonFiniteEvery_(nonFiniteEvery),
          pages_(static_cast<std::size_t>(numPages) * static_cast<std::size_t>(limits.pageSize), -1) {}

    Limits const& limits() const override { return limits_; }
    int32_t numPages() const override { return numPages_; }

    void launch(StepInputs const& inputs) override {
        checkStep(inputs, limits_, numPages_);
        startStep();
        started_.push_back({inputs, false});
        isFollowable_ = limits_.extensions.feedback && canBeFollowed(inputs);
    }

    bool canFollow() const override { return isFollowable_; }

    void follow(std::vector<int32_t> const& pageTable, int32_t pagesPerRow,
                std::vector<int32_t> const& mostContext) override {
        startStep();
        StepInputs next;
        next.pageTable = pageTable;
        next.pagesPerRow = pagesPerRow;
        next.contextLens = mostContext;
        started_.push_back({std::move(next), true});
    }

    void finish(StepOutputs& outputs) override {
        if (done_.empty()) {
            runOne();
        }
        outputs = std::move(done_.front());
        done_.pop_front();
    }

    // The steps run all the same, as on a device.
    void drop() override {
        runAll();
        done_.clear();
        isFollowable_ = false;
    }

    void scrub(std::vector<int32_t> const& pages) override {
        runAll();
        for (int32_t page : pages) {
            std::fill_n(pages_.begin() + static_cast<std::ptrdiff_t>(page) * limits_.pageSize, limits_.pageSize, -1);
        }
    }

  private:
    struct Started {
        StepInputs inputs;  // of one that follows: its pages, and the most that its contexts can be
        bool follows;
    };

    void startStep() {
        isFollowable_ = isFollowable_ && started_.size() + done_.size() < 2;
        if (failEvery_ != 0 && ++launches_ % failEvery_ == 0) {
            throw Error(Fault{"R302", "the scripted engine fails at this step"});
        }
    }

    void runAll() {
        while (!started_.empty()) {
            runOne();
        }
    }

    void runOne() {
        Started const one = std::move(started_.front());
        started_.pop_front();
        if (one.follows) {
            goOn(one.inputs);
        } else {
            inputs_ = one.inputs;
        }
        ++steps_;
        run(last_);
        done_.push_back(last_);
    }

    // The inputs of the step after the last one that ran, from its outputs.
    void goOn(StepInputs const& given) {
        auto const rows = static_cast<std::size_t>(inputs_.numRows);
        int32_t const width = limits_.numDrafts + 1;
        StepInputs next = inputs_;
        next.inputIds.clear();
        next.querySlots.clear();
        for (std::size_t row = 0; row < rows; ++row) {
            int32_t const queryLen = inputs_.cuQueryLens[row + 1] - inputs_.cuQueryLens[row];
            int32_t const verifyLen = inputs_.cuVerifyLens[row + 1] - inputs_.cuVerifyLens[row];
            next.contextLens[row] += queryLen - verifyLen + last_.emittedLens[row];
            if (next.contextLens[row] > given.contextLens[row]) {
                throw std::logic_error("a context is longer than it can be");
            }
            auto const at = static_cast<std::ptrdiff_t>(row) * width;
            next.inputIds.push_back(last_.emittedIds[static_cast<std::size_t>(at + last_.emittedLens[row] - 1)]);
            auto const drafts = last_.draftIds.begin() + static_cast<std::ptrdiff_t>(row) * (width - 1);
            next.inputIds.insert(next.inputIds.end(), drafts, drafts + width - 1);
        }
        for (int32_t packed = 0; packed < inputs_.numRows * width; ++packed) {
            next.querySlots.push_back(packed);
        }
        for (std::size_t row = 0; row <= rows; ++row) {
            next.cuQueryLens[row] = next.cuVerifyLens[row] = static_cast<int32_t>(row) * width;
        }
        next.verifyRows = next.querySlots;
        next.longestQuery = width;
        next.pageTable = given.pageTable;
        next.pagesPerRow = given.pagesPerRow;
        checkStep(next, limits_, numPages_);
        inputs_ = std::move(next);
    }

    void run(StepOutputs& outputs) {
        auto const rows = static_cast<std::size_t>(inputs_.numRows);
        auto const width = static_cast<std::size_t>(limits_.numDrafts) + 1;
        outputs.emittedIds.assign(rows * width, -1);
        outputs.emittedLens.assign(rows, 0);
        outputs.emittedLogprobs.assign(rows * width, 0.0F);
        outputs.draftIds.assign(inputs_.draftRows.size() * (width - 1), 0);
        outputs.finite.assign(rows, 1);
        outputs.seconds = 1e-3;
        for (std::size_t row = 0; row < rows; ++row) {
            append(row);
        }
        for (std::size_t row = 0; row < rows; ++row) {
            verify(row, outputs);
        }
        if (nonFiniteEvery_ != 0 && steps_ % nonFiniteEvery_ == 0) {
            outputs.finite[0] = 0;
        }
        for (std::size_t line = 0; line < inputs_.draftRows.size(); ++line) {
            draft(static_cast<std::size_t>(inputs_.draftRows[line]), outputs, line);
        }
    }

    int32_t& cell(std::size_t row, int32_t position) {
        auto const column = static_cast<std::size_t>(position / limits_.pageSize);
        int32_t const page = inputs_.pageTable[row * static_cast<std::size_t>(inputs_.pagesPerRow) + column];
        return pages_[static_cast<std::size_t>(page * limits_.pageSize + position % limits_.pageSize)];
    }

    void append(std::size_t row) {
        int32_t position = inputs_.contextLens[row];
        for (int32_t packed = inputs_.cuQueryLens[row]; packed < inputs_.cuQueryLens[row + 1]; ++packed) {
            cell(row, position++) = inputs_.inputIds[static_cast<std::size_t>(packed)];
        }
    }

    std::vector<int32_t> context(std::size_t row, int32_t size) {
        std::vector<int32_t> made;
        for (int32_t position = 0; position < size; ++position) {
            made.push_back(cell(row, position));
        }
        return made;
    }

    void verify(std::size_t row, StepOutputs& outputs) {
        auto const width = static_cast<std::size_t>(limits_.numDrafts) + 1;
        for (int32_t cellNumber = inputs_.cuVerifyLens[row]; cellNumber < inputs_.cuVerifyLens[row + 1]; ++cellNumber) {
            int32_t const packed = inputs_.verifyRows[static_cast<std::size_t>(cellNumber)];
            int32_t const size = inputs_.contextLens[row] + packed - inputs_.cuQueryLens[row] + 1;
            int32_t const token = nextToken(context(row, size), inputs_.seed[row], limits_.vocabSize);
            std::size_t const place = row * width + static_cast<std::size_t>(outputs.emittedLens[row]++);
            outputs.emittedIds[place] = token;
            outputs.emittedLogprobs[place] = static_cast<float>(-token);
            bool const isLast = cellNumber + 1 == inputs_.cuVerifyLens[row + 1];
            if (isLast || inputs_.inputIds[static_cast<std::size_t>(packed) + 1] != token) {
                return;
            }
        }
    }

    void draft(std::size_t row, StepOutputs& outputs, std::size_t line) {
        auto const drafts = static_cast<std::size_t>(limits_.numDrafts);
        int32_t const verifyLen = inputs_.cuVerifyLens[row + 1] - inputs_.cuVerifyLens[row];
        int32_t const queryLen = inputs_.cuQueryLens[row + 1] - inputs_.cuQueryLens[row];
        std::vector<int32_t> text = context(row, inputs_.contextLens[row] + queryLen - verifyLen + 1);
        auto const* const emitted = outputs.emittedIds.data() + row * (drafts + 1);
        text.insert(text.end(), emitted, emitted + outputs.emittedLens[row]);
        std::size_t const right = mix(static_cast<uint64_t>(inputs_.seed[row]), text.size()) % (drafts + 1);
        for (std::size_t j = 0; j < drafts; ++j) {
            int32_t const token = nextToken(text, inputs_.seed[row], limits_.vocabSize);
            text.push_back(j < right ? token : (token + 1) % limits_.vocabSize);
            outputs.draftIds[line * drafts + j] = text.back();
        }
    }

    Limits limits_;
    int32_t numPages_;
    int64_t failEvery_;
    int64_t nonFiniteEvery_;
    int64_t launches_ = 0;
    int64_t steps_ = 0;
    bool isFollowable_ = false;
    std::deque<Started> started_;
    std::deque<StepOutputs> done_;
    StepOutputs last_;            // of the step that ran last
    std::vector<int32_t> pages_;  // [P, page_size]: the token of each place
    StepInputs inputs_;
};

}  // namespace hspec_trt::tests

// SPDX-License-Identifier: Apache-2.0
// Time of the runtime's own work per step: everything but the engine, at 1 to 128 decode rows. The engine here answers
// at once with drafts accepted at random, so what is measured is planning, packing, committing and telling, and the
// check of the step's arrays that every engine makes. Prints a JSON list; benchmarks/runtime_cpp_overhead.py makes a
// table of it. Usage: step_overhead [STEPS]
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "hspec_trt/runtime/runtime.h"
#include "step_checks.h"

namespace hspec_trt::benchmarks {
namespace {

constexpr int32_t kNumDrafts = 7;
constexpr int32_t kVocabSize = 32000;
constexpr int32_t kWarmUp = 20;

double clockSeconds() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Emits random tokens: 1 to G + 1 for a verify row, as many as its drafts allow.
class InstantEngine : public StepEngine {
  public:
    explicit InstantEngine(Limits const& limits, double& seconds) : limits_(limits), seconds_(seconds) {
        ids_.resize(static_cast<std::size_t>(limits.maxRows * (kNumDrafts + 1)));
        for (int32_t& id : ids_) {
            id = 10 + static_cast<int32_t>(random_() % (kVocabSize - 10));
        }
    }

    Limits const& limits() const override { return limits_; }
    int32_t numPages() const override { return limits_.maxRows * 300; }

    void launch(StepInputs const& inputs) override {
        checkStep(inputs, limits_, numPages());
        double const start = clockSeconds();
        auto const rows = static_cast<std::size_t>(inputs.numRows);
        lens_.resize(rows);
        for (std::size_t row = 0; row < rows; ++row) {
            int32_t const width = inputs.cuVerifyLens[row + 1] - inputs.cuVerifyLens[row];
            lens_[row] = std::min(1 + static_cast<int32_t>(random_() % (kNumDrafts + 1)), width);
        }
        numDrafted_ = inputs.draftRows.size();
        seconds_ += clockSeconds() - start;
    }

    void finish(StepOutputs& outputs) override {
        double const start = clockSeconds();
        auto const width = static_cast<std::ptrdiff_t>(kNumDrafts + 1);
        outputs.emittedLens = lens_;
        outputs.emittedIds.assign(ids_.begin(), ids_.begin() + static_cast<std::ptrdiff_t>(lens_.size()) * width);
        outputs.emittedLogprobs.resize(outputs.emittedIds.size());
        outputs.draftIds.assign(ids_.begin(), ids_.begin() + static_cast<std::ptrdiff_t>(numDrafted_) * kNumDrafts);
        outputs.finite.assign(lens_.size(), 1);
        outputs.seconds = 1e-3;
        seconds_ += clockSeconds() - start;
    }

    void scrub(std::vector<int32_t> const&) override {}

  private:
    Limits limits_;
    double& seconds_;  // spent in the engine
    std::mt19937 random_{0};
    std::vector<int32_t> ids_;
    std::vector<int32_t> lens_;
    std::size_t numDrafted_ = 0;
};

struct Case {
    int32_t rows;
    int32_t waiting;
    bool streaming;
    Drafting drafts = Drafting::kOn;
};

Limits limitsFor(int32_t rows) {
    Limits made;
    made.vocabSize = kVocabSize;
    made.numDrafts = kNumDrafts;
    made.pageSize = 64;
    made.pageBytes = 1;
    made.maxRows = rows;
    made.maxTokens = 4096;
    made.maxSeqLen = 16384;
    made.hasDrafter = true;
    made.draftMaxPosition = 16384;
    return made;
}

// Microseconds of each step outside the engine.
std::vector<double> measure(Case const& one, int steps) {
    double inEngine = 0.0;
    int64_t told = 0;
    RuntimeOptions options;
    options.eosIds = {2};
    Runtime runtime(std::make_unique<InstantEngine>(limitsFor(one.rows), inEngine), options);
    for (int32_t i = 0; i < one.rows + one.waiting; ++i) {
        Request request;
        request.promptIds.assign(64, 5);
        request.params.temperature = 0.0;
        request.params.maxTokens = 16000;
        request.params.drafts = one.drafts;
        request.streaming = one.streaming;
        runtime.submit(std::move(request),
                       [&told](Update const& update) { told += static_cast<int64_t>(update.numTokens); });
    }
    std::vector<double> times;
    for (int step = 0; step < kWarmUp + steps; ++step) {
        double const before = inEngine;
        double const start = clockSeconds();
        runtime.step();
        if (step >= kWarmUp) {
            times.push_back(1e6 * (clockSeconds() - start - (inEngine - before)));
        }
    }
    std::sort(times.begin(), times.end());
    return times;
}

}  // namespace
}  // namespace hspec_trt::benchmarks

int main(int argc, char** argv) {
    using namespace hspec_trt::benchmarks;
    int const steps = argc > 1 ? std::atoi(argv[1]) : 1000;
    Case const cases[] = {{1, 0, false},
                          {8, 0, false},
                          {32, 0, false},
                          {128, 0, false},
                          {128, 10000, false},
                          {128, 0, true},
                          {128, 0, false, hspec_trt::Drafting::kAuto}};
    char const* separator = "[";
    for (Case const& one : cases) {
        std::vector<double> const times = measure(one, steps);
        char const* const drafts = one.drafts == hspec_trt::Drafting::kAuto ? "auto" : "on";
        std::printf(
            "%s{\"rows\": %d, \"waiting\": %d, \"streaming\": %s, \"drafts\": \"%s\", \"median_us\": %.2f, "
            "\"p90_us\": %.2f}",
            separator, one.rows, one.waiting, one.streaming ? "true" : "false", drafts, times[times.size() / 2],
            times[times.size() * 9 / 10]);
        separator = ",\n ";
    }
    std::printf("]\n");
    return 0;
}

// SPDX-License-Identifier: Apache-2.0
#include "drafting.h"

#include <algorithm>
#include <cstddef>
#include <functional>

namespace hspec_trt {
namespace {

constexpr double kMemory = 0.98;  // acceptance counts fade by this factor a step
constexpr double kPriorDrafts = 2.0;
constexpr double kPriorAcceptance = 0.6;
constexpr int64_t kFirstSteps = 2;    // steps with drafts, and without, that are measured before anything is compared
constexpr double kProbeShare = 0.02;  // share of the time that may go into probes
constexpr double kMaxProbeGap = 4096.0;

std::size_t at(int32_t index) {
    return static_cast<std::size_t>(index);
}

}  // namespace

DraftPolicy::DraftPolicy(int32_t numDrafts, bool hasDrafter)
    : numDrafts_(numDrafts),
      hasDrafter_(hasDrafter),
      costs_(numDrafts, hasDrafter),
      offered_(at(numDrafts), 0.0),
      accepted_(at(numDrafts), 0.0) {}

std::vector<double> DraftPolicy::acceptance() const {
    std::vector<double> shares(offered_.size());
    double share = kPriorAcceptance;
    double allBefore = 1.0;
    double offeredBefore = 0.0;
    for (std::size_t j = 0; j < shares.size(); ++j) {
        // Of the drafts offered here, those after an accepted one; a place with few leans on the one before it.
        double const reached = j == 0 ? offered_[j] : std::min(offered_[j], offeredBefore);
        share = (accepted_[j] + kPriorDrafts * share) / (reached + kPriorDrafts);
        allBefore *= share;
        offeredBefore = accepted_[j];
        shares[j] = allBefore;
    }
    return shares;
}

DraftChoice DraftPolicy::choose(int32_t rows) {
    if (numDrafts_ == 0 || rows == 0) {
        return {numDrafts_, hasDrafter_};
    }
    if (stepsWith_ < kFirstSteps) {
        return {numDrafts_, hasDrafter_};
    }
    if (stepsWithout_ < kFirstSteps) {
        return {0, false};
    }
    std::vector<double> const tokens = emitted();
    std::vector<double> rates = costs_.curve(rows);
    std::transform(tokens.begin(), tokens.end(), rates.begin(), rates.begin(), std::divides<>());
    auto chosen = static_cast<int32_t>(std::max_element(rates.begin(), rates.end()) - rates.begin());
    ++sinceProbe_;
    if (probeLeft_ > 0 || sinceProbe_ >= gap_) {
        chosen = probe(tokens, rates, chosen);
    }
    return {chosen, hasDrafter_ && chosen > 0};
}

void DraftPolicy::observeStep(StepSize const& step, double seconds) {
    stepsWith_ += step.drafts > 0 ? 1 : 0;
    stepsWithout_ += step.rows > 0 && step.drafts == 0 && step.drafted == 0 ? 1 : 0;
    costs_.observe(step, seconds);
}

void DraftPolicy::observeAcceptance(std::vector<int64_t> const& offered, std::vector<int64_t> const& accepted) {
    for (std::size_t j = 0; j < offered_.size(); ++j) {
        offered_[j] = kMemory * offered_[j] + static_cast<double>(offered[j]);
        accepted_[j] = kMemory * accepted_[j] + static_cast<double>(accepted[j]);
    }
}

std::vector<double> DraftPolicy::emitted() const {
    std::vector<double> made = {1.0};
    double sum = 0.0;
    for (double share : acceptance()) {
        sum += share;
        made.push_back(1.0 + sum);
    }
    return made;
}

// Two steps of another k: full width where drafting is off or narrow, none where it is wide. The gap to the next probe
// grows with what a probe costs, so that all of them stay within kProbeShare.
int32_t DraftPolicy::probe(std::vector<double> const& emitted, std::vector<double> const& rates, int32_t best) {
    int32_t const other = best < numDrafts_ ? numDrafts_ : 0;
    if (probeLeft_ == 0) {
        // In steps of the best k.
        double const lost = emitted[at(other)] * (rates[at(best)] / rates[at(other)] - 1.0) / emitted[at(best)];
        gap_ = static_cast<int32_t>(std::min(std::max(2.0 * lost / kProbeShare, 32.0), kMaxProbeGap));
        sinceProbe_ = 0;
        probeLeft_ = 2;
    }
    --probeLeft_;
    return other;
}

}  // namespace hspec_trt

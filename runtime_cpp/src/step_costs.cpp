// SPDX-License-Identifier: Apache-2.0
#include "step_costs.h"

#include <algorithm>
#include <cmath>

namespace hspec_trt {
namespace {

constexpr double kMemory = 0.998;  // a step counts this much less with every step after it
constexpr int64_t kFitGap = 8;     // steps between two fits
// Shrinks the cost of each feature, by so little that it decides only what the steps leave open. Tokens come first:
// while all steps are full, a token shall count as dear, or drafts would look free.
constexpr StepFeatures kTieBreaks = {1e-8, 1e-6, 1e-6, 1e-5, 1e-5};
constexpr double kLeast = 1e-30;    // a feature with less weight is worth a new look
constexpr double kWeight = 0.2;     // weight of a new step in a mean, at least
constexpr double kOutlier = 3.0;    // a step counts at most as this many times what was expected
constexpr double kShortest = 1e-9;  // seconds: no step counts as less

std::size_t at(int32_t index) {
    return static_cast<std::size_t>(index);
}

// Numbers of rows that are measured together: 1, 2, 3-4, 5-8, 9-16, ...
int32_t rowClass(int32_t rows) {
    int32_t bits = 0;
    for (int32_t rest = rows - 1; rest > 0; rest >>= 1) {
        ++bits;
    }
    return bits;
}

// Turns target into the x with matrix x = target, for a positive definite matrix, which is used up.
void solve(std::vector<std::vector<double>>& matrix, std::vector<double>& target) {
    std::size_t const size = target.size();
    for (std::size_t i = 0; i < size; ++i) {
        for (std::size_t row = i + 1; row < size; ++row) {
            double const factor = matrix[row][i] / matrix[i][i];
            for (std::size_t j = i + 1; j < size; ++j) {
                matrix[row][j] -= factor * matrix[i][j];
            }
            target[row] -= factor * target[i];
        }
    }
    for (std::size_t i = size; i-- > 0;) {
        for (std::size_t j = i + 1; j < size; ++j) {
            target[i] -= matrix[i][j] * target[j];
        }
        target[i] /= matrix[i][i];
    }
}

}  // namespace

StepFeatures StepSize::features() const {
    auto const tokens = static_cast<double>(rows + drafts);
    return {tokens, static_cast<double>(promptTokens), static_cast<double>(drafted), drafted > 0 ? 1.0 : 0.0, 1.0};
}

double CostFormula::seconds(StepFeatures const& features) const {
    double total = 0.0;
    for (std::size_t i = 0; i < kNumStepFeatures; ++i) {
        total += costs_[i] * features[i];
    }
    return total;
}

void CostFormula::observe(StepSize const& step, double seconds) {
    StepFeatures scaled = step.features();
    for (double& feature : scaled) {
        feature /= seconds;
    }
    for (std::size_t i = 0; i < kNumStepFeatures; ++i) {
        targets_[i] = kMemory * targets_[i] + scaled[i];
        for (std::size_t j = 0; j < kNumStepFeatures; ++j) {
            products_[i][j] = kMemory * products_[i][j] + scaled[i] * scaled[j];
        }
    }
    ++steps_;
    if (steps_ <= 2 * kFitGap || steps_ % kFitGap == 0) {
        fit();
    }
}

void CostFormula::fit() {
    costs_.fill(0.0);
    std::vector<std::size_t> used;
    for (std::size_t i = 0; i < kNumStepFeatures; ++i) {
        if (products_[i][i] > kLeast) {
            used.push_back(i);
        }
    }
    while (!used.empty()) {
        std::vector<std::vector<double>> matrix(used.size());
        std::vector<double> found(used.size());
        for (std::size_t i = 0; i < used.size(); ++i) {
            for (std::size_t j : used) {
                matrix[i].push_back(products_[used[i]][j] * (1.0 + (used[i] == j ? kTieBreaks[j] : 0.0)));
            }
            found[i] = targets_[used[i]];
        }
        solve(matrix, found);
        auto const lowest = std::min_element(found.begin(), found.end());
        if (*lowest >= 0.0) {
            for (std::size_t i = 0; i < used.size(); ++i) {
                costs_[used[i]] = found[i];
            }
            return;
        }
        used.erase(used.begin() + (lowest - found.begin()));
    }
}

void MeasuredCost::add(StepSize const& step, double seconds) {
    ++times_;
    double const weight = std::max(kWeight, 1.0 / static_cast<double>(times_));
    seconds_ += weight * (seconds - seconds_);
    StepFeatures const features = step.features();
    for (std::size_t i = 0; i < kNumStepFeatures; ++i) {
        features_[i] += weight * (features[i] - features_[i]);
    }
}

double MeasuredCost::correction(CostFormula const& formula) const {
    double const expected = formula.seconds(features_);
    auto const times = static_cast<double>(times_);
    return expected > 0.0 ? (times * seconds_ / expected + 1.0) / (times + 1.0) : 1.0;
}

void StepCosts::observe(StepSize const& step, double seconds) {
    double const expected = formula_.seconds(step.features());
    seconds = std::max(expected > 0.0 ? std::min(seconds, kOutlier * expected) : seconds, kShortest);
    formula_.observe(step, seconds);
    if (step.rows == 0 || step.promptTokens > 0) {
        return;
    }
    // Half to even, as Python's round.
    double const mean = std::nearbyint(static_cast<double>(step.drafts) / static_cast<double>(step.rows));
    int32_t const k = std::min(static_cast<int32_t>(mean), numDrafts_);
    if (step.drafted == stepOf(step.rows, k).drafted) {
        measured_[{rowClass(step.rows), k}].add(step, seconds);
    }
}

std::vector<double> StepCosts::curve(int32_t rows) const {
    std::vector<double> made = corrections(rows);
    for (std::size_t k = 0; k < made.size(); ++k) {
        double const expected = formula_.seconds(stepOf(rows, static_cast<int32_t>(k)).features());
        made[k] = std::max(expected * made[k], kShortest);
    }
    return made;
}

StepSize StepCosts::stepOf(int32_t rows, int32_t k) const {
    return {rows, rows * k, hasDrafter_ && k > 0 ? rows : 0, 0};
}

std::vector<double> StepCosts::corrections(int32_t rows) const {
    std::vector<double> made(at(numDrafts_) + 1, 1.0);
    int32_t last = -1;  // known k
    for (int32_t k = 0; k <= numDrafts_; ++k) {
        auto const found = measured_.find({rowClass(rows), k});
        if (found == measured_.end()) {
            made[at(k)] = last < 0 ? 1.0 : made[at(last)];
            continue;
        }
        made[at(k)] = found->second.correction(formula_);
        if (last < 0) {
            std::fill_n(made.begin(), k, made[at(k)]);
        } else {
            double const slope = (made[at(k)] - made[at(last)]) / static_cast<double>(k - last);
            for (int32_t between = last + 1; between < k; ++between) {
                made[at(between)] = slope * static_cast<double>(between - last) + made[at(last)];
            }
        }
        last = k;
    }
    return made;
}

}  // namespace hspec_trt

// SPDX-License-Identifier: Apache-2.0
#include "hspec_trt/runtime/request.h"

namespace hspec_trt {
namespace {

void addTo(std::vector<int64_t>& sums, std::vector<int64_t> const& counts) {
    if (sums.size() < counts.size()) {
        sums.resize(counts.size(), 0);
    }
    for (std::size_t i = 0; i < counts.size(); ++i) {
        sums[i] += counts[i];
    }
}

}  // namespace

char const* finishReasonName(FinishReason reason) {
    static constexpr char const* kNames[] = {"eos", "stop_token", "stop_string", "length", "cancelled", "error"};
    return kNames[static_cast<std::size_t>(reason)];
}

void DraftStats::add(DraftStats const& other) {
    steps += other.steps;
    emitted += other.emitted;
    firstTokens += other.firstTokens;
    addTo(offered, other.offered);
    addTo(accepted, other.accepted);
    addTo(lengths, other.lengths);
    for (std::size_t i = 0; i < without.size(); ++i) {
        without[i] += other.without[i];
    }
}

}  // namespace hspec_trt

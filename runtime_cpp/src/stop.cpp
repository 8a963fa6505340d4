// SPDX-License-Identifier: Apache-2.0
#include "stop.h"

#include <algorithm>

namespace hspec_trt {
namespace {

Ending endByIds(int32_t const* run, int32_t count, int32_t budget, StopRules const& rules) {
    for (int32_t index = 0; index < std::min(count, budget); ++index) {
        if (rules.eosIds.count(run[index]) != 0) {
            return {index + 1, FinishReason::kEos};
        }
        if (rules.stopIds.count(run[index]) != 0) {
            return {index + 1, FinishReason::kStopToken};
        }
    }
    return count >= budget ? Ending{budget, FinishReason::kLength} : Ending{count, std::nullopt};
}

}  // namespace

Ending findEnd(int32_t const* run, int32_t count, int32_t budget, StopRules const& rules, TextStream* text) {
    Ending const ending = endByIds(run, count, budget, rules);
    if (text == nullptr) {
        return ending;
    }
    bool const endedById = ending.reason == FinishReason::kEos || ending.reason == FinishReason::kStopToken;
    int32_t const withText = ending.kept - (endedById ? 1 : 0);
    for (int32_t index = 0; index < withText; ++index) {
        text->push({run[index]});
        if (text->stopped()) {
            return {index + 1, FinishReason::kStopString};
        }
    }
    if (ending.reason.has_value()) {
        text->flush();
        if (text->stopped()) {
            return {withText, FinishReason::kStopString};
        }
    }
    return ending;
}

}  // namespace hspec_trt

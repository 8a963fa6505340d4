// SPDX-License-Identifier: Apache-2.0
// When a text ends (hspec_trt/runtime/stop.py): the earliest of end token, stop string and length, over committed
// tokens in order. Nothing after the end is emitted, counted or kept.
#pragma once

#include <cstdint>
#include <optional>
#include <unordered_set>

#include "detokenizer.h"
#include "hspec_trt/runtime/request.h"

namespace hspec_trt {

// Ids that end one request. eosIds: the model's end tokens; empty with ignoreEos. stopIds: the request's own.
struct StopRules {
    std::unordered_set<int32_t> eosIds;
    std::unordered_set<int32_t> stopIds;

    bool isEmpty() const { return eosIds.empty() && stopIds.empty(); }
};

// How many tokens of a run are kept, and why the text ends there; no reason where it goes on.
struct Ending {
    int32_t kept = 0;
    std::optional<FinishReason> reason;
};

// The end of a text within the `count` tokens that a step emitted.
// budget: tokens that the request may still take, at least 1. text: the request's text so far, where it has stop
// strings (else null); it is given the tokens that are kept. At one token an end id goes before a stop string (an end
// token has no text), and both before length.
Ending findEnd(int32_t const* run, int32_t count, int32_t budget, StopRules const& rules, TextStream* text);

}  // namespace hspec_trt

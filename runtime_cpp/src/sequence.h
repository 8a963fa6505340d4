// SPDX-License-Identifier: Apache-2.0
// One answer on its way through the runtime (hspec_trt/runtime/request.py): what was asked, where it stands, and whom
// to tell. What changes every step lies in the slot table.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <unordered_set>
#include <utility>
#include <vector>

#include "detokenizer.h"
#include "edits.h"
#include "hspec_trt/runtime/request.h"
#include "prefix.h"
#include "stop.h"

namespace hspec_trt {

constexpr int32_t kNoSlot = -1;
// Places in the queue that one unit of priority is worth: a later arrival is overtaken, but never for ever.
constexpr int64_t kPriorityStep = 64;

// What one answer wants of its rows of logits.
struct Shaper {
    std::optional<TextEdits> edits;
    std::shared_ptr<TextGuide> guide;
    int32_t numTop = 0;
    std::vector<TopTokens> tops;  // a list per kept token

    bool isNeeded() const { return edits.has_value() || guide != nullptr || numTop > 0; }
};

struct Sequence {
    RequestId number = 0;
    std::vector<int32_t> tokens;  // prompt and output; up to date only while it has no slot
    std::vector<float> logprobs;  // of the output; likewise
    int32_t promptLen = 0;
    int32_t endLen = 0;  // tokens at which it ends
    SamplingParams params;
    int64_t seed = 0;
    StopRules rules;
    TokenCallback callback;
    bool streaming = true;
    std::optional<TextStream> text;  // with stop strings
    std::shared_ptr<HostDrafts> lookup;
    bool usesDrafter = true;
    Shaper shaper;
    int32_t priority = 0;
    int32_t slot = kNoSlot;
    int32_t told = 0;  // output tokens that the callback has been given
    PrefixChain chain;
    DraftStats drafts;
    Timing timing;

    // Place in the queue: the smallest goes first.
    std::pair<int64_t, int64_t> place() const { return {number - priority * kPriorityStep, number}; }
};

}  // namespace hspec_trt

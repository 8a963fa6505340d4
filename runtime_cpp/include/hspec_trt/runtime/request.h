// SPDX-License-Identifier: Apache-2.0
// A request and what comes of it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "hspec_trt/runtime/error.h"
#include "hspec_trt/runtime/sampling.h"
#include "hspec_trt/runtime/text.h"

namespace hspec_trt {

using RequestId = int64_t;

struct Request {
    std::vector<int32_t> promptIds;
    SamplingParams params{};
    int32_t priority = 0;                      // a higher one overtakes, but never for ever
    bool streaming = true;                     // false: one update, at the end
    std::shared_ptr<HostDrafts> hostDrafts{};  // makes the drafts, in place of what the options say
    std::shared_ptr<TextGuide> guide{};        // what the text must look like; needs the extension tokenMasks
};

enum class FinishReason : int8_t { kEos, kStopToken, kStopString, kLength, kCancelled, kError };

// The name of a reason in Python and in metrics: "eos", "stop_token", ...
HSPEC_TRT_RUNTIME_API char const* finishReasonName(FinishReason reason);

// Why a decode row carried no draft.
enum class NoDrafts : int8_t { kOff, kPolicy, kLength, kPosition, kNoMatch, kBudget, kPages };
constexpr std::size_t kNumNoDrafts = 7;

// What drafting did for one answer, or for all of them.
struct DraftStats {
    int64_t steps = 0;    // decode steps, which start from a token that was said before; each emits at least one token
    int64_t emitted = 0;  // tokens that these steps emitted and that were kept
    int64_t firstTokens = 0;        // tokens of the steps that ended a prompt; no part of the accepted length
    std::vector<int64_t> offered;   // [G] drafts verified per position
    std::vector<int64_t> accepted;  // [G] drafts accepted and kept per position
    std::vector<int64_t> lengths;   // [G+2] accepted length of a step (bonus token included) to number of steps
    std::array<int64_t, kNumNoDrafts> without{};  // by NoDrafts: steps whose row carried no draft

    // Mean tokens of a decode step (tau); 0 before the first one.
    double acceptedLength() const { return steps ? static_cast<double>(emitted) / static_cast<double>(steps) : 0.0; }
    HSPEC_TRT_RUNTIME_API void add(DraftStats const& other);
};

// Seconds of a monotonic clock; 0 where it did not happen.
struct Timing {
    double arrived = 0.0;
    double scheduled = 0.0;
    double firstToken = 0.0;
    double finished = 0.0;
    int64_t cachedTokens = 0;  // prompt tokens that were not run because their pages were there
    int64_t preemptions = 0;   // times the answer lost its pages and was computed again
};

// Most likely tokens of one position with their log-probabilities, best first.
using TopTokens = std::vector<std::pair<int32_t, float>>;

struct RequestResult {
    RequestId id = 0;
    std::vector<int32_t> tokenIds;
    std::vector<float> logprobs;         // under the target's raw distribution
    std::vector<TopTokens> topLogprobs;  // per token, where the request wants them
    FinishReason finishReason = FinishReason::kError;
    std::optional<Error> error;  // with kError: why
    DraftStats drafts;
    Timing timing;
};

// News of one answer. Pointers hold during the callback.
struct Update {
    RequestId id = 0;
    int32_t const* tokenIds = nullptr;  // [numTokens], those since the last update
    float const* logprobs = nullptr;    // [numTokens]
    std::size_t numTokens = 0;
    RequestResult const* result = nullptr;  // the whole answer, on the last update only
};

// Called in the thread that steps; each request gets exactly one update with a result. It may call `submit` and
// `cancel`. One that throws has its request cancelled.
using TokenCallback = std::function<void(Update const&)>;

}  // namespace hspec_trt

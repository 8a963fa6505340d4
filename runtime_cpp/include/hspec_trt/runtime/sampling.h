// SPDX-License-Identifier: Apache-2.0
// Options of one request: names, meanings and defaults of hspec_trt/config/sampling.py. A request here has one answer;
// for n answers submit n requests with the seeds seed, seed + 1, ...
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace hspec_trt {

enum class Drafting : int8_t { kOff = 0, kOn = 1, kAuto = 2 };
enum class DraftSource : int8_t { kDrafter, kPromptLookup, kBoth };

struct SamplingParams {
    std::optional<int64_t> maxTokens;  // none: up to the engine's maxSeqLen
    double temperature = 1.0;          // 0 is greedy
    int64_t topK = 0;                  // 0 is off
    double topP = 1.0;                 // 1 is off
    double minP = 0.0;                 // 0 is off
    std::optional<int64_t> seed;       // none draws one
    std::vector<std::string> stop;     // UTF-8; needs a codec
    std::vector<int32_t> stopTokenIds;
    bool ignoreEos = false;
    Drafting drafts = Drafting::kAuto;
    std::optional<int32_t> numDrafts;        // 1 to G; none is G
    std::optional<DraftSource> draftSource;  // none takes the drafter where there is one
    int64_t minTokens = 0;
    double repetitionPenalty = 1.0;
    double presencePenalty = 0.0;
    double frequencyPenalty = 0.0;
    std::vector<std::pair<int32_t, double>> logitBias;
    std::vector<std::string> badWords;  // UTF-8; needs a codec
    int32_t logprobs = 0;               // most likely tokens to report for each position, 0 to 20
};

}  // namespace hspec_trt

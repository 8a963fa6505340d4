// SPDX-License-Identifier: Apache-2.0
#include "checks.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "hspec_trt/contract_gen.h"
#include "shown.h"
#include "utf8.h"

namespace hspec_trt {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr std::size_t kMaxStops = 64;

// A numeric option: its code and its range in words.
struct Range {
    char const* name;
    char const* code;
    double low;
    double high;
    std::string words;
    bool aboveLow = false;
};

Range const kTemperature{"temperature", "R201", 0.0, 1e4, "0 (greedy) to 10000"};
Range const kTopP{"top_p", "R202", std::numeric_limits<float>::min(), 1.0, "above 0, at most 1 (off)"};
Range const kMinP{"min_p", "R203", 0.0, 1.0, "0 (off) to 1"};
Range const kRepetition{"repetition_penalty", "R212", 0.0, 100.0, "above 0, at most 100; 1 is off", true};
Range const kPresence{"presence_penalty", "R213", -100.0, 100.0, "-100 to 100; 0 is off"};
Range const kFrequency{"frequency_penalty", "R214", -100.0, 100.0, "-100 to 100; 0 is off"};
Range const kMaxTokens{"max_tokens", "R106", 1.0, kInfinity, "a whole number of at least 1"};
Range const kTopK{"top_k", "R204", 0.0, 2147483647.0, "0 (off) or a whole number below 2**31"};
Range const kSeed{"seed", "R205", 0.0, kInfinity, "a whole number from 0 to 2**63 - 1"};
Range const kMinTokens{"min_tokens", "R211", 0.0, kInfinity, "a whole number, 0 is off"};
constexpr double kMaxTops = contract::kMaxTopLogprobs;
Range const kLogprobs{"logprobs", "R217", 0.0, kMaxTops,
                      "a whole number from 0 to " + std::to_string(contract::kMaxTopLogprobs)};
constexpr double kMaxBias = 1e4;

bool holds(Range const& range, double value) {
    bool const isAbove = range.aboveLow ? value > range.low : value >= range.low;
    return std::isfinite(value) && isAbove && value <= range.high;
}

template <typename T>
void checkRange(Range const& range, T value, std::vector<Fault>& faults) {
    if (!holds(range, static_cast<double>(value))) {
        faults.push_back({range.code, std::string(range.name) + " is " + shown(value), range.words});
    }
}

void checkRanges(SamplingParams const& params, std::vector<Fault>& faults) {
    if (params.maxTokens) {
        checkRange(kMaxTokens, *params.maxTokens, faults);
    }
    checkRange(kTemperature, params.temperature, faults);
    checkRange(kTopP, params.topP, faults);
    checkRange(kMinP, params.minP, faults);
    checkRange(kTopK, params.topK, faults);
    if (params.seed) {
        checkRange(kSeed, *params.seed, faults);
    }
    checkRange(kMinTokens, params.minTokens, faults);
    checkRange(kRepetition, params.repetitionPenalty, faults);
    checkRange(kPresence, params.presencePenalty, faults);
    checkRange(kFrequency, params.frequencyPenalty, faults);
    checkRange(kLogprobs, params.logprobs, faults);
}

std::string vocabulary(Limits const& limits) {
    return "[0, " + std::to_string(limits.vocabSize) + ")";
}

bool isText(std::string const& text) {
    return !text.empty() && utf8::isValid(text);
}

bool isToken(int32_t id, Limits const& limits) {
    return id >= 0 && id < limits.vocabSize;
}

void checkStops(SamplingParams const& params, Limits const& limits, std::vector<Fault>& faults) {
    int64_t const most = params.maxTokens.value_or(0);
    if (most >= 1 && params.minTokens > most) {
        faults.push_back({"R211", "min_tokens is " + shown(params.minTokens), "at most max_tokens, " + shown(most)});
    }
    auto const isBad = [](std::string const& stop) {
        return !isText(stop) || stop.find("\xEF\xBF\xBD") != std::string::npos;
    };
    if (params.stop.size() > kMaxStops || std::any_of(params.stop.begin(), params.stop.end(), isBad)) {
        std::string const needed =
            "at most " + std::to_string(kMaxStops) + " strings of Unicode text, none empty or with U+FFFD";
        faults.push_back({"R206", "stop is " + shortened(shown(params.stop)), needed});
    }
    auto const& ids = params.stopTokenIds;
    if (!std::all_of(ids.begin(), ids.end(), [&](int32_t id) { return isToken(id, limits); })) {
        faults.push_back(
            {"R207", "stop_token_ids is " + shortened(shown(ids)), "whole numbers in " + vocabulary(limits)});
    }
}

void checkDrafts(SamplingParams const& params, Limits const& limits, std::vector<Fault>& faults) {
    if (params.numDrafts && (*params.numDrafts < 1 || *params.numDrafts > limits.numDrafts)) {
        std::string const needed = "1 to " + std::to_string(limits.numDrafts) + ", what the engine was built for";
        std::string const found = "num_drafts is " + shown(*params.numDrafts);
        faults.push_back({"R208", found, needed, "", "Use drafts='off' for none"});
    }
    bool const usesDrafter = params.draftSource && *params.draftSource != DraftSource::kPromptLookup;
    if (usesDrafter && params.drafts != Drafting::kOff && !limits.hasDrafter) {
        std::string const source = *params.draftSource == DraftSource::kBoth ? "'both'" : "'drafter'";
        std::string const found = "draft_source is " + source + ", but the engine has no drafter";
        faults.push_back({"R208", found, "", "", "Use draft_source='prompt_lookup', or drafts='off'"});
    }
}

void checkEdits(Request const& request, Limits const& limits, std::vector<Fault>& faults) {
    SamplingParams const& params = request.params;
    auto const isGood = [&](std::pair<int32_t, double> const& pair) {
        return isToken(pair.first, limits) && std::fabs(pair.second) <= kMaxBias;
    };
    if (!std::all_of(params.logitBias.begin(), params.logitBias.end(), isGood)) {
        std::string const needed =
            "pairs of a token id and a number from -10000 to 10000; ids are in " + vocabulary(limits);
        faults.push_back({"R215", "logit_bias is " + shortened(shown(params.logitBias)), needed});
    }
    auto const& words = params.badWords;
    if (!std::all_of(words.begin(), words.end(), isText)) {
        faults.push_back({"R216", "bad_words is " + shortened(shown(words)), "strings of Unicode text, none empty"});
    }
    if (request.guide != nullptr && params.ignoreEos) {
        faults.push_back({"R220", "guided_decoding with ignore_eos", "end tokens: the text ends with one"});
    }
}

void checkExtensions(Request const& request, Limits const& limits, std::vector<Fault>& faults) {
    SamplingParams const& params = request.params;
    auto const check = [&](bool isUsed, bool isThere, std::string const& name, std::string const& value,
                           std::string const& extension) {
        if (isUsed && !isThere) {
            std::string const found = name + " = " + shortened(value) + " is not supported by this engine";
            std::string const needed = "an engine built with the extension " + extension;
            faults.push_back({"R210", found, needed, "", "Leave " + name + " unset"});
        }
    };
    auto const edits = [&](bool isUsed, std::string const& name, std::string const& value) {
        check(isUsed, limits.extensions.logitEdits, name, value, "logit_edits");
    };
    edits(params.minTokens != 0, "min_tokens", shown(params.minTokens));
    edits(params.repetitionPenalty != 1.0, "repetition_penalty", shown(params.repetitionPenalty));
    edits(params.presencePenalty != 0.0, "presence_penalty", shown(params.presencePenalty));
    edits(params.frequencyPenalty != 0.0, "frequency_penalty", shown(params.frequencyPenalty));
    edits(!params.logitBias.empty(), "logit_bias", shown(params.logitBias));
    edits(!params.badWords.empty(), "bad_words", shown(params.badWords));
    check(params.logprobs != 0, limits.extensions.topLogprobs, "logprobs", shown(params.logprobs), "top_logprobs");
    check(request.guide != nullptr, limits.extensions.tokenMasks, "guided_decoding", "(a guide)", "token_masks");
}

}  // namespace

void checkParams(Request const& request, Limits const& limits) {
    std::vector<Fault> faults;
    checkRanges(request.params, faults);
    checkStops(request.params, limits, faults);
    checkDrafts(request.params, limits, faults);
    checkEdits(request, limits, faults);
    checkExtensions(request, limits, faults);
    if (!faults.empty()) {
        throw Error(std::move(faults));
    }
}

void checkPrompt(Request const& request, Limits const& limits, int32_t longest) {
    auto const& prompt = request.promptIds;
    if (prompt.empty()) {
        throw Error(Fault{"R102", "the prompt has no tokens", "at least one"});
    }
    for (std::size_t i = 0; i < prompt.size(); ++i) {
        if (!isToken(prompt[i], limits)) {
            throw Error(Fault{"R103", "prompt token " + shown(prompt[i]) + " at index " + std::to_string(i) +
                                          " is outside the vocabulary " + vocabulary(limits)});
        }
    }
    int64_t const room = longest - static_cast<int64_t>(prompt.size());
    std::string const length = "prompt " + std::to_string(prompt.size());
    std::string const limit = "max_seq_len " + std::to_string(longest);
    if (room < 1) {
        throw Error(Fault{"R101", length + " leaves no room for a new token in " + limit, "", "",
                          "The longest allowed prompt is " + std::to_string(longest - 1)});
    }
    if (request.params.maxTokens.value_or(0) > room) {
        std::string const asked = " + max_tokens " + shown(*request.params.maxTokens);
        throw Error(Fault{"R101", length + asked + " > " + limit, "", "",
                          "The longest allowed max_tokens is " + std::to_string(room)});
    }
}

}  // namespace hspec_trt

// SPDX-License-Identifier: Apache-2.0
#include "intake.h"

#include <algorithm>
#include <random>

#include "checks.h"
#include "lookup.h"

namespace hspec_trt {
namespace {

int64_t drawSeed() {
    std::random_device device;
    auto const high = static_cast<uint64_t>(device());
    return static_cast<int64_t>(((high << 32U) | device()) & static_cast<uint64_t>(kMaxSeed));
}

// `word` at the start of a text and after a space.
std::vector<std::string> spellings(std::string const& word) {
    std::size_t const start = word.find_first_not_of(" \t\n\r\f\v");
    return {word, " " + (start == std::string::npos ? "" : word.substr(start))};
}

}  // namespace

Intake::Intake(Limits const& limits, int32_t longest, std::unordered_set<int32_t> eosIds,
               std::shared_ptr<Codec const> codec)
    : limits_(limits), longest_(longest), eosIds_(std::move(eosIds)), codec_(std::move(codec)) {}

std::unique_ptr<Sequence> Intake::make(Request request, TokenCallback callback) {
    checkParams(request, limits_);
    checkPrompt(request, limits_, longest_);
    checkTextOptions(request.params);
    SamplingParams const& params = request.params;
    int64_t const room = longest_ - static_cast<int64_t>(request.promptIds.size());
    DraftSource const source =
        params.draftSource.value_or(limits_.hasDrafter ? DraftSource::kDrafter : DraftSource::kPromptLookup);

    auto made = std::make_unique<Sequence>();
    made->number = nextNumber_++;
    made->promptLen = static_cast<int32_t>(request.promptIds.size());
    made->endLen = made->promptLen + static_cast<int32_t>(std::min(params.maxTokens.value_or(room), room));
    made->seed = params.seed ? *params.seed : drawSeed();
    made->rules.stopIds.insert(params.stopTokenIds.begin(), params.stopTokenIds.end());
    if (!params.ignoreEos) {
        made->rules.eosIds = eosIds_;
    }
    made->callback = std::move(callback);
    made->streaming = request.streaming;
    if (!params.stop.empty()) {
        made->text.emplace(codec_, params.stop);
    }
    made->lookup = request.hostDrafts;
    if (made->lookup == nullptr && source != DraftSource::kDrafter && params.drafts != Drafting::kOff) {
        made->lookup = std::make_shared<NgramIndex>();
    }
    made->usesDrafter = source != DraftSource::kPromptLookup && limits_.hasDrafter;
    made->shaper = shaper(request, made->rules);
    made->priority = request.priority;
    made->tokens = std::move(request.promptIds);
    made->params = std::move(request.params);
    return made;
}

void Intake::checkTextOptions(SamplingParams const& params) const {
    auto const check = [this](bool isUsed, char const* code, std::string const& name, char const* instead) {
        if (isUsed && codec_ == nullptr) {
            std::string const found = name + " needs a tokenizer, and the engine has none";
            throw Error(Fault{code, found, "", "", std::string("Use ") + instead});
        }
    };
    check(!params.stop.empty(), "R206", "stop", "stop_token_ids");
    check(!params.badWords.empty(), "R216", "bad_words", "logit_bias");
}

Shaper Intake::shaper(Request const& request, StopRules const& rules) const {
    Shaper made;
    made.numTop = request.params.logprobs;
    made.guide = request.guide;
    if (wantsEdits(request.params)) {
        std::set<int32_t> endIds(eosIds_.begin(), eosIds_.end());
        endIds.insert(rules.stopIds.begin(), rules.stopIds.end());
        made.edits.emplace(request.params, request.promptIds, endIds, badWordIds(request.params.badWords));
    }
    return made;
}

std::vector<std::vector<int32_t>> Intake::badWordIds(std::vector<std::string> const& words) const {
    std::vector<std::vector<int32_t>> found;
    for (std::string const& word : words) {
        for (std::string const& text : spellings(word)) {
            std::vector<int32_t> ids = codec_->encode(text);
            if (!ids.empty() && std::find(found.begin(), found.end(), ids) == found.end()) {
                found.push_back(std::move(ids));
            }
        }
    }
    return found;
}

}  // namespace hspec_trt

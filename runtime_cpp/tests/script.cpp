// SPDX-License-Identifier: Apache-2.0
#include "script.h"

#include <map>
#include <memory>
#include <string>

#include "replay/values.h"
#include "table_codec.h"

namespace hspec_trt::tests {
namespace {

using json::Value;

template <typename T>
T valueOr(Value const& stored, char const* key, T unset) {
    return memberOf<T>(stored, key).value_or(unset);
}

template <typename T>
std::vector<T> vectorOr(Value const& stored, char const* key) {
    Value const* const found = stored.find(key);
    return found == nullptr ? std::vector<T>{} : vectorOf<T>(*found);
}

void readEdits(Value const& stored, SamplingParams& made) {
    made.minTokens = valueOr<int64_t>(stored, "min_tokens", 0);
    made.repetitionPenalty = valueOr(stored, "repetition_penalty", 1.0);
    made.presencePenalty = valueOr(stored, "presence_penalty", 0.0);
    made.frequencyPenalty = valueOr(stored, "frequency_penalty", 0.0);
    if (Value const* const pairs = stored.find("logit_bias")) {
        for (Value const& pair : pairs->array) {
            made.logitBias.emplace_back(valueAs<int32_t>(pair.array.at(0)), pair.array.at(1).number);
        }
    }
    made.badWords = vectorOr<std::string>(stored, "bad_words");
    made.logprobs = valueOr<int32_t>(stored, "logprobs", 0);
}

SamplingParams paramsOf(Value const& stored) {
    static std::map<std::string, Drafting> const modes = {
        {"off", Drafting::kOff}, {"on", Drafting::kOn}, {"auto", Drafting::kAuto}};
    static std::map<std::string, DraftSource> const sources = {{"drafter", DraftSource::kDrafter},
                                                               {"prompt_lookup", DraftSource::kPromptLookup},
                                                               {"both", DraftSource::kBoth}};
    SamplingParams made;
    made.maxTokens = memberOf<int64_t>(stored, "max_tokens");
    made.temperature = valueOr(stored, "temperature", 1.0);
    made.topK = valueOr<int64_t>(stored, "top_k", 0);
    made.topP = valueOr(stored, "top_p", 1.0);
    made.minP = valueOr(stored, "min_p", 0.0);
    made.seed = valueAs<int64_t>(stored.at("seed"));
    made.stop = vectorOr<std::string>(stored, "stop");
    made.stopTokenIds = vectorOr<int32_t>(stored, "stop_token_ids");
    made.ignoreEos = valueOr(stored, "ignore_eos", false);
    made.drafts = modes.at(valueOr<std::string>(stored, "drafts", "auto"));
    made.numDrafts = memberOf<int32_t>(stored, "num_drafts");
    if (std::optional<std::string> const source = memberOf<std::string>(stored, "draft_source")) {
        made.draftSource = sources.at(*source);
    }
    readEdits(stored, made);
    return made;
}

}  // namespace

RuntimeOptions optionsOf(Value const& meta) {
    RuntimeOptions made;
    made.eosIds = vectorOf<int32_t>(meta.at("eos_ids"));
    Value const& stored = meta.at("options");
    made.scheduler.maxBatchSize = memberOf<int32_t>(stored, "max_batch_size");
    made.scheduler.maxNumTokens = memberOf<int32_t>(stored, "max_num_tokens");
    made.scheduler.maxChunk = memberOf<int32_t>(stored, "max_chunk");
    made.scheduler.prefixCache = stored.at("prefix_cache").boolean;
    if (!meta.at("codec").isNull()) {
        made.codec = std::make_shared<TableCodec>(vectorOf<std::string>(meta.at("codec")));
    }
    return made;
}

Request requestOf(Value const& stored, int32_t vocabSize) {
    Request made;
    made.promptIds = vectorOf<int32_t>(stored.at("prompt"));
    made.params = paramsOf(stored.at("params"));
    made.priority = valueAs<int32_t>(stored.at("priority"));
    made.streaming = stored.at("streaming").boolean;
    if (Value const& drafts = stored.at("host_drafts"); !drafts.isNull()) {
        auto const right = static_cast<std::size_t>(drafts.at("right").integer);
        made.hostDrafts = std::make_shared<ScriptedDrafts>(vectorOf<int32_t>(drafts.at("text")), right, vocabSize);
    }
    if (std::optional<int64_t> const last = memberOf<int64_t>(stored, "guide")) {
        made.guide = std::make_shared<ParityGuide>(vocabSize, made.promptIds.size(), static_cast<std::size_t>(*last));
    }
    return made;
}

}  // namespace hspec_trt::tests

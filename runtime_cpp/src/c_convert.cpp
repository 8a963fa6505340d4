// SPDX-License-Identifier: Apache-2.0
#include <new>
#include <utility>
#include <vector>

#include "c_handles.h"

using hspec_trt::Codec;
using hspec_trt::Drafting;
using hspec_trt::DraftSource;

namespace hspec_trt::c_api {
namespace {

// A caller's tokenizer.
class CallerCodec final : public Codec {
  public:
    explicit CallerCodec(hspec_rt_codec const& functions) : functions_(functions) {}

    std::string decode(std::vector<int32_t> const& ids) const override {
        std::string text;
        functions_.decode(
            functions_.user, ids.data(), ids.size(),
            [](void* to, char const* part, size_t size) { static_cast<std::string*>(to)->append(part, size); }, &text);
        return text;
    }
    bool hasText(int32_t token) const override { return functions_.has_text(functions_.user, token) != 0; }
    bool isByte(int32_t token) const override { return functions_.is_byte(functions_.user, token) != 0; }
    std::vector<int32_t> encode(std::string const& text) const override {
        std::vector<int32_t> ids;
        functions_.encode(
            functions_.user, text.data(), text.size(),
            [](void* to, int32_t const* part, size_t size) {
                auto* all = static_cast<std::vector<int32_t>*>(to);
                all->insert(all->end(), part, part + size);
            },
            &ids);
        return ids;
    }

  private:
    hspec_rt_codec functions_;
};

template <typename Item, typename Given>
std::vector<Item> listOf(Given const* items, size_t count, char const* name) {
    misuse(items == nullptr && count > 0, name);
    return items == nullptr ? std::vector<Item>{} : std::vector<Item>(items, items + count);
}

std::optional<int32_t> unlessZero(int32_t value) {
    return value == 0 ? std::nullopt : std::optional(value);
}

SamplingParams paramsOf(hspec_rt_request const& given) {
    misuse(given.drafts < 0 || given.drafts > 2, "drafts is not 0, 1 or 2");
    misuse(given.draft_source < -1 || given.draft_source > 2, "draft_source is not -1, 0, 1 or 2");
    SamplingParams params;
    if (given.max_tokens != -1) {
        params.maxTokens = given.max_tokens;
    }
    if (given.seed != -1) {
        params.seed = given.seed;
    }
    if (given.draft_source != -1) {
        params.draftSource = static_cast<DraftSource>(given.draft_source);
    }
    params.temperature = given.temperature;
    params.topK = given.top_k;
    params.topP = given.top_p;
    params.minP = given.min_p;
    params.stop = listOf<std::string>(given.stop, given.num_stop, "stop is null");
    params.stopTokenIds = listOf<int32_t>(given.stop_token_ids, given.num_stop_token_ids, "stop_token_ids is null");
    params.ignoreEos = given.ignore_eos != 0;
    params.drafts = static_cast<Drafting>(given.drafts);
    params.numDrafts = unlessZero(given.num_drafts);
    params.minTokens = given.min_tokens;
    params.repetitionPenalty = given.repetition_penalty;
    params.presencePenalty = given.presence_penalty;
    params.frequencyPenalty = given.frequency_penalty;
    for (auto const& [token, bias] :
         listOf<hspec_rt_logit_bias>(given.logit_bias, given.num_logit_bias, "logit_bias is null")) {
        params.logitBias.emplace_back(token, bias);
    }
    params.badWords = listOf<std::string>(given.bad_words, given.num_bad_words, "bad_words is null");
    params.logprobs = given.logprobs;
    return params;
}

}  // namespace

void misuse(bool wrong, char const* what) {
    if (wrong) {
        throw Error(Fault{"R330", what, "a call as runtime_c.h says", "", ""});
    }
}

void tell(hspec_rt_error** error) noexcept {
    if (error == nullptr) {
        return;
    }
    *error = nullptr;
    try {
        throw;
    } catch (Error const& told) {
        *error = new (std::nothrow) hspec_rt_error{told};
    } catch (std::exception const& other) {
        *error = new (std::nothrow) hspec_rt_error{Error(Fault{"R331", "a fault of ours", "", other.what(), ""})};
    }
}

void writeLimits(Limits const& limits, hspec_rt_limits* to) {
    writeStruct(hspec_rt_limits{0, limits.vocabSize, limits.numDrafts, limits.pageSize, limits.pageBytes,
                                limits.maxRows, limits.maxTokens, limits.maxSeqLen, limits.hasDrafter ? 1 : 0},
                to);
}

RuntimeOptions runtimeOptions(hspec_rt_runtime_options const& given) {
    RuntimeOptions options;
    options.eosIds = listOf<int32_t>(given.eos_ids, given.num_eos_ids, "eos_ids is null");
    if (given.codec != nullptr) {
        hspec_rt_codec const& codec = *given.codec;
        misuse(codec.size < sizeof(hspec_rt_codec) || codec.decode == nullptr || codec.has_text == nullptr ||
                   codec.is_byte == nullptr || codec.encode == nullptr,
               "the codec lacks its size or a function");
        options.codec = std::make_shared<CallerCodec const>(codec);
    }
    options.scheduler.maxBatchSize = unlessZero(given.max_batch_size);
    options.scheduler.maxNumTokens = unlessZero(given.max_num_tokens);
    options.scheduler.maxChunk = unlessZero(given.max_chunk);
    options.scheduler.prefixCache = given.prefix_cache != 0;
    return options;
}

Request requestOf(hspec_rt_request const& given) {
    Request request;
    request.promptIds = listOf<int32_t>(given.prompt_ids, given.num_prompt_ids, "prompt_ids is null");
    request.params = paramsOf(given);
    request.priority = given.priority;
    request.streaming = given.streaming != 0;
    return request;
}

void deliver(Update const& update, hspec_rt_callback callback, void* user) {
    hspec_rt_update news{sizeof(hspec_rt_update), update.id,        update.tokenIds,
                         update.logprobs,         update.numTokens, nullptr};
    if (update.result == nullptr) {
        callback(user, &news);
        return;
    }
    hspec_rt_result result{*update.result, std::nullopt};
    if (update.result->error) {
        result.error = hspec_rt_error{*update.result->error};
    }
    news.result = &result;
    callback(user, &news);
}

}  // namespace hspec_trt::c_api

void hspec_rt_request_init(hspec_rt_request* request) {
    hspec_trt::SamplingParams const defaults;
    *request = {};
    request->size = sizeof(*request);
    request->max_tokens = -1;
    request->temperature = defaults.temperature;
    request->top_k = defaults.topK;
    request->top_p = defaults.topP;
    request->min_p = defaults.minP;
    request->seed = -1;
    request->drafts = static_cast<int32_t>(defaults.drafts);
    request->draft_source = -1;
    request->min_tokens = defaults.minTokens;
    request->repetition_penalty = defaults.repetitionPenalty;
    request->presence_penalty = defaults.presencePenalty;
    request->frequency_penalty = defaults.frequencyPenalty;
    request->streaming = 1;
}

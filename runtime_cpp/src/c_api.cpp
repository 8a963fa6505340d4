// SPDX-License-Identifier: Apache-2.0
// The C interface: handles, copies in and out, and no exception past it. It decides nothing.
#include <algorithm>
#include <cstring>
#include <memory>
#include <new>
#include <optional>
#include <utility>

#include "c_handles.h"
#include "hspec_trt/runtime_c.h"

using namespace hspec_trt;  // NOLINT: the functions below are C's and stand outside of it
using c_api::guarded;
using c_api::misuse;
using c_api::readStruct;
using c_api::writeLimits;
using c_api::writeStruct;

int32_t hspec_rt_api_version(void) {
    return HSPEC_RT_API_VERSION;
}

// ---- Errors ----

size_t hspec_rt_error_count(hspec_rt_error const* error) {
    return error == nullptr ? 0 : error->error.faults().size();
}

namespace {

char const* part(hspec_rt_error const* error, size_t fault, std::string Fault::* member) {
    return fault < hspec_rt_error_count(error) ? (error->error.faults()[fault].*member).c_str() : nullptr;
}

}  // namespace

char const* hspec_rt_error_code(hspec_rt_error const* error, size_t fault) {
    return part(error, fault, &Fault::code);
}
char const* hspec_rt_error_found(hspec_rt_error const* error, size_t fault) {
    return part(error, fault, &Fault::found);
}
char const* hspec_rt_error_needed(hspec_rt_error const* error, size_t fault) {
    return part(error, fault, &Fault::needed);
}
char const* hspec_rt_error_where(hspec_rt_error const* error, size_t fault) {
    return part(error, fault, &Fault::where);
}
char const* hspec_rt_error_fix(hspec_rt_error const* error, size_t fault) {
    return part(error, fault, &Fault::fix);
}
char const* hspec_rt_error_text(hspec_rt_error const* error) {
    return error == nullptr ? "" : error->error.what();
}
void hspec_rt_error_free(hspec_rt_error* error) {
    delete error;
}

// ---- Engine folders ----

int32_t hspec_rt_folder_open(char const* path, int32_t whole, hspec_rt_folder** folder, hspec_rt_error** error) {
    return guarded(folder, error, [&] {
        misuse(path == nullptr, "path is null");
        return new hspec_rt_folder{EngineFolder::open(path, whole != 0), {}};
    });
}

char const* hspec_rt_folder_backend(hspec_rt_folder const* folder) {
    return folder->folder.backend().c_str();
}

void hspec_rt_folder_limits(hspec_rt_folder const* folder, hspec_rt_limits* limits) {
    writeLimits(folder->folder.limits(), limits);
}

size_t hspec_rt_folder_eos_ids(hspec_rt_folder const* folder, int32_t const** ids) {
    *ids = folder->folder.eosIds().data();
    return folder->folder.eosIds().size();
}

int32_t hspec_rt_folder_file(hspec_rt_folder* folder, char const* name, char const** path, hspec_rt_error** error) {
    return guarded(path, error, [&] {
        misuse(folder == nullptr || name == nullptr, "folder or name is null");
        folder->path = folder->folder.file(name);
        return folder->path.c_str();
    });
}

void hspec_rt_folder_free(hspec_rt_folder* folder) {
    delete folder;
}

// ---- Engines ----

void hspec_rt_engine_options_init(hspec_rt_engine_options* options) {
    EngineOptions const defaults;
    *options = {};
    options->size = sizeof(*options);
    options->device = defaults.device;
    options->cuda_graphs = defaults.cudaGraphs ? 1 : 0;
    options->kv_cache_fraction = defaults.kvCacheFraction;
}

int32_t hspec_rt_engine_load(hspec_rt_folder const* folder, hspec_rt_engine_options const* options,
                             hspec_rt_engine** engine, hspec_rt_error** error) {
    return guarded(engine, error, [&] {
        misuse(folder == nullptr, "folder is null");
        hspec_rt_engine_options const given = readStruct(options, hspec_rt_engine_options_init);
        EngineOptions wanted;
        wanted.device = given.device;
        wanted.cudaGraphs = given.cuda_graphs != 0;
        wanted.kvCacheFraction = given.kv_cache_fraction;
        if (given.kv_cache_memory != 0) {
            wanted.kvCacheMemory = given.kv_cache_memory;
        }
        wanted.pluginLibrary = given.plugin_library == nullptr ? "" : given.plugin_library;
        wanted.tensorrtLibrary = given.tensorrt_library == nullptr ? "" : given.tensorrt_library;
        return new hspec_rt_engine{loadEngine(folder->folder, wanted)};
    });
}

int32_t hspec_rt_engine_replay(char const* path, hspec_rt_engine** engine, hspec_rt_error** error) {
    return guarded(engine, error, [&] {
        misuse(path == nullptr, "path is null");
        return new hspec_rt_engine{openReplay(path)};
    });
}

void hspec_rt_engine_limits(hspec_rt_engine const* engine, hspec_rt_limits* limits) {
    writeLimits(engine->engine->limits(), limits);
}

void hspec_rt_engine_free(hspec_rt_engine* engine) {
    delete engine;
}

// ---- The runtime ----

void hspec_rt_runtime_options_init(hspec_rt_runtime_options* options) {
    *options = {};
    options->size = sizeof(*options);
    options->prefix_cache = SchedulerOptions{}.prefixCache ? 1 : 0;
}

int32_t hspec_rt_runtime_create(hspec_rt_engine* engine, hspec_rt_runtime_options const* options,
                                hspec_rt_runtime** runtime, hspec_rt_error** error) {
    std::unique_ptr<hspec_rt_engine> const taken(engine);
    return guarded(runtime, error, [&] {
        misuse(engine == nullptr, "engine is null");
        hspec_rt_runtime_options const given = readStruct(options, hspec_rt_runtime_options_init);
        return new hspec_rt_runtime{std::make_unique<Runtime>(std::move(taken->engine), c_api::runtimeOptions(given))};
    });
}

int32_t hspec_rt_runtime_submit(hspec_rt_runtime* runtime, hspec_rt_request const* request, hspec_rt_callback callback,
                                void* user, int64_t* id, hspec_rt_error** error) {
    return guarded(id, error, [&]() -> int64_t {
        misuse(runtime == nullptr || request == nullptr || callback == nullptr, "runtime, request or callback is null");
        hspec_rt_request const given = readStruct(request, hspec_rt_request_init);
        return runtime->runtime->submit(c_api::requestOf(given), [callback, user](Update const& update) {
            c_api::deliver(update, callback, user);
        });
    });
}

void hspec_rt_runtime_cancel(hspec_rt_runtime* runtime, int64_t id) {
    runtime->runtime->cancel(id);
}

int32_t hspec_rt_runtime_start(hspec_rt_runtime* runtime, hspec_rt_error** error) {
    return guarded(error, [&] { runtime->runtime->start(); });
}

int32_t hspec_rt_runtime_step(hspec_rt_runtime* runtime, int32_t* ran, hspec_rt_error** error) {
    return guarded(ran, error, [&]() -> int32_t { return runtime->runtime->step() ? 1 : 0; });
}

int32_t hspec_rt_runtime_close(hspec_rt_runtime* runtime, int32_t drain, hspec_rt_error** error) {
    return guarded(error, [&] { runtime->runtime->close(drain != 0); });
}

void hspec_rt_runtime_limits(hspec_rt_runtime const* runtime, hspec_rt_limits* limits) {
    writeLimits(runtime->runtime->limits(), limits);
}

void hspec_rt_runtime_stats(hspec_rt_runtime const* runtime, hspec_rt_stats* stats) {
    RuntimeStats const now = runtime->runtime->stats();
    writeStruct(hspec_rt_stats{0, now.steps, now.failedSteps, now.stepSeconds, now.promptTokens, now.newTokens,
                               now.cachedTokens, now.preemptions, now.drafts.acceptedLength(), now.followedSteps},
                stats);
}

void hspec_rt_runtime_free(hspec_rt_runtime* runtime) {
    delete runtime;
}

// ---- Results ----

size_t hspec_rt_result_token_ids(hspec_rt_result const* result, int32_t const** ids) {
    *ids = result->result.tokenIds.data();
    return result->result.tokenIds.size();
}

size_t hspec_rt_result_logprobs(hspec_rt_result const* result, float const** logprobs) {
    *logprobs = result->result.logprobs.data();
    return result->result.logprobs.size();
}

size_t hspec_rt_result_top_logprobs(hspec_rt_result const* result, size_t position, size_t room, int32_t* ids,
                                    float* logprobs) {
    if (position >= result->result.topLogprobs.size()) {
        return 0;
    }
    TopTokens const& tokens = result->result.topLogprobs[position];
    for (size_t i = 0; i < std::min(room, tokens.size()); ++i) {
        ids[i] = tokens[i].first;
        logprobs[i] = tokens[i].second;
    }
    return tokens.size();
}

char const* hspec_rt_result_finish_reason(hspec_rt_result const* result) {
    return finishReasonName(result->result.finishReason);
}

hspec_rt_error const* hspec_rt_result_error(hspec_rt_result const* result) {
    return result->error ? &*result->error : nullptr;
}

size_t hspec_rt_result_accepted_lengths(hspec_rt_result const* result, int64_t const** lengths) {
    *lengths = result->result.drafts.lengths.data();
    return result->result.drafts.lengths.size();
}

int64_t hspec_rt_result_cached_tokens(hspec_rt_result const* result) {
    return result->result.timing.cachedTokens;
}

int64_t hspec_rt_result_preemptions(hspec_rt_result const* result) {
    return result->result.timing.preemptions;
}

/* SPDX-License-Identifier: Apache-2.0
 * C interface of libhspec_trt_runtime, for languages that bind to C.
 *
 * Results. Functions that can fail return 0 on success and 1 on failure; then `*error` is set where `error` is not
 * null, and the caller frees it. Output handles are null after a failure.
 *
 * Ownership. A handle is freed by the function of its name; null is allowed. `hspec_rt_runtime_create` takes the
 * engine, also when it fails. Strings and arrays that a function returns belong to the handle that they were asked of.
 * What a caller hands over is copied before the call returns, but for the `user` pointers.
 *
 * Threads. A folder may be used by several threads at a time. A runtime too: submit, cancel, limits and stats are for
 * any thread; step and close are for one thread at a time, and not from a callback. An engine, an error: one thread at
 * a time. Callbacks come in the thread that steps. They may call submit and cancel. They must not unwind through this
 * library.
 *
 * Growth. Structures begin with their size, which their init function sets: newer libraries add members at the end.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#ifndef HSPEC_TRT_RUNTIME_API
#define HSPEC_TRT_RUNTIME_API __attribute__((visibility("default")))
#endif

#define HSPEC_RT_API_VERSION 1

typedef struct hspec_rt_error hspec_rt_error;
typedef struct hspec_rt_folder hspec_rt_folder;
typedef struct hspec_rt_engine hspec_rt_engine;
typedef struct hspec_rt_runtime hspec_rt_runtime;
typedef struct hspec_rt_result hspec_rt_result;

/* HSPEC_RT_API_VERSION of the library; it grows when something that exists changes its meaning. */
HSPEC_TRT_RUNTIME_API int32_t hspec_rt_api_version(void);

/* ---- Errors: one fault or several that were found together ---- */

HSPEC_TRT_RUNTIME_API size_t hspec_rt_error_count(hspec_rt_error const* error);
/* Parts of one fault: stable code ("L005"), what was found, what was needed, where, one remedy. All but code and found
 * may be empty. Null where there is no fault of that number. */
HSPEC_TRT_RUNTIME_API char const* hspec_rt_error_code(hspec_rt_error const* error, size_t fault);
HSPEC_TRT_RUNTIME_API char const* hspec_rt_error_found(hspec_rt_error const* error, size_t fault);
HSPEC_TRT_RUNTIME_API char const* hspec_rt_error_needed(hspec_rt_error const* error, size_t fault);
HSPEC_TRT_RUNTIME_API char const* hspec_rt_error_where(hspec_rt_error const* error, size_t fault);
HSPEC_TRT_RUNTIME_API char const* hspec_rt_error_fix(hspec_rt_error const* error, size_t fault);
/* A line for each fault: error[CODE]: found; needed: ... (where). fix */
HSPEC_TRT_RUNTIME_API char const* hspec_rt_error_text(hspec_rt_error const* error);
HSPEC_TRT_RUNTIME_API void hspec_rt_error_free(hspec_rt_error* error);

/* ---- Engine folders ---- */

/* What an engine takes. */
typedef struct {
    size_t size;
    int32_t vocab_size;  /* token ids are below it */
    int32_t num_drafts;  /* drafts a request may carry in a step */
    int32_t page_size;   /* tokens a page of the cache holds */
    int64_t page_bytes;  /* 0 for a folder: only a loaded engine knows it */
    int32_t max_rows;    /* requests in one step */
    int32_t max_tokens;  /* tokens of one step */
    int32_t max_seq_len; /* prompt plus new tokens of one request */
    int32_t has_drafter;
} hspec_rt_limits;

/* Open and check a folder: manifest, versions, sizes and hashes. `whole` not 0 hashes every file from end to end. */
HSPEC_TRT_RUNTIME_API int32_t hspec_rt_folder_open(char const* path, int32_t whole, hspec_rt_folder** folder,
                                                   hspec_rt_error** error);
/* "onnxruntime", "tensorrt-rtx" or "tensorrt". */
HSPEC_TRT_RUNTIME_API char const* hspec_rt_folder_backend(hspec_rt_folder const* folder);
/* Fills as much of `limits` as limits->size says. */
HSPEC_TRT_RUNTIME_API void hspec_rt_folder_limits(hspec_rt_folder const* folder, hspec_rt_limits* limits);
/* The model's end tokens: their number, and where they are. */
HSPEC_TRT_RUNTIME_API size_t hspec_rt_folder_eos_ids(hspec_rt_folder const* folder, int32_t const** ids);
/* Path of a file of the folder, such as tokenizer.json; the string lives until the next call with this folder. */
HSPEC_TRT_RUNTIME_API int32_t hspec_rt_folder_file(hspec_rt_folder* folder, char const* name, char const** path,
                                                   hspec_rt_error** error);
HSPEC_TRT_RUNTIME_API void hspec_rt_folder_free(hspec_rt_folder* folder);

/* ---- Engines ---- */

typedef struct {
    size_t size;
    int32_t device;               /* number of the GPU */
    int32_t cuda_graphs;          /* 1: record decode steps as CUDA graphs */
    int64_t kv_cache_memory;      /* bytes of the cache; 0 takes a share of free memory */
    double kv_cache_fraction;     /* that share */
    char const* plugin_library;   /* null: $HSPEC_TRT_PLUGIN_LIBRARY, else the one beside this library */
    char const* tensorrt_library; /* null: $HSPEC_TRT_TENSORRT_LIBRARY, else as the system's loader finds it */
} hspec_rt_engine_options;

HSPEC_TRT_RUNTIME_API void hspec_rt_engine_options_init(hspec_rt_engine_options* options);
/* Load a compiled engine onto the GPU. `options` may be null. */
HSPEC_TRT_RUNTIME_API int32_t hspec_rt_engine_load(hspec_rt_folder const* folder,
                                                   hspec_rt_engine_options const* options, hspec_rt_engine** engine,
                                                   hspec_rt_error** error);
/* An engine that computes nothing and gives the outputs of a recorded run to whoever asks for exactly its inputs. */
HSPEC_TRT_RUNTIME_API int32_t hspec_rt_engine_replay(char const* path, hspec_rt_engine** engine,
                                                     hspec_rt_error** error);
HSPEC_TRT_RUNTIME_API void hspec_rt_engine_limits(hspec_rt_engine const* engine, hspec_rt_limits* limits);
HSPEC_TRT_RUNTIME_API void hspec_rt_engine_free(hspec_rt_engine* engine);

/* ---- The runtime: continuous batching over one engine ---- */

/* A tokenizer, for stop strings and bad words; requests without them need none. Texts are UTF-8, and not ended by a
 * zero. The functions are called in the thread that steps and in those that submit, so they must be safe together.
 * Results go to `sink`, which is called once, before the function returns. */
typedef struct {
    size_t size;
    void* user;
    /* Text of the tokens, special ones left out; bytes that are no character become U+FFFD. */
    void (*decode)(void* user, int32_t const* ids, size_t num_ids,
                   void (*sink)(void* to, char const* text, size_t size), void* to);
    /* 0 for special tokens and ids without a token, which decoding leaves out. */
    int32_t (*has_text)(void* user, int32_t token);
    /* 1 for a byte-fallback token, whose text depends on the byte tokens that follow. */
    int32_t (*is_byte)(void* user, int32_t token);
    /* Ids of a text, without what the tokenizer puts around one. */
    void (*encode)(void* user, char const* text, size_t size,
                   void (*sink)(void* to, int32_t const* ids, size_t num_ids), void* to);
} hspec_rt_codec;

typedef struct {
    size_t size;
    int32_t const* eos_ids; /* the model's end tokens */
    size_t num_eos_ids;
    hspec_rt_codec const* codec; /* null: none */
    int32_t max_batch_size;      /* requests in one step; 0 takes the engine's limit, and so below */
    int32_t max_num_tokens;      /* tokens of one step */
    int32_t max_chunk;           /* prompt tokens of one request in one step */
    int32_t prefix_cache;        /* 1: keep pages of ended requests for those that start alike */
} hspec_rt_runtime_options;

typedef struct {
    int32_t token;
    double bias;
} hspec_rt_logit_bias;

/* One request; names, meanings and defaults of hspec_trt.SamplingParams. */
typedef struct {
    size_t size;
    int32_t const* prompt_ids;
    size_t num_prompt_ids;
    int64_t max_tokens;      /* -1: up to the engine's max_seq_len */
    double temperature;      /* 0 is greedy */
    int64_t top_k;           /* 0 is off */
    double top_p;            /* 1 is off */
    double min_p;            /* 0 is off */
    int64_t seed;            /* -1 draws one */
    char const* const* stop; /* strings, each ended by a zero; they need a codec */
    size_t num_stop;
    int32_t const* stop_token_ids;
    size_t num_stop_token_ids;
    int32_t ignore_eos;
    int32_t drafts;       /* 0 off, 1 on, 2 as it pays */
    int32_t num_drafts;   /* 0: as many as the engine has */
    int32_t draft_source; /* -1: the drafter where there is one; 0 drafter, 1 prompt lookup, 2 both */
    int64_t min_tokens;
    double repetition_penalty;
    double presence_penalty;
    double frequency_penalty;
    hspec_rt_logit_bias const* logit_bias;
    size_t num_logit_bias;
    char const* const* bad_words; /* they need a codec */
    size_t num_bad_words;
    int32_t logprobs;  /* most likely tokens to report for each position, 0 to 20 */
    int32_t priority;  /* a higher one overtakes, but never for ever */
    int32_t streaming; /* 1: an update after every step; 0: one, at the end */
} hspec_rt_request;

/* News of one answer. Pointers hold during the callback. */
typedef struct {
    size_t size;
    int64_t id;
    int32_t const* token_ids; /* those since the last update */
    float const* logprobs;    /* under the target's raw distribution */
    size_t num_tokens;
    hspec_rt_result const* result; /* the whole answer, on the last update only; else null */
} hspec_rt_update;

/* Every request that was accepted gets exactly one update with a result. */
typedef void (*hspec_rt_callback)(void* user, hspec_rt_update const* update);

typedef struct {
    size_t size;
    int64_t steps;
    int64_t failed_steps;
    double step_seconds;   /* inside the engine */
    int64_t prompt_tokens; /* run, again after a preemption */
    int64_t new_tokens;    /* kept */
    int64_t cached_tokens; /* prompt tokens that the prefix cache saved */
    int64_t preemptions;
    double accepted_length; /* mean tokens of a decode step; 0 before the first */
    int64_t followed_steps; /* started before the one before was read */
} hspec_rt_stats;

HSPEC_TRT_RUNTIME_API void hspec_rt_runtime_options_init(hspec_rt_runtime_options* options);
HSPEC_TRT_RUNTIME_API void hspec_rt_request_init(hspec_rt_request* request);

/* Takes the engine. */
HSPEC_TRT_RUNTIME_API int32_t hspec_rt_runtime_create(hspec_rt_engine* engine, hspec_rt_runtime_options const* options,
                                                      hspec_rt_runtime** runtime, hspec_rt_error** error);
/* `id` may be null. Faults of the request are told here, all together, and the callback is then never called. */
HSPEC_TRT_RUNTIME_API int32_t hspec_rt_runtime_submit(hspec_rt_runtime* runtime, hspec_rt_request const* request,
                                                      hspec_rt_callback callback, void* user, int64_t* id,
                                                      hspec_rt_error** error);
/* End a request before the next step. Nothing happens where it has ended. */
HSPEC_TRT_RUNTIME_API void hspec_rt_runtime_cancel(hspec_rt_runtime* runtime, int64_t id);
/* Run the loop in a thread of its own, from now to close. */
HSPEC_TRT_RUNTIME_API int32_t hspec_rt_runtime_start(hspec_rt_runtime* runtime, hspec_rt_error** error);
/* Without start: one step in the calling thread. `ran` is 0 where there was nothing to run. */
HSPEC_TRT_RUNTIME_API int32_t hspec_rt_runtime_step(hspec_rt_runtime* runtime, int32_t* ran, hspec_rt_error** error);
/* Finish what is there first (`drain` not 0), or end it with R303. */
HSPEC_TRT_RUNTIME_API int32_t hspec_rt_runtime_close(hspec_rt_runtime* runtime, int32_t drain, hspec_rt_error** error);
HSPEC_TRT_RUNTIME_API void hspec_rt_runtime_limits(hspec_rt_runtime const* runtime, hspec_rt_limits* limits);
HSPEC_TRT_RUNTIME_API void hspec_rt_runtime_stats(hspec_rt_runtime const* runtime, hspec_rt_stats* stats);
/* Closes without draining. */
HSPEC_TRT_RUNTIME_API void hspec_rt_runtime_free(hspec_rt_runtime* runtime);

/* ---- Results: valid during the callback that brings them ---- */

HSPEC_TRT_RUNTIME_API size_t hspec_rt_result_token_ids(hspec_rt_result const* result, int32_t const** ids);
HSPEC_TRT_RUNTIME_API size_t hspec_rt_result_logprobs(hspec_rt_result const* result, float const** logprobs);
/* Most likely tokens of one position, best first: their number, 0 where the request wanted none. Both arrays have room
 * for `room` entries. */
HSPEC_TRT_RUNTIME_API size_t hspec_rt_result_top_logprobs(hspec_rt_result const* result, size_t position, size_t room,
                                                          int32_t* ids, float* logprobs);
/* "eos", "stop_token", "stop_string", "length", "cancelled" or "error". */
HSPEC_TRT_RUNTIME_API char const* hspec_rt_result_finish_reason(hspec_rt_result const* result);
/* With "error": why; null otherwise. Not to be freed. */
HSPEC_TRT_RUNTIME_API hspec_rt_error const* hspec_rt_result_error(hspec_rt_result const* result);
/* lengths[n]: decode steps that emitted n tokens, bonus token included. Returns their number, num_drafts + 2. */
HSPEC_TRT_RUNTIME_API size_t hspec_rt_result_accepted_lengths(hspec_rt_result const* result, int64_t const** lengths);
/* Prompt tokens that were not run because their pages were there. */
HSPEC_TRT_RUNTIME_API int64_t hspec_rt_result_cached_tokens(hspec_rt_result const* result);
HSPEC_TRT_RUNTIME_API int64_t hspec_rt_result_preemptions(hspec_rt_result const* result);

#ifdef __cplusplus
}
#endif

// SPDX-License-Identifier: Apache-2.0
// Continuous batching over one engine: requests from any thread, steps in one.
#pragma once

#include <cstdint>
#include <future>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "hspec_trt/runtime/api.h"
#include "hspec_trt/runtime/request.h"
#include "hspec_trt/runtime/step.h"

namespace hspec_trt {

// How steps are filled; as hspec_trt.runtime.options.SchedulerOptions.
struct SchedulerOptions {
    std::optional<int32_t> maxBatchSize;  // rows of a step; none takes the engine's limit
    std::optional<int32_t> maxNumTokens;  // packed tokens of a step; none takes the engine's limit
    std::optional<int32_t> maxChunk;      // prompt tokens of one row in one step; none is as many as the step takes
    bool prefixCache = true;              // keep pages of ended requests for those that start alike
};

struct RuntimeOptions {
    std::vector<int32_t> eosIds;           // the model's end tokens
    std::shared_ptr<Codec const> codec{};  // for stop strings and bad words
    SchedulerOptions scheduler{};
};

// What the runtime did since it was made.
struct RuntimeStats {
    int64_t steps = 0;
    int64_t failedSteps = 0;
    int64_t followedSteps = 0;  // started before the one before was read; a few of them may have been dropped since
    double stepSeconds = 0.0;   // inside the engine
    int64_t promptTokens = 0;   // run, again after a preemption
    int64_t newTokens = 0;      // kept
    int64_t cachedTokens = 0;   // prompt tokens that the prefix cache saved
    int64_t preemptions = 0;
    std::map<FinishReason, int64_t> finished;
    DraftStats drafts;
};

// Every request that was accepted gets exactly one result, also when the runtime is closed or a step fails.
class HSPEC_TRT_RUNTIME_API Runtime {
  public:
    Runtime(std::unique_ptr<StepEngine> engine, RuntimeOptions options);
    Runtime(Runtime const&) = delete;
    Runtime& operator=(Runtime const&) = delete;
    // Closes without draining.
    ~Runtime();

    // Any thread. Throws Error R1xx, R2xx with all faults of the request, R303 once closed.
    RequestId submit(Request request, TokenCallback callback);
    // The same, for those who want the whole answer only.
    std::future<RequestResult> generate(Request request);
    // Any thread: end a request before the next step. Nothing happens where it has ended.
    void cancel(RequestId id);

    // Run the loop in a thread of its own, from now to `close`.
    void start();
    // Without `start`: run what has come and one step, in the calling thread. False where there was nothing to run.
    bool step();

    // Finish what is there first (`drain`) or end it with R303. Not from a callback.
    void close(bool drain = false);

    Limits const& limits() const;
    // Any thread; figures of the last whole step.
    RuntimeStats stats() const;

  private:
    class Worker;
    std::unique_ptr<Worker> worker_;
};

}  // namespace hspec_trt

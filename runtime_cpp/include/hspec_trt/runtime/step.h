// SPDX-License-Identifier: Apache-2.0
// What the runtime needs of an engine: one step in, one step out, and pages. Names, shapes and types are those of the
// step contract (hspec_trt/contract.py, contract_gen.h). It knows nothing of requests or of a particular backend.
#pragma once

#include <cstdint>
#include <vector>

#include "hspec_trt/runtime/api.h"

namespace hspec_trt {

// Optional parts of the step that an engine was built with.
struct Extensions {
    bool logitEdits = false;
    bool tokenMasks = false;
    bool topLogprobs = false;
    bool feedback = false;  // the device computes the inputs of the next decode step: `follow`
};

// What one engine can take.
struct Limits {
    int32_t vocabSize = 0;  // V; token ids are in [0, vocabSize)
    int32_t numDrafts = 0;  // G, drafts a row may carry
    int32_t pageSize = 0;   // tokens a page holds
    int64_t pageBytes = 0;  // bytes of one page over all layers and pools
    int32_t maxRows = 0;    // R of one step at most
    int32_t maxTokens = 0;  // N of one step at most
    int32_t maxSeqLen = 0;  // prompt plus new tokens of one request
    bool hasDrafter = false;
    int32_t draftMaxPosition = 0;  // positions that the drafter was trained for; drafts lie below it
    int32_t cacheLookahead = 0;    // tokens beyond a page that the drafter's part of it depends on
    Extensions extensions{};

    // Pages that the longest request takes.
    int32_t maxPagesPerRow() const { return (maxSeqLen + pageSize - 1) / pageSize; }
};

// Inputs of the extensions; all empty where a step uses none.
struct StepExtras {
    std::vector<int32_t> editRows;    // [E]
    std::vector<int32_t> editIds;     // [E]
    std::vector<float> editScales;    // [E]
    std::vector<float> editBiases;    // [E]
    std::vector<int32_t> maskRows;    // [L]
    std::vector<uint8_t> tokenMasks;  // [L, V]
    std::vector<int32_t> topRows;     // [J]
};

// The inputs of one step but for the pages, without padding. Rows of a matrix follow one another.
struct StepInputs {
    int32_t numRows = 0;       // R
    int32_t longestQuery = 0;  // T
    int32_t pagesPerRow = 0;   // M

    std::vector<int32_t> inputIds;      // [N]
    std::vector<int32_t> cuQueryLens;   // [R+1]
    std::vector<int32_t> contextLens;   // [R]
    std::vector<int32_t> querySlots;    // [R, T]
    std::vector<int32_t> verifyRows;    // [K], K >= 1
    std::vector<int32_t> cuVerifyLens;  // [R+1]
    std::vector<int32_t> draftRows;     // [D]
    std::vector<int32_t> pageTable;     // [R, M]
    std::vector<float> temperature;     // [R]
    std::vector<float> topP;            // [R]
    std::vector<float> minP;            // [R]
    std::vector<int32_t> topK;          // [R]
    std::vector<int64_t> seed;          // [R]
    std::vector<int32_t> nextIds;       // [R]; for engines whose drafter takes it
    StepExtras extras;
};

// The outputs of one step but for the pages.
struct StepOutputs {
    std::vector<int32_t> emittedIds;     // [R, G+1], accepted drafts, then the bonus token, then -1
    std::vector<int32_t> emittedLens;    // [R]
    std::vector<float> emittedLogprobs;  // [R, G+1]
    std::vector<int32_t> draftIds;       // [D, G]
    std::vector<uint8_t> finite;         // [R]; 0 where a verify row had a non-finite logit
    std::vector<int32_t> topIds;         // [J, C], with the extension topLogprobs
    std::vector<float> topLogprobs;      // [J, C]
    double seconds = 0.0;                // what the step took, as the draft policy shall see it
};

// One loaded engine with its pages. Used by one thread at a time.
class HSPEC_TRT_RUNTIME_API StepEngine {
  public:
    StepEngine() = default;
    StepEngine(StepEngine const&) = delete;
    StepEngine& operator=(StepEngine const&) = delete;
    virtual ~StepEngine() = default;

    virtual Limits const& limits() const = 0;
    // Pages P of the pool, the null page included.
    virtual int32_t numPages() const = 0;

    // Start a step. Work of the host may go on until `finish`; `inputs` may change once this returns.
    // Throws Error R302 when the backend fails; the pages of the rows are then undefined.
    virtual void launch(StepInputs const& inputs) = 0;
    // Wait for the step that was launched. Throws like `launch`.
    virtual void finish(StepOutputs& outputs) = 0;

    // Whether the step that was launched last can be followed: the engine has the extension, and that step drafts for
    // every row, in order, without inputs of other extensions.
    virtual bool canFollow() const { return false; }
    // Start the decode step after the last one, of the same rows with all their drafts, from what the device computes:
    // nobody waits for the last one, and `finish` is due for both, in order. Sampling options stay as they were.
    // pageTable: [R, pagesPerRow], pages for the longest texts that can come. mostContext: [R], the most that the
    // context lengths can be by then. Throws like `launch`; R310 where it cannot.
    virtual void follow(std::vector<int32_t> const& pageTable, int32_t pagesPerRow,
                        std::vector<int32_t> const& mostContext);

    // Forget the steps that are under way: `finish` is not due for them any more. They may still run.
    virtual void drop() {}

    // Zero these pages, so that no NaN reaches their next owner.
    virtual void scrub(std::vector<int32_t> const& pages) = 0;
};

}  // namespace hspec_trt

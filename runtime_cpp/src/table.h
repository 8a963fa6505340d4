// SPDX-License-Identifier: Apache-2.0
// State of the running sequences that every step reads and writes, one line per slot (hspec_trt/runtime/table.py). It
// owns layout and the moving in and out of sequences; which rows a step runs is the scheduler's choice.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "hspec_trt/runtime/step.h"
#include "sequence.h"

namespace hspec_trt {

struct Slot {
    Sequence* sequence = nullptr;
    int32_t known = 0;    // tokens of the sequence
    int32_t context = 0;  // of them in the pages
    int32_t end = 0;      // tokens at which it ends
    int32_t numDrafts = 0;
    int32_t mostDrafts = 0;  // that the request allows in a step
    int32_t numPages = 0;
    int32_t entered = 0;  // pages in the prefix cache
    Drafting mode = Drafting::kOff;
    NoDrafts noDrafts = NoDrafts::kOff;  // why there are none where numDrafts is 0
    bool eos = false;                    // the model's end tokens end it
    bool custom = false;                 // other rules must be looked at
    bool drafter = false;                // its drafts may come from the drafter
    bool lookup = false;                 // its drafts may come from the host
    bool streaming = false;
    bool shaped = false;  // it wants something of its rows of logits
    float temperature = 0.0F;
    float topP = 1.0F;
    float minP = 0.0F;
    int32_t topK = 0;
    int64_t seed = 0;
    DraftStats stats;
};

class SlotTable {
  public:
    SlotTable(Limits const& limits, int32_t numSlots);

    Limits const& limits() const { return limits_; }
    bool hasFreeSlot() const { return !free_.empty(); }
    Slot& operator[](int32_t slot) { return slots_[static_cast<std::size_t>(slot)]; }
    Slot const& operator[](int32_t slot) const { return slots_[static_cast<std::size_t>(slot)]; }

    // [maxSeqLen + G + 1]: a sequence's tokens, then its drafts; there is always one place more.
    int32_t* tokens(int32_t slot) { return tokens_.data() + width_ * static_cast<std::size_t>(slot); }
    int32_t const* tokens(int32_t slot) const { return tokens_.data() + width_ * static_cast<std::size_t>(slot); }
    // Log-probabilities of the output tokens, at the places of the tokens.
    float* logprobs(int32_t slot) { return logprobs_.data() + width_ * static_cast<std::size_t>(slot); }
    // [maxPagesPerRow], page 0 beyond numPages.
    int32_t* pages(int32_t slot) { return pages_.data() + maxPages_ * static_cast<std::size_t>(slot); }
    int32_t const* pages(int32_t slot) const { return pages_.data() + maxPages_ * static_cast<std::size_t>(slot); }

    // Give a sequence a slot. pages: those that already hold its start. defaultEos: its rules are the model's own end
    // tokens and no stop string.
    void moveIn(Sequence& sequence, std::vector<int32_t> const& pages, bool defaultEos);
    // Take a sequence's slot, with its tokens and figures brought up to date; returns its pages.
    std::vector<int32_t> moveOut(Sequence& sequence);

  private:
    Limits limits_;
    std::size_t width_;
    std::size_t maxPages_;
    std::vector<Slot> slots_;
    std::vector<int32_t> tokens_;
    std::vector<float> logprobs_;
    std::vector<int32_t> pages_;
    std::vector<int32_t> free_;
};

}  // namespace hspec_trt

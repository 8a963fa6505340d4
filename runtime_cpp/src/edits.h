// SPDX-License-Identifier: Apache-2.0
// Penalties, biases, bad words and least lengths as edits of single logits, per verify row
// (hspec_trt/runtime/edits.py). The row that verifies draft j sees the text with the drafts before j in it, as if they
// had been accepted: if one was not, the row is never used. So each token is drawn under the same edits with drafts and
// without.
#pragma once

#include <cstddef>
#include <cstdint>
#include <set>
#include <unordered_map>
#include <vector>

#include "hspec_trt/runtime/sampling.h"
#include "hspec_trt/runtime/step.h"

namespace hspec_trt {

// Whether an option edits logits.
bool wantsEdits(SamplingParams const& params);

// The edits of one answer, kept up with its text.
class TextEdits {
  public:
    // endIds: tokens that minTokens keeps from being drawn. badWords: token sequences that must not be completed.
    TextEdits(SamplingParams const& params, std::vector<int32_t> const& prompt, std::set<int32_t> const& endIds,
              std::vector<std::vector<int32_t>> badWords);

    // Add the edits of the rows of one step to `extras`: entry `first` of verify_rows after the text, the ones behind
    // it after each draft. `text` is prompt and output and extends that of the call before.
    void addRows(int32_t const* text, std::size_t size, int32_t const* drafts, int32_t numDrafts, int32_t first,
                 StepExtras& extras);

  private:
    struct Entry {
        int32_t id;
        bool seen = false;  // in prompt or text
        int64_t count = 0;  // times in the text
        double fixed = 0.0;
        bool banned = false;  // in the row that is being made
    };

    std::size_t entry(int32_t token);
    void add(int32_t token);
    void addRow(std::size_t length, std::vector<int32_t> const& context, int32_t row, StepExtras& extras);
    // Tokens that must not come now: end tokens of a short text, and the last token of a bad word.
    std::set<int32_t> banned(std::size_t length, std::vector<int32_t> const& context) const;

    std::size_t promptLen_;
    int64_t minTokens_;
    double repetitionPenalty_;
    double presencePenalty_;
    double frequencyPenalty_;
    std::set<int32_t> endIds_;
    std::vector<std::vector<int32_t>> badWords_;
    std::size_t longestWord_ = 1;
    std::unordered_map<int32_t, std::size_t> places_;  // token id to its entry
    std::vector<Entry> entries_;
    std::size_t committed_;
};

}  // namespace hspec_trt

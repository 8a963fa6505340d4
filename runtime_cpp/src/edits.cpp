// SPDX-License-Identifier: Apache-2.0
#include "edits.h"

#include <algorithm>
#include <utility>

namespace hspec_trt {
namespace {

constexpr double kBanned = -1e30;  // bias of a token that must not be drawn; finite, so that sums over a row stay so

}  // namespace

bool wantsEdits(SamplingParams const& params) {
    return params.minTokens != 0 || params.repetitionPenalty != 1.0 || params.presencePenalty != 0.0 ||
           params.frequencyPenalty != 0.0 || !params.logitBias.empty() || !params.badWords.empty();
}

TextEdits::TextEdits(SamplingParams const& params, std::vector<int32_t> const& prompt, std::set<int32_t> const& endIds,
                     std::vector<std::vector<int32_t>> badWords)
    : promptLen_(prompt.size()),
      minTokens_(params.minTokens),
      repetitionPenalty_(params.repetitionPenalty),
      presencePenalty_(params.presencePenalty),
      frequencyPenalty_(params.frequencyPenalty),
      endIds_(params.minTokens != 0 ? endIds : std::set<int32_t>{}),
      badWords_(std::move(badWords)),
      committed_(prompt.size()) {
    for (auto const& [token, bias] : params.logitBias) {
        entries_[entry(token)].fixed += bias;
    }
    for (std::vector<int32_t> const& word : badWords_) {
        longestWord_ = std::max(longestWord_, word.size());
        if (word.size() == 1) {
            entries_[entry(word[0])].fixed += kBanned;
        }
    }
    if (repetitionPenalty_ != 1.0) {
        for (int32_t token : std::set<int32_t>(prompt.begin(), prompt.end())) {
            entries_[entry(token)].seen = true;
        }
    }
}

void TextEdits::addRows(int32_t const* text, std::size_t size, int32_t const* drafts, int32_t numDrafts, int32_t first,
                        StepExtras& extras) {
    for (; committed_ < size; ++committed_) {
        add(text[committed_]);
    }
    std::vector<int32_t> context(text + size - std::min(longestWord_, size), text + size);
    addRow(size, context, first, extras);
    std::vector<std::pair<std::size_t, bool>> undo;
    for (int32_t j = 0; j < numDrafts; ++j) {
        std::size_t const place = entry(drafts[j]);
        undo.emplace_back(place, entries_[place].seen);
        add(drafts[j]);
        context.push_back(drafts[j]);
        addRow(size + static_cast<std::size_t>(j) + 1, context, first + j + 1, extras);
    }
    for (auto change = undo.rbegin(); change != undo.rend(); ++change) {
        --entries_[change->first].count;
        entries_[change->first].seen = change->second;
    }
}

std::size_t TextEdits::entry(int32_t token) {
    auto const [place, isNew] = places_.try_emplace(token, entries_.size());
    if (isNew) {
        entries_.push_back({token});
    }
    return place->second;
}

void TextEdits::add(int32_t token) {
    Entry& one = entries_[entry(token)];
    one.seen = true;
    ++one.count;
}

void TextEdits::addRow(std::size_t length, std::vector<int32_t> const& context, int32_t row, StepExtras& extras) {
    for (int32_t token : banned(length, context)) {
        entries_[entry(token)].banned = true;
    }
    for (Entry& one : entries_) {
        auto const count = static_cast<double>(one.count);
        double const scale = one.seen ? repetitionPenalty_ : 1.0;
        double const penalty = presencePenalty_ * (one.count > 0 ? 1.0 : 0.0) + frequencyPenalty_ * count;
        double const bias = one.banned ? kBanned : one.fixed - penalty;
        one.banned = false;
        if (scale != 1.0 || bias != 0.0) {
            extras.editRows.push_back(row);
            extras.editIds.push_back(one.id);
            extras.editScales.push_back(static_cast<float>(scale));
            extras.editBiases.push_back(static_cast<float>(bias));
        }
    }
}

std::set<int32_t> TextEdits::banned(std::size_t length, std::vector<int32_t> const& context) const {
    std::set<int32_t> found;
    if (static_cast<int64_t>(length - promptLen_) < minTokens_) {
        found = endIds_;
    }
    for (std::vector<int32_t> const& word : badWords_) {
        std::size_t const start = word.size() - 1;
        if (start > 0 && start <= context.size() &&
            std::equal(word.begin(), word.end() - 1, context.end() - static_cast<std::ptrdiff_t>(start))) {
            found.insert(word.back());
        }
    }
    return found;
}

}  // namespace hspec_trt

// SPDX-License-Identifier: Apache-2.0
// From a request to a sequence (hspec_trt/runtime/intake.py): all checks, and what its options mean for drafts, stops
// and logits. It knows the engine's limits and codec, not the queue; safe to call from any thread.
#pragma once

#include <atomic>
#include <memory>
#include <set>
#include <unordered_set>
#include <vector>

#include "sequence.h"

namespace hspec_trt {

class Intake {
  public:
    // longest: tokens that one request can reach. eosIds: the model's end tokens. codec: null where there is none.
    Intake(Limits const& limits, int32_t longest, std::unordered_set<int32_t> eosIds,
           std::shared_ptr<Codec const> codec);

    // Check one request and make its sequence. Throws Error R1xx, R2xx.
    std::unique_ptr<Sequence> make(Request request, TokenCallback callback);

  private:
    void checkTextOptions(SamplingParams const& params) const;
    Shaper shaper(Request const& request, StopRules const& rules) const;
    std::vector<std::vector<int32_t>> badWordIds(std::vector<std::string> const& words) const;

    Limits limits_;
    int32_t longest_;
    std::unordered_set<int32_t> eosIds_;
    std::shared_ptr<Codec const> codec_;
    std::atomic<RequestId> nextNumber_{1};
};

}  // namespace hspec_trt

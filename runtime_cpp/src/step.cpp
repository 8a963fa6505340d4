// SPDX-License-Identifier: Apache-2.0
#include "hspec_trt/runtime/step.h"

#include "hspec_trt/runtime/error.h"

namespace hspec_trt {

void StepEngine::follow(std::vector<int32_t> const& /*pageTable*/, int32_t /*pagesPerRow*/,
                        std::vector<int32_t> const& /*mostContext*/) {
    throw Error(Fault{"R310", "the last step cannot be followed", "drafts for every row, in order", "", ""});
}

}  // namespace hspec_trt

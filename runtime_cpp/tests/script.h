// SPDX-License-Identifier: Apache-2.0
// The events and options of a recorded trace as requests of this runtime.
#pragma once

#include "hspec_trt/runtime/runtime.h"
#include "json.h"

namespace hspec_trt::tests {

// meta: of the trace.
RuntimeOptions optionsOf(json::Value const& meta);

// stored: the member "submit" of an event.
Request requestOf(json::Value const& stored, int32_t vocabSize);

}  // namespace hspec_trt::tests

// SPDX-License-Identifier: Apache-2.0
// An engine that computes nothing: it gives the outputs of recorded steps, to whoever asks for exactly the recorded
// inputs. For tests, and to try an embedding on a machine without a GPU.
#pragma once

#include <memory>
#include <string>

#include "hspec_trt/runtime/api.h"
#include "hspec_trt/runtime/step.h"

namespace hspec_trt {

// path: a trace, as build_scripts/record_traces.py writes them. A step with other inputs than the recorded ones throws
// Error R320, which says what differs. Throws Error R321 where the file cannot be read or is no trace.
HSPEC_TRT_RUNTIME_API std::unique_ptr<StepEngine> openReplay(std::string const& path);

}  // namespace hspec_trt

// SPDX-License-Identifier: Apache-2.0
// From an engine folder's compiled plan to an engine: plugin library, GPU, TensorRT, versions, in that order. As
// hspec_trt/runtime/trt/loading.py.
#pragma once

#include <memory>

#include "hspec_trt/runtime/engine_folder.h"
#include "hspec_trt/runtime/load.h"
#include "hspec_trt/runtime/step.h"

namespace hspec_trt::trt {

std::unique_ptr<StepEngine> load(EngineFolder const& folder, EngineOptions const& options);

}  // namespace hspec_trt::trt

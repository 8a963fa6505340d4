// SPDX-License-Identifier: Apache-2.0
// From an engine folder to an engine that runs on this machine's GPU.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "hspec_trt/runtime/api.h"
#include "hspec_trt/runtime/engine_folder.h"
#include "hspec_trt/runtime/step.h"

namespace hspec_trt {

struct EngineOptions {
    int32_t device = 0;                      // number of the GPU
    std::optional<int64_t> kvCacheMemory{};  // bytes of the page pools; none takes a share of free memory
    double kvCacheFraction = 0.25;  // that share, above 0, at most 1; never more than full rows of full length need
    bool cudaGraphs = true;         // record decode steps as CUDA graphs
    std::string pluginLibrary{};    // empty: $HSPEC_TRT_PLUGIN_LIBRARY, else the one beside this library
    std::string tensorrtLibrary{};  // empty: $HSPEC_TRT_TENSORRT_LIBRARY, else as the system's loader finds it
};

// Load the engine and give it zeroed pages.
// Throws Error L002 plugin library, L006 nothing to run, L031 the plan is not the contract's, L032 a backend that this
// runtime does not have, L033 no TensorRT library, L035 memory, L036 options, L038 the plan is for another TensorRT or
// GPU, L039 TensorRT refuses it, L042 no GPU or driver.
HSPEC_TRT_RUNTIME_API std::unique_ptr<StepEngine> loadEngine(EngineFolder const& folder,
                                                             EngineOptions const& options = {});

}  // namespace hspec_trt

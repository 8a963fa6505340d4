// SPDX-License-Identifier: Apache-2.0
#include "hspec_trt/runtime/load.h"

#include "bundle/manifest.h"
#include "hspec_trt/runtime/error.h"
#include "shown.h"
#include "trt/loading.h"

namespace hspec_trt {
namespace {

void check(EngineOptions const& options) {
    std::vector<Fault> faults;
    if (options.kvCacheMemory && *options.kvCacheMemory <= 0) {
        faults.push_back(
            {"L036", "kv_cache_memory is " + std::to_string(*options.kvCacheMemory), "a number of bytes", "", ""});
    }
    if (!(options.kvCacheFraction > 0.0 && options.kvCacheFraction <= 1.0)) {
        faults.push_back(
            {"L036", "kv_cache_fraction is " + shown(options.kvCacheFraction), "above 0, at most 1", "", ""});
    }
    if (!faults.empty()) {
        throw Error(std::move(faults));
    }
}

}  // namespace

std::unique_ptr<StepEngine> loadEngine(EngineFolder const& folder, EngineOptions const& options) {
    check(options);
    if (folder.backend() == "onnxruntime") {
        throw Error(Fault{"L032", "backend 'onnxruntime' cannot be run here", "one of tensorrt-rtx, tensorrt",
                          folder.path(), "Build with --backend tensorrt-rtx or tensorrt, or run it from Python"});
    }
    return trt::load(folder, options);
}

}  // namespace hspec_trt

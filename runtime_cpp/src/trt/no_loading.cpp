// SPDX-License-Identifier: Apache-2.0
// Stands for src/trt where the library is compiled without CUDA's and TensorRT's headers.
#include "hspec_trt/runtime/error.h"
#include "trt/loading.h"

namespace hspec_trt::trt {

std::unique_ptr<StepEngine> load(EngineFolder const& folder, EngineOptions const& /*options*/) {
    throw Error(Fault{"L032", "this runtime was compiled without the headers of " + folder.backend(), "", "",
                      "Compile it with CUDA_INCLUDE_DIR and TENSORRT_INCLUDE_DIR or TENSORRT_RTX_INCLUDE_DIR"});
}

}  // namespace hspec_trt::trt

// SPDX-License-Identifier: Apache-2.0
#include "trt/plan_flavours.h"

namespace hspec_trt::trt {

std::vector<Flavour> const& flavours() {
    static std::vector<Flavour> const compiled{
#ifdef HSPEC_TRT_WITH_TENSORRT
        enterprise::flavour(),
#endif
#ifdef HSPEC_TRT_WITH_TENSORRT_RTX
        rtx::flavour(),
#endif
    };
    return compiled;
}

}  // namespace hspec_trt::trt

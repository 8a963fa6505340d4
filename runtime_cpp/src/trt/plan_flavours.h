// SPDX-License-Identifier: Apache-2.0
// What plan.cpp gives in each of its compilations.
#pragma once

#include "trt/plan.h"

namespace hspec_trt::trt {

namespace enterprise {
Flavour flavour();
}
namespace rtx {
Flavour flavour();
}

}  // namespace hspec_trt::trt

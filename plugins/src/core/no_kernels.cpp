// SPDX-License-Identifier: Apache-2.0
// Stands in for the generated table in a library that only builds engines: no kernel is embedded, launches say so.
#include "kernel_table.h"

namespace hspec_trt {

// A table has at least one row in C++; kNumKernelVariants says that there is none.
KernelVariant const kKernelVariants[1] = {};
std::size_t const kNumKernelVariants = 0;

unsigned char const* kernelBlob() {
    return nullptr;
}

}  // namespace hspec_trt

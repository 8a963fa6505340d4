// SPDX-License-Identifier: Apache-2.0
// Makes three contexts of a plan on the stand-in for TensorRT for RTX, which prints what each is made with.
#include <dlfcn.h>

#include <cstdio>
#include <memory>
#include <string>

#include "trt/plan_flavours.h"

int main() {
    using hspec_trt::trt::kDecodeProfile;
    using hspec_trt::trt::kMixedProfile;
    std::string const text = "input x float32 1\noutput y float32 1\nprofiles 2\n";
    try {
        auto const library = hspec_trt::trt::rtx::flavour().open(dlopen(nullptr, RTLD_NOW));
        auto const plan = library->deserialize(text.data(), text.size());
        for (int32_t const profile : {kMixedProfile, kDecodeProfile, kDecodeProfile}) {
            plan->context(profile, 0, 0, nullptr);
        }
    } catch (hspec_trt::trt::PlanError const& error) {
        std::puts(error.what());
        return 1;
    }
    return 0;
}

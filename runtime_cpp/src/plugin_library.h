// SPDX-License-Identifier: Apache-2.0
// Finds the plugin library and checks what it says of itself before TensorRT sees it. As hspec_trt/native.py.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace hspec_trt {

// An opened plugin library that agrees with this runtime's contract. It stays open: TensorRT keeps its plugins.
struct PluginLibrary {
    std::string path;
    std::string tensorrtVersion;  // of the headers that it was built with
    std::vector<int64_t> sm;      // architectures that it holds machine code for
    std::vector<int64_t> ptx;     // architectures that it holds PTX for, a fallback for newer GPUs

    bool runsOn(int64_t deviceSm) const;

    // The library's path: `given`, else the environment's, else the one beside this runtime.
    // Throws Error L002 where there is none.
    static std::string find(std::string const& given);
    // Throws Error L002 where it is no plugin library of ours or one of another contract; all differences together.
    static PluginLibrary open(std::string const& path);
};

}  // namespace hspec_trt

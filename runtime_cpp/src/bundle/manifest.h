// SPDX-License-Identifier: Apache-2.0
// The manifest of an engine folder, checked: what the runtime needs of it. As hspec_trt/bundle/manifest.py, which owns
// the format.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "hspec_trt/runtime/step.h"
#include "json.h"

namespace hspec_trt {

// Identity of one file of the folder.
struct FileRecord {
    std::string name;
    int64_t size = 0;  // bytes
    std::string sha256;
    std::string sampleSha256;  // of evenly spread blocks
};

// One thing that can be run.
struct Artifact {
    std::string file;
    std::string tensorrtVersion;  // that made a compiled plan
    std::vector<int64_t> sm;      // GPU architectures of a compiled plan, such as 89
};

struct Manifest {
    std::string backend;  // "onnxruntime", "tensorrt-rtx" or "tensorrt"
    bool pluginKernels = false;
    Limits limits;  // pageBytes is the engine's to fill in
    std::vector<int32_t> eosIds;
    std::vector<Artifact> artifacts;
    std::vector<FileRecord> files;

    // Throws Error L003 not a manifest, L004 another format or contract version. `where` is its path, for messages.
    static Manifest parse(std::string_view text, std::string const& where);
};

// A JSON value as messages show it: one short line of ASCII.
std::string shownValue(json::Value const& value);
std::string shownText(std::string_view text);

}  // namespace hspec_trt

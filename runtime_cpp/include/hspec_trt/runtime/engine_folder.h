// SPDX-License-Identifier: Apache-2.0
// An engine folder, opened and checked: manifest, versions, sizes and hashes. Codes and texts as hspec_trt/bundle.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "hspec_trt/runtime/api.h"
#include "hspec_trt/runtime/step.h"

namespace hspec_trt {

struct Manifest;

// Cheap to copy; safe in several threads at a time.
class HSPEC_TRT_RUNTIME_API EngineFolder {
  public:
    // Open and check a folder. `whole` hashes every file from end to end, not only samples of large ones.
    // Throws Error L003 and L004 manifest, L005 a file is missing or changed, L007 no such folder, L008 it cannot be
    // read.
    static EngineFolder open(std::string const& path, bool whole = false);

    std::string const& path() const { return path_; }
    // "onnxruntime", "tensorrt-rtx" or "tensorrt".
    std::string const& backend() const;
    // What the engine takes; pageBytes is 0, only a loaded engine knows it.
    Limits const& limits() const;
    // The model's end tokens.
    std::vector<int32_t> const& eosIds() const;
    // Path of a file of the folder. Throws Error L006 where the manifest names no such file.
    std::string file(std::string const& name) const;
    // Content of a small file such as tokenizer.json; none where the engine has none.
    std::optional<std::string> text(std::string const& name) const;

    Manifest const& manifest() const { return *manifest_; }

  private:
    EngineFolder(std::string path, std::shared_ptr<Manifest const> manifest);

    std::string path_;
    std::shared_ptr<Manifest const> manifest_;
};

}  // namespace hspec_trt

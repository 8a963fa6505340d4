// SPDX-License-Identifier: Apache-2.0
// Paths as both runtimes show them.
#pragma once

#include <string>

namespace hspec_trt::paths {

// Collapsed as Python's pathlib does: no doubled slashes, no ".", ".." left as it is.
std::string collapsed(std::string const& path);

std::string joined(std::string const& folder, std::string const& name);

// The folder of the library that this code is in.
std::string ownFolder();

}  // namespace hspec_trt::paths

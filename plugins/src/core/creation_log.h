// SPDX-License-Identifier: Apache-2.0
// Which plugins were created for networks in this process, for the inspection of a build.
#pragma once

#include <string>

namespace hspec_trt {

// `description` is a JSON object that describes the plugin.
void noteCreation(std::string const& name, std::string const& description);

// JSON list of {"name", "plugin"}; valid until the next call of the same thread.
char const* createdPlugins();

}  // namespace hspec_trt

// SPDX-License-Identifier: Apache-2.0
// The only list of ops, and the description of the library.
#pragma once

#include <array>
#include <string>

#include "core/op_definition.h"

namespace hspec_trt {

constexpr std::size_t kNumOps = sizeof(contract::kOps) / sizeof(contract::kOps[0]);

std::array<OpDefinition const*, kNumOps> const& allOps();

// By name, or nullptr.
OpDefinition const* findOp(std::string const& name);

// JSON for hspec_trt_describe.
std::string describeLibrary();

}  // namespace hspec_trt

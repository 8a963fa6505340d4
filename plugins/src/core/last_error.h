// SPDX-License-Identifier: Apache-2.0
// The calling thread's last failure, for the C interface.
#pragma once

#include <string>

namespace hspec_trt {

void setLastError(std::string const& message);
char const* lastError();

}  // namespace hspec_trt

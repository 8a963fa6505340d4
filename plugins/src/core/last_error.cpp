// SPDX-License-Identifier: Apache-2.0
#include "core/last_error.h"

namespace hspec_trt {
namespace {

std::string& slot() {
    thread_local std::string message;
    return message;
}

}  // namespace

void setLastError(std::string const& message) {
    slot() = message;
}

char const* lastError() {
    return slot().c_str();
}

}  // namespace hspec_trt

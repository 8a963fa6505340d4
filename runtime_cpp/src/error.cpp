// SPDX-License-Identifier: Apache-2.0
#include "hspec_trt/runtime/error.h"

#include <utility>

namespace hspec_trt {

std::string Fault::message() const {
    std::string text = found;
    if (!needed.empty()) {
        text += "; needed: " + needed;
    }
    if (!where.empty()) {
        text += " (" + where + ")";
    }
    if (!fix.empty()) {
        text += ". " + fix;
    }
    return text;
}

std::string Fault::text() const {
    return "error[" + code + "]: " + message();
}

Error::Error(Fault fault) : Error(std::vector<Fault>{std::move(fault)}) {}

Error::Error(std::vector<Fault> faults) : faults_(std::move(faults)) {
    for (Fault const& fault : faults_) {
        text_ += (text_.empty() ? "" : "\n") + fault.text();
    }
}

}  // namespace hspec_trt

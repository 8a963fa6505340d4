// SPDX-License-Identifier: Apache-2.0
// Messages of the plugins go to TensorRT's logger; before there is one, to standard error.
#pragma once

#include <string>

namespace nvinfer1 {
class ILoggerFinder;
}

namespace hspec_trt {

void useLoggerFinder(nvinfer1::ILoggerFinder* finder);
void logError(std::string const& message);

}  // namespace hspec_trt

// SPDX-License-Identifier: Apache-2.0
// A CUDA driver (libcuda.so.1) that runs nothing and writes down what it is asked, line by line.
#pragma once

#include <string>

namespace recording {

// Append a line to the record.
void note(std::string const& line);

}  // namespace recording

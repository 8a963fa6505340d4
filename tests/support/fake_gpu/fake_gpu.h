// SPDX-License-Identifier: Apache-2.0
// A stand-in for a GPU machine on host memory: the driver (libcuda.so.1) and TensorRT in one library. Work is kept
// until somebody waits for it, so that memory which is touched too early or freed too soon shows.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <functional>

namespace fake {

// Do something in a stream's order; recorded where the stream is being captured.
void enqueue(CUstream stream, std::function<void()> work);

// Whether it is.
bool capturing(CUstream stream);

// Whether a call of that name shall fail, as the environment says: FAKE_GPU_FAIL=name, or name:3 for the third one.
bool fails(char const* call);

}  // namespace fake

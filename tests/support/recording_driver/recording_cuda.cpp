// SPDX-License-Identifier: Apache-2.0
// The driver's side. The "code" of a kernel is a text of words: its name and constants, then the bytes of each of its
// parameters ("8,8,4"). Kernels are loaded lazily, as under CUDA_MODULE_LOADING=LAZY: a launch loads what was not.
#include <cuda.h>

#include <cstdint>
#include <cstring>
#include <sstream>
#include <string>

#include "record.h"

namespace {

constexpr int kMajor = 8;
constexpr int kMinor = 0;
constexpr int kMultiprocessors = 20;
constexpr unsigned kSharedWithoutOptIn = 48 * 1024;

struct FakeKernel {
    std::string name;
    std::string constants;
    std::string sizes;
    unsigned allowedShared = kSharedWithoutOptIn;
    bool loaded = false;
};

std::string& record() {
    static std::string lines;
    return lines;
}

FakeKernel& kernelOf(void* handle) {
    return *static_cast<FakeKernel*>(handle);
}

// The values of a launch's parameters, whose sizes the code tells.
std::string values(FakeKernel const& kernel, void** params) {
    std::ostringstream out;
    std::istringstream sizes(kernel.sizes);
    for (std::string size; std::getline(sizes, size, ','); ++params) {
        uint64_t value = 0;
        std::memcpy(&value, *params, std::stoul(size));
        out << value << ' ';
    }
    return out.str();
}

}  // namespace

void recording::note(std::string const& line) {
    record() += line + "\n";
}

extern "C" {

// What was recorded since the last call.
char const* recording_take() {
    static std::string taken;
    taken.swap(record());
    record().clear();
    return taken.c_str();
}

CUresult cuInit(unsigned) {
    return CUDA_SUCCESS;
}
CUresult cuCtxGetDevice(CUdevice* device) {
    recording::note("cuCtxGetDevice");
    *device = 0;
    return CUDA_SUCCESS;
}
CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute attribute, CUdevice) {
    *value = attribute == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR   ? kMajor
             : attribute == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR ? kMinor
                                                                         : kMultiprocessors;
    return CUDA_SUCCESS;
}
CUresult cuLibraryLoadData(CUlibrary* library, void const* code, CUjit_option*, void**, unsigned, CUlibraryOption*,
                           void**, unsigned) {
    recording::note("cuLibraryLoadData");
    auto* const made = new FakeKernel;
    std::istringstream(static_cast<char const*>(code)) >> made->name >> made->constants >> made->sizes;
    *library = reinterpret_cast<CUlibrary>(made);
    return CUDA_SUCCESS;
}
CUresult cuLibraryGetKernel(CUkernel* kernel, CUlibrary library, char const* name) {
    recording::note("cuLibraryGetKernel");
    *kernel = reinterpret_cast<CUkernel>(library);
    return kernelOf(library).name == name ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}
CUresult cuKernelGetFunction(CUfunction* function, CUkernel kernel) {
    recording::note("cuKernelGetFunction");
    *function = reinterpret_cast<CUfunction>(kernel);
    return CUDA_SUCCESS;
}
CUresult cuFuncLoad(CUfunction function) {
    recording::note("cuFuncLoad");
    kernelOf(function).loaded = true;
    return CUDA_SUCCESS;
}
CUresult cuKernelSetAttribute(CUfunction_attribute, int value, CUkernel kernel, CUdevice) {
    recording::note("cuKernelSetAttribute");
    kernelOf(kernel).allowedShared = static_cast<unsigned>(value);
    return CUDA_SUCCESS;
}
CUresult cuLaunchKernel(CUfunction function, unsigned gridX, unsigned gridY, unsigned gridZ, unsigned blockX,
                        unsigned blockY, unsigned blockZ, unsigned sharedBytes, CUstream stream, void** params,
                        void**) {
    FakeKernel& kernel = kernelOf(function);
    if (!kernel.loaded) {
        recording::note("lazy load");
        kernel.loaded = true;
    }
    if (sharedBytes > kernel.allowedShared || blockY != 1 || blockZ != 1) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    std::ostringstream line;
    line << "launch " << kernel.name << ' ' << kernel.constants << ' ' << gridX << ' ' << gridY << ' ' << gridZ << ' '
         << blockX << ' ' << sharedBytes << ' ' << reinterpret_cast<uintptr_t>(stream) << ' ' << values(kernel, params);
    recording::note(line.str());
    return CUDA_SUCCESS;
}
CUresult cuGetErrorName(CUresult, char const** name) {
    *name = "CUDA_ERROR";
    return CUDA_SUCCESS;
}
CUresult cuGetErrorString(CUresult, char const** text) {
    *text = "as the recording driver says";
    return CUDA_SUCCESS;
}

}  // extern "C"

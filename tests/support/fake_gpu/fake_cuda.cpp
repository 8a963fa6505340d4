// SPDX-License-Identifier: Apache-2.0
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "fake_gpu.h"

using Work = std::function<void()>;

struct CUstream_st {
    std::deque<Work> waiting;
    std::vector<Work>* captured = nullptr;
    std::size_t done = 0;    // works that were run
    std::size_t queued = 0;  // works that were asked for

    void run(std::size_t until) {
        for (; done < until; ++done) {
            waiting.front()();
            waiting.pop_front();
        }
    }
};
struct CUevent_st {
    CUstream stream = nullptr;
    std::size_t mark = 0;
};
struct CUgraph_st {
    std::vector<Work> works;
};
struct CUgraphExec_st {
    std::vector<Work> works;
};

namespace fake {

bool fails(char const* call) {
    static std::map<std::string, int> calls;
    char const* asked = std::getenv("FAKE_GPU_FAIL");
    std::string const text = asked == nullptr ? "" : asked;
    std::size_t const colon = text.find(':');
    if (text.substr(0, colon) != call) {
        return false;
    }
    return colon == std::string::npos || ++calls[call] == std::atoi(text.c_str() + colon + 1);
}

bool capturing(CUstream stream) {
    return stream->captured != nullptr;
}

void enqueue(CUstream stream, Work work) {
    if (stream->captured != nullptr) {
        stream->captured->push_back(std::move(work));
        return;
    }
    stream->waiting.push_back(std::move(work));
    ++stream->queued;
}

}  // namespace fake

namespace {

int context = 0;  // its address stands for the context
thread_local CUcontext current = nullptr;
std::map<std::uintptr_t, std::size_t> blocks;  // device memory
std::size_t used = 0;
int64_t graphLaunches = 0;

constexpr std::size_t kTotal = std::size_t{1} << 30;

bool onDevice(CUdeviceptr address, std::size_t bytes) {
    auto block = blocks.upper_bound(address);
    if (block == blocks.begin()) {
        return false;
    }
    --block;
    return address + bytes <= block->first + block->second;
}

// The status of a call: what the environment asks for, an invalid context, or success.
CUresult status(char const* call) {
    if (fake::fails(call)) {
        return CUDA_ERROR_UNKNOWN;
    }
    return current == nullptr ? CUDA_ERROR_INVALID_CONTEXT : CUDA_SUCCESS;
}

void* host(CUdeviceptr address) {
    return reinterpret_cast<void*>(address);
}

}  // namespace

#define FAKE_STATUS()                                          \
    do {                                                       \
        if (CUresult const code = status(__func__); code != 0) \
            return code;                                       \
    } while (false)

extern "C" {

CUresult cuInit(unsigned int) {
    return fake::fails("cuInit") ? CUDA_ERROR_NO_DEVICE : CUDA_SUCCESS;
}
CUresult cuDeviceGetCount(int* count) {
    *count = fake::fails("cuDeviceGetCount") ? 0 : 1;
    return CUDA_SUCCESS;
}
CUresult cuDeviceGet(CUdevice* device, int ordinal) {
    *device = ordinal;
    return CUDA_SUCCESS;
}
CUresult cuDeviceGetName(char* name, int size, CUdevice) {
    std::strncpy(name, "Host GPU", static_cast<std::size_t>(size));
    return CUDA_SUCCESS;
}
CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute attribute, CUdevice) {
    *value = attribute == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR ? 9 : 0;
    return CUDA_SUCCESS;
}
CUresult cuDevicePrimaryCtxRetain(CUcontext* made, CUdevice) {
    *made = reinterpret_cast<CUcontext>(&context);
    return CUDA_SUCCESS;
}
CUresult cuDevicePrimaryCtxRelease(CUdevice) {
    return CUDA_SUCCESS;
}
CUresult cuCtxSetCurrent(CUcontext wanted) {
    current = wanted;
    return CUDA_SUCCESS;
}
CUresult cuMemGetInfo(std::size_t* free, std::size_t* total) {
    FAKE_STATUS();
    *free = kTotal - used;
    *total = kTotal;
    return CUDA_SUCCESS;
}
CUresult cuMemAlloc(CUdeviceptr* address, std::size_t bytes) {
    FAKE_STATUS();
    if (used + bytes > kTotal) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    void* made = std::aligned_alloc(256, (bytes + 255) / 256 * 256);
    std::memset(made, 0xAB, bytes);
    *address = reinterpret_cast<CUdeviceptr>(made);
    blocks[*address] = bytes;
    used += bytes;
    return CUDA_SUCCESS;
}
CUresult cuMemFree(CUdeviceptr address) {
    FAKE_STATUS();
    auto const block = blocks.find(address);
    if (block == blocks.end()) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    used -= block->second;
    blocks.erase(block);
    std::free(host(address));
    return CUDA_SUCCESS;
}
CUresult cuMemHostAlloc(void** address, std::size_t bytes, unsigned int) {
    FAKE_STATUS();
    *address = std::malloc(bytes);
    return CUDA_SUCCESS;
}
CUresult cuMemFreeHost(void* address) {
    std::free(address);
    return CUDA_SUCCESS;
}
CUresult cuMemcpyHtoDAsync(CUdeviceptr target, void const* source, std::size_t bytes, CUstream stream) {
    FAKE_STATUS();
    if (!onDevice(target, bytes)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    fake::enqueue(stream, [=] { std::memcpy(host(target), source, bytes); });
    return CUDA_SUCCESS;
}
CUresult cuMemcpyDtoHAsync(void* target, CUdeviceptr source, std::size_t bytes, CUstream stream) {
    FAKE_STATUS();
    if (!onDevice(source, bytes)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    fake::enqueue(stream, [=] { std::memcpy(target, host(source), bytes); });
    return CUDA_SUCCESS;
}
CUresult cuMemcpyDtoDAsync(CUdeviceptr target, CUdeviceptr source, std::size_t bytes, CUstream stream) {
    FAKE_STATUS();
    if (!onDevice(target, bytes) || !onDevice(source, bytes)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    fake::enqueue(stream, [=] { std::memcpy(host(target), host(source), bytes); });
    return CUDA_SUCCESS;
}
CUresult cuMemsetD8Async(CUdeviceptr target, unsigned char value, std::size_t bytes, CUstream stream) {
    FAKE_STATUS();
    if (!onDevice(target, bytes)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    fake::enqueue(stream, [=] { std::memset(host(target), value, bytes); });
    return CUDA_SUCCESS;
}
CUresult cuStreamCreate(CUstream* stream, unsigned int) {
    FAKE_STATUS();
    *stream = new CUstream_st;
    return CUDA_SUCCESS;
}
CUresult cuStreamDestroy(CUstream stream) {
    delete stream;
    return CUDA_SUCCESS;
}
CUresult cuStreamSynchronize(CUstream stream) {
    FAKE_STATUS();
    stream->run(stream->queued);
    return CUDA_SUCCESS;
}
CUresult cuEventCreate(CUevent* event, unsigned int) {
    FAKE_STATUS();
    *event = new CUevent_st;
    return CUDA_SUCCESS;
}
CUresult cuEventDestroy(CUevent event) {
    delete event;
    return CUDA_SUCCESS;
}
CUresult cuEventRecord(CUevent event, CUstream stream) {
    FAKE_STATUS();
    *event = {stream, stream->queued};
    return CUDA_SUCCESS;
}
CUresult cuEventSynchronize(CUevent event) {
    FAKE_STATUS();
    if (event->stream != nullptr) {
        event->stream->run(event->mark);
    }
    return CUDA_SUCCESS;
}
CUresult cuStreamBeginCapture(CUstream stream, CUstreamCaptureMode) {
    FAKE_STATUS();
    stream->captured = new std::vector<Work>;
    return CUDA_SUCCESS;
}
CUresult cuStreamEndCapture(CUstream stream, CUgraph* graph) {
    std::unique_ptr<std::vector<Work>> const works(stream->captured);
    stream->captured = nullptr;
    FAKE_STATUS();
    *graph = new CUgraph_st{*works};
    return CUDA_SUCCESS;
}
CUresult cuGraphInstantiateWithFlags(CUgraphExec* executable, CUgraph graph, unsigned long long) {
    FAKE_STATUS();
    *executable = new CUgraphExec_st{graph->works};
    return CUDA_SUCCESS;
}
CUresult cuGraphDestroy(CUgraph graph) {
    delete graph;
    return CUDA_SUCCESS;
}
CUresult cuGraphExecDestroy(CUgraphExec graph) {
    delete graph;
    return CUDA_SUCCESS;
}
CUresult cuGraphLaunch(CUgraphExec graph, CUstream stream) {
    FAKE_STATUS();
    ++graphLaunches;
    for (Work const& work : graph->works) {
        fake::enqueue(stream, work);
    }
    return CUDA_SUCCESS;
}
int64_t fake_gpu_graph_launches(void) {
    return graphLaunches;
}
CUresult cuGetErrorName(CUresult code, char const** name) {
    *name = code == CUDA_ERROR_OUT_OF_MEMORY ? "CUDA_ERROR_OUT_OF_MEMORY"
            : code == CUDA_ERROR_NO_DEVICE   ? "CUDA_ERROR_NO_DEVICE"
                                             : "CUDA_ERROR";
    return CUDA_SUCCESS;
}
CUresult cuGetErrorString(CUresult, char const** text) {
    *text = "as the fake GPU was told";
    return CUDA_SUCCESS;
}

}  // extern "C"

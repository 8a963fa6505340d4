// SPDX-License-Identifier: Apache-2.0
// The C interface of the plugin library once more, but by way of what TensorRT calls: getWorkspaceSize while it builds;
// attachToContext, onShapeChange and enqueue while it runs. PLUGIN_LIBRARY in the environment names the library.
#include <NvInferRuntime.h>
#include <dlfcn.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#include "hspec_trt/contract_gen.h"
#include "hspec_trt/plugins.h"
#include "record.h"

namespace {

using namespace nvinfer1;
namespace contract = hspec_trt::contract;

void* symbol(char const* name) {
    static void* const library = dlopen(std::getenv("PLUGIN_LIBRARY"), RTLD_NOW | RTLD_LOCAL);
    return dlsym(library, name);
}

IPluginCreatorV3One* creatorOf(char const* op) {
    auto const getCreators = reinterpret_cast<IPluginCreatorInterface* const* (*)(int32_t&)>(symbol("getCreators"));
    int32_t count = 0;
    IPluginCreatorInterface* const* creators = getCreators(count);
    for (int32_t i = 0; i < count; ++i) {
        auto* const creator = static_cast<IPluginCreatorV3One*>(creators[i]);
        if (std::strcmp(creator->getPluginName(), op) == 0) {
            return creator;
        }
    }
    return nullptr;
}

contract::OpSpec const& specOf(char const* op) {
    contract::OpSpec const* const* spec = contract::kOps;
    while (std::strcmp((*spec)->name, op) != 0) {
        ++spec;
    }
    return **spec;
}

std::unique_ptr<IPluginV3> create(contract::OpSpec const& spec, int32_t const* attributes, TensorRTPhase phase) {
    std::vector<PluginField> fields;
    for (int32_t i = 0; i < spec.numAttributes; ++i) {
        bool const isInt = spec.attributes[i].type == contract::AttributeType::kInt;
        auto const type = isInt ? PluginFieldType::kINT32 : PluginFieldType::kFLOAT32;
        fields.emplace_back(spec.attributes[i].name, attributes + i, type, 1);
    }
    PluginFieldCollection const collection{static_cast<int32_t>(fields.size()), fields.data()};
    return std::unique_ptr<IPluginV3>(creatorOf(spec.name)->createPlugin("node", &collection, phase));
}

std::vector<PluginTensorDesc> described(hspec_trt_tensor const* tensors, int32_t count) {
    constexpr DataType kTypes[] = {DataType::kFLOAT, DataType::kHALF,  DataType::kBF16,
                                   DataType::kINT32, DataType::kINT64, DataType::kBOOL};
    std::vector<PluginTensorDesc> descs;
    for (int32_t i = 0; i < count; ++i) {
        Dims dims{tensors[i].rank, {}};
        std::copy_n(tensors[i].dims, tensors[i].rank, dims.d);
        descs.push_back({dims, kTypes[tensors[i].dtype], TensorFormat::kLINEAR, 1.0F});
    }
    return descs;
}

std::vector<void*> addresses(hspec_trt_tensor const* tensors, int32_t count) {
    std::vector<void*> found;
    for (int32_t i = 0; i < count; ++i) {
        found.push_back(tensors[i].data);
    }
    return found;
}

}  // namespace

char const* hspec_trt_last_error(void) {
    return reinterpret_cast<char const* (*)()>(symbol("hspec_trt_last_error"))();
}

int32_t hspec_trt_workspace_bytes(char const* op, int32_t const* attributes, hspec_trt_tensor const* inputs,
                                  size_t* bytes) {
    contract::OpSpec const& spec = specOf(op);
    std::unique_ptr<IPluginV3> const plugin = create(spec, attributes, TensorRTPhase::kBUILD);
    std::vector<DynamicPluginTensorDesc> descs;
    for (PluginTensorDesc const& desc : described(inputs, spec.numInputs)) {
        descs.push_back({desc, desc.dims, desc.dims, desc.dims});
    }
    auto* const build = static_cast<IPluginV3OneBuildV2*>(plugin->getCapabilityInterface(PluginCapabilityType::kBUILD));
    *bytes = build->getWorkspaceSize(descs.data(), spec.numInputs, nullptr, spec.numOutputs);
    return 0;
}

int32_t hspec_trt_launch(char const* op, int32_t const* attributes, hspec_trt_tensor const* inputs,
                         hspec_trt_tensor const* outputs, void* workspace, size_t /*workspace_bytes*/, void* stream) {
    contract::OpSpec const& spec = specOf(op);
    std::unique_ptr<IPluginV3> const plugin = create(spec, attributes, TensorRTPhase::kRUNTIME);
    auto* const loaded =
        static_cast<IPluginV3OneRuntime*>(plugin->getCapabilityInterface(PluginCapabilityType::kRUNTIME));
    std::unique_ptr<IPluginV3> const attached(loaded->attachToContext(nullptr));
    auto* const runtime =
        static_cast<IPluginV3OneRuntime*>(attached->getCapabilityInterface(PluginCapabilityType::kRUNTIME));
    std::vector<PluginTensorDesc> const in = described(inputs, spec.numInputs);
    std::vector<PluginTensorDesc> const out = described(outputs, spec.numOutputs);
    if (runtime->onShapeChange(in.data(), spec.numInputs, out.data(), spec.numOutputs) != 0) {
        return 1;
    }
    recording::note("enqueue");
    std::vector<void*> const inputData = addresses(inputs, spec.numInputs);
    std::vector<void*> const outputData = addresses(outputs, spec.numOutputs);
    return runtime->enqueue(in.data(), out.data(), inputData.data(), outputData.data(), workspace,
                            static_cast<cudaStream_t>(stream));
}

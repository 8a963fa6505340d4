// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <vector>

#include "core/creation_log.h"
#include "core/last_error.h"
#include "core/op_rules.h"
#include "core/registry.h"
#include "hspec_trt/plugins.h"

namespace hspec_trt {
namespace {

constexpr int32_t kMaxDType = static_cast<int32_t>(DType::kBool);

int32_t finish(Status const& status) {
    if (status.isOk()) {
        return 0;
    }
    setLastError(status.message());
    return 1;
}

Status convert(hspec_trt_tensor const* given, int32_t count, std::vector<Tensor>* tensors) {
    for (int32_t i = 0; i < count; ++i) {
        if (given[i].dtype < 0 || given[i].dtype > kMaxDType || given[i].rank < 0 || given[i].rank > kMaxRank) {
            return Status::error("operand " + std::to_string(i) + " has dtype " + std::to_string(given[i].dtype) +
                                 " and rank " + std::to_string(given[i].rank) + ", needed: dtype 0 to 5, rank 0 to 8");
        }
        Tensor tensor{given[i].data, static_cast<DType>(given[i].dtype), {given[i].rank, {}}};
        std::copy_n(given[i].dims, given[i].rank, tensor.shape.dims.begin());
        tensors->push_back(tensor);
    }
    return Status::ok();
}

// A node as the C interface describes it.
struct Node {
    OpDefinition const* definition = nullptr;
    AttributeWords attributes{};
    std::vector<Tensor> inputs;

    std::vector<Shape> shapes() const {
        std::vector<Shape> shapes;
        for (Tensor const& tensor : inputs) {
            shapes.push_back(tensor.shape);
        }
        return shapes;
    }
};

Status readNode(char const* op, int32_t const* attributes, hspec_trt_tensor const* inputs, Node* node) {
    node->definition = findOp(op);
    if (node->definition == nullptr) {
        return Status::error(std::string("no op is called ") + op);
    }
    contract::OpSpec const& spec = node->definition->spec;
    std::copy_n(attributes, spec.numAttributes, node->attributes.begin());
    HSPEC_TRT_RETURN_IF_ERROR(node->definition->checkAttributes(node->attributes).within(op));
    return convert(inputs, spec.numInputs, &node->inputs);
}

Status checkKernels(Node const& node, int32_t sm) {
    DType const kvDtype = node.inputs.front().dtype;
    std::vector<Shape> const shapes = node.shapes();
    for (KernelRequest const& kernel : node.definition->kernels(node.attributes, kvDtype, shapes.data())) {
        KernelVariant const* variant = nullptr;
        HSPEC_TRT_RETURN_IF_ERROR(findVariant(kernel, sm, &variant));
    }
    auto const checkSizes = node.definition->checkSizes;
    return checkSizes == nullptr ? Status::ok() : checkSizes(node.attributes, kvDtype, shapes.data());
}

Status launch(Node const& node, hspec_trt_tensor const* outputs, void* workspace, size_t workspaceBytes, void* stream) {
    std::vector<Tensor> results;
    OpRules rules;
    HSPEC_TRT_RETURN_IF_ERROR(convert(outputs, node.definition->spec.numOutputs, &results));
    HSPEC_TRT_RETURN_IF_ERROR(OpRules::create(node.definition->spec, node.attributes, &rules));
    HSPEC_TRT_RETURN_IF_ERROR(rules.check(node.inputs.data(), results.data()));
    std::size_t const needed = node.definition->workspaceBytes(node.attributes, node.shapes().data());
    if (workspaceBytes < needed) {
        return Status::error("the workspace has " + std::to_string(workspaceBytes) +
                             " bytes, needed: " + std::to_string(needed));
    }
    return launchOp(*node.definition,
                    {node.attributes, node.inputs.data(), results.data(), workspace, static_cast<CUstream>(stream)});
}

}  // namespace
}  // namespace hspec_trt

using hspec_trt::finish;
using hspec_trt::Node;
using hspec_trt::Status;

char const* hspec_trt_describe(void) {
    static std::string const text = hspec_trt::describeLibrary();
    return text.c_str();
}

char const* hspec_trt_created_plugins(void) {
    return hspec_trt::createdPlugins();
}

char const* hspec_trt_last_error(void) {
    return hspec_trt::lastError();
}

int32_t hspec_trt_check_kernels(char const* op, int32_t const* attributes, hspec_trt_tensor const* inputs, int32_t sm) {
    Node node;
    Status const status = readNode(op, attributes, inputs, &node);
    return finish(status.isOk() ? checkKernels(node, sm) : status);
}

int32_t hspec_trt_workspace_bytes(char const* op, int32_t const* attributes, hspec_trt_tensor const* inputs,
                                  size_t* bytes) {
    Node node;
    Status const status = readNode(op, attributes, inputs, &node);
    if (status.isOk()) {
        *bytes = node.definition->workspaceBytes(node.attributes, node.shapes().data());
    }
    return finish(status);
}

int32_t hspec_trt_launch(char const* op, int32_t const* attributes, hspec_trt_tensor const* inputs,
                         hspec_trt_tensor const* outputs, void* workspace, size_t workspace_bytes, void* stream) {
    Node node;
    Status const status = readNode(op, attributes, inputs, &node);
    return finish(status.isOk() ? launch(node, outputs, workspace, workspace_bytes, stream) : status);
}

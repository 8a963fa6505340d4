// SPDX-License-Identifier: Apache-2.0
#include "trt/op_plugin.h"

#include <array>
#include <new>
#include <sstream>

#include "trt/fields.h"
#include "trt/logger.h"

namespace hspec_trt {
namespace {

using nvinfer1::DataType;

constexpr int32_t kOk = 0;
constexpr int32_t kFailed = 1;

int32_t report(Status const& status) {
    if (status.isOk()) {
        return kOk;
    }
    logError(status.message());
    return kFailed;
}

// False for types that no op has.
bool toDType(DataType type, DType* dtype) {
    switch (type) {
        case DataType::kFLOAT:
            *dtype = DType::kFloat32;
            return true;
        case DataType::kHALF:
            *dtype = DType::kFloat16;
            return true;
        case DataType::kBF16:
            *dtype = DType::kBFloat16;
            return true;
        case DataType::kINT32:
            *dtype = DType::kInt32;
            return true;
        case DataType::kINT64:
            *dtype = DType::kInt64;
            return true;
        case DataType::kBOOL:
            *dtype = DType::kBool;
            return true;
        default:
            return false;
    }
}

DataType fromContract(contract::Type type, DataType kvType) {
    switch (type) {
        case contract::Type::kKv:
            return kvType;
        case contract::Type::kFloat32:
            return DataType::kFLOAT;
        case contract::Type::kInt32:
            return DataType::kINT32;
        case contract::Type::kInt64:
            return DataType::kINT64;
        case contract::Type::kBool:
            return DataType::kBOOL;
    }
    return DataType::kFLOAT;
}

Shape toShape(nvinfer1::Dims const& dims) {
    Shape shape;
    shape.rank = dims.nbDims;
    for (int32_t axis = 0; axis < dims.nbDims; ++axis) {
        shape.dims[static_cast<std::size_t>(axis)] = dims.d[axis];
    }
    return shape;
}

// Type and shape without memory.
Status toTensor(nvinfer1::PluginTensorDesc const& desc, Tensor* tensor) {
    tensor->shape = toShape(desc.dims);
    return toDType(desc.type, &tensor->dtype) ? Status::ok() : Status::error("a tensor has a type that no op takes");
}

std::string describe(contract::OpSpec const& spec, AttributeWords const& attributes) {
    std::ostringstream out;
    out << "{\"op\":\"" << spec.name << "\",\"fields\":{";
    for (int32_t i = 0; i < spec.numAttributes; ++i) {
        out << (i == 0 ? "" : ",") << '"' << spec.attributes[i].name << "\":";
        writeValue(out, spec.attributes[i].type, attributes[static_cast<std::size_t>(i)]);
    }
    out << "},\"aliased\":{";
    char const* separator = "";
    for (int32_t i = spec.numInputs; i < spec.numInputs + spec.numOutputs; ++i) {
        if (spec.operands[i].aliasedInput >= 0) {
            out << separator << '"' << spec.operands[i].name << "\":\""
                << spec.operands[spec.operands[i].aliasedInput].name << '"';
            separator = ",";
        }
    }
    out << "}}";
    return out.str();
}

}  // namespace

OpPlugin::OpPlugin(OpDefinition const& definition, AttributeWords const& attributes, OpRules rules)
    : definition_(definition),
      attributes_(attributes),
      rules_(std::move(rules)),
      metadata_(describe(definition.spec, attributes)),
      fields_(fieldsOf(definition.spec, attributes_)),
      fieldCollection_{static_cast<int32_t>(fields_.size()), fields_.data()} {}

nvinfer1::IPluginCapability* OpPlugin::getCapabilityInterface(nvinfer1::PluginCapabilityType type) noexcept {
    switch (type) {
        case nvinfer1::PluginCapabilityType::kCORE:
            return static_cast<nvinfer1::IPluginV3OneCore*>(this);
        case nvinfer1::PluginCapabilityType::kBUILD:
            return static_cast<nvinfer1::IPluginV3OneBuildV2*>(this);
        case nvinfer1::PluginCapabilityType::kRUNTIME:
            return static_cast<nvinfer1::IPluginV3OneRuntime*>(this);
    }
    return nullptr;
}

nvinfer1::IPluginV3* OpPlugin::clone() noexcept {
    return new (std::nothrow) OpPlugin(definition_, attributes_, rules_);
}

nvinfer1::AsciiChar const* OpPlugin::getPluginName() const noexcept {
    return definition_.spec.name;
}

nvinfer1::AsciiChar const* OpPlugin::getPluginVersion() const noexcept {
    return contract::kPluginVersion;
}

nvinfer1::AsciiChar const* OpPlugin::getPluginNamespace() const noexcept {
    return contract::kOpDomain;
}

Status OpPlugin::fits(int32_t nbInputs, int32_t nbOutputs) const {
    contract::OpSpec const& spec = definition_.spec;
    if (nbInputs == spec.numInputs && nbOutputs == spec.numOutputs) {
        return Status::ok();
    }
    return Status::error(std::string(spec.name) + ": " + std::to_string(nbInputs) + " inputs and " +
                         std::to_string(nbOutputs) + " outputs, needed " + std::to_string(spec.numInputs) + " and " +
                         std::to_string(spec.numOutputs));
}

int32_t OpPlugin::configurePlugin(nvinfer1::DynamicPluginTensorDesc const* /*in*/, int32_t nbInputs,
                                  nvinfer1::DynamicPluginTensorDesc const* /*out*/, int32_t nbOutputs) noexcept {
    return report(fits(nbInputs, nbOutputs));
}

int32_t OpPlugin::getOutputDataTypes(DataType* outputTypes, int32_t nbOutputs, DataType const* inputTypes,
                                     int32_t nbInputs) const noexcept {
    Status const status = fits(nbInputs, nbOutputs);
    if (!status.isOk()) {
        return report(status);
    }
    int32_t const kv = rules_.kvInput();
    DataType const kvType = kv < 0 ? DataType::kFLOAT : inputTypes[kv];
    for (int32_t i = 0; i < nbOutputs; ++i) {
        outputTypes[i] = fromContract(definition_.spec.operands[nbInputs + i].type, kvType);
    }
    return kOk;
}

nvinfer1::IDimensionExpr const* OpPlugin::dimension(DimRule const& rule, nvinfer1::DimsExprs const* inputs,
                                                    nvinfer1::IExprBuilder& builder) const {
    if (rule.symbol < 0) {
        return builder.constant(rule.constant);
    }
    for (int32_t input = 0; input < definition_.spec.numInputs; ++input) {
        std::vector<DimRule> const& dims = rules_.dims(input);
        for (std::size_t axis = 0; axis < dims.size(); ++axis) {
            if (dims[axis].symbol != rule.symbol) {
                continue;
            }
            nvinfer1::IDimensionExpr const* const size = inputs[input].d[axis];
            int64_t const difference = rule.constant - dims[axis].constant;
            return difference == 0
                       ? size
                       : builder.operation(nvinfer1::DimensionOperation::kSUM, *size, *builder.constant(difference));
        }
    }
    return nullptr;
}

int32_t OpPlugin::getOutputShapes(nvinfer1::DimsExprs const* inputs, int32_t nbInputs,
                                  nvinfer1::DimsExprs const* /*shapeInputs*/, int32_t /*nbShapeInputs*/,
                                  nvinfer1::DimsExprs* outputs, int32_t nbOutputs,
                                  nvinfer1::IExprBuilder& builder) noexcept {
    Status const status = fits(nbInputs, nbOutputs);
    if (!status.isOk()) {
        return report(status);
    }
    for (int32_t i = 0; i < nbOutputs; ++i) {
        std::vector<DimRule> const& dims = rules_.dims(nbInputs + i);
        outputs[i].nbDims = static_cast<int32_t>(dims.size());
        for (std::size_t axis = 0; axis < dims.size(); ++axis) {
            outputs[i].d[axis] = dimension(dims[axis], inputs, builder);
            if (outputs[i].d[axis] == nullptr) {
                return report(
                    Status::error(std::string(definition_.spec.name) + ": an output has a size no input has"));
            }
        }
    }
    return kOk;
}

bool OpPlugin::supportsFormatCombination(int32_t pos, nvinfer1::DynamicPluginTensorDesc const* inOut, int32_t nbInputs,
                                         int32_t nbOutputs) noexcept {
    DType dtype{};
    DType kvDtype = DType::kFloat32;
    nvinfer1::PluginTensorDesc const& desc = inOut[pos].desc;
    int32_t const kv = rules_.kvInput();
    if (!fits(nbInputs, nbOutputs).isOk() || desc.format != nvinfer1::TensorFormat::kLINEAR ||
        !toDType(desc.type, &dtype) || (kv >= 0 && kv <= pos && !toDType(inOut[kv].desc.type, &kvDtype))) {
        return false;
    }
    return rules_.typeFits(pos, dtype, kvDtype);
}

int32_t OpPlugin::getNbOutputs() const noexcept {
    return definition_.spec.numOutputs;
}

size_t OpPlugin::getWorkspaceSize(nvinfer1::DynamicPluginTensorDesc const* inputs, int32_t nbInputs,
                                  nvinfer1::DynamicPluginTensorDesc const* /*outputs*/,
                                  int32_t nbOutputs) const noexcept {
    if (!fits(nbInputs, nbOutputs).isOk()) {
        return 0;
    }
    std::array<Shape, kMaxOperands> shapes;
    for (int32_t i = 0; i < nbInputs; ++i) {
        shapes[static_cast<std::size_t>(i)] = toShape(inputs[i].max);
    }
    return definition_.workspaceBytes(attributes_, shapes.data());
}

char const* OpPlugin::getTimingCacheID() noexcept {
    return metadata_.c_str();
}

char const* OpPlugin::getMetadataString() noexcept {
    return metadata_.c_str();
}

int32_t OpPlugin::getAliasedInput(int32_t outputIndex) noexcept {
    return definition_.spec.operands[definition_.spec.numInputs + outputIndex].aliasedInput;
}

Status OpPlugin::prepare(Tensor const* inputs) const {
    std::array<Shape, kMaxOperands> shapes;
    for (int32_t i = 0; i < definition_.spec.numInputs; ++i) {
        shapes[static_cast<std::size_t>(i)] = inputs[i].shape;
    }
    for (KernelRequest const& kernel : definition_.kernels(attributes_, inputs[0].dtype, shapes.data())) {
        HSPEC_TRT_RETURN_IF_ERROR(prepareKernel(kernel));
    }
    return Status::ok();
}

int32_t OpPlugin::onShapeChange(nvinfer1::PluginTensorDesc const* in, int32_t nbInputs,
                                nvinfer1::PluginTensorDesc const* out, int32_t nbOutputs) noexcept {
    Status status = fits(nbInputs, nbOutputs);
    std::array<Tensor, kMaxOperands> inputs;
    std::array<Tensor, kMaxOperands> outputs;
    for (int32_t i = 0; status.isOk() && i < nbInputs; ++i) {
        status = toTensor(in[i], &inputs[static_cast<std::size_t>(i)]);
    }
    for (int32_t i = 0; status.isOk() && i < nbOutputs; ++i) {
        status = toTensor(out[i], &outputs[static_cast<std::size_t>(i)]);
    }
    if (status.isOk()) {
        status = rules_.check(inputs.data(), outputs.data());
    }
    // The builder asks too, maybe on a machine without a GPU.
    if (status.isOk() && attached_ && !prepared_) {
        status = prepare(inputs.data());
        prepared_ = status.isOk();
    }
    return report(status);
}

int32_t OpPlugin::enqueue(nvinfer1::PluginTensorDesc const* inputDesc, nvinfer1::PluginTensorDesc const* outputDesc,
                          void const* const* inputs, void* const* outputs, void* workspace,
                          cudaStream_t stream) noexcept {
    std::array<Tensor, kMaxOperands> in;
    std::array<Tensor, kMaxOperands> out;
    Status status = Status::ok();
    for (int32_t i = 0; status.isOk() && i < definition_.spec.numInputs; ++i) {
        Tensor& tensor = in[static_cast<std::size_t>(i)];
        status = toTensor(inputDesc[i], &tensor);
        tensor.data = const_cast<void*>(inputs[i]);
    }
    for (int32_t i = 0; status.isOk() && i < definition_.spec.numOutputs; ++i) {
        Tensor& tensor = out[static_cast<std::size_t>(i)];
        status = toTensor(outputDesc[i], &tensor);
        tensor.data = outputs[i];
    }
    if (status.isOk()) {
        status = launchOp(definition_, {attributes_, in.data(), out.data(), workspace, stream});
    }
    return report(status);
}

nvinfer1::IPluginV3* OpPlugin::attachToContext(nvinfer1::IPluginResourceContext* /*context*/) noexcept {
    auto* const copy = new (std::nothrow) OpPlugin(definition_, attributes_, rules_);
    if (copy != nullptr) {
        copy->attached_ = true;
    }
    return copy;
}

nvinfer1::PluginFieldCollection const* OpPlugin::getFieldsToSerialize() noexcept {
    return &fieldCollection_;
}

}  // namespace hspec_trt

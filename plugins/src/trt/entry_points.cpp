// SPDX-License-Identifier: Apache-2.0
// What TensorRT looks up in a plugin library: one creator an op, and the logger.
#include <NvInferRuntime.h>

#include <new>
#include <vector>

#include "core/creation_log.h"
#include "core/registry.h"
#include "trt/fields.h"
#include "trt/logger.h"
#include "trt/op_plugin.h"

namespace hspec_trt {
namespace {

class OpCreator final : public nvinfer1::IPluginCreatorV3One {
  public:
    explicit OpCreator(OpDefinition const* definition)
        : definition_(*definition),
          fields_(fieldsOf(definition->spec, nullptr)),
          fieldCollection_{static_cast<int32_t>(fields_.size()), fields_.data()} {}

    // The same fields carry a node's attributes (build) and those of a stored plugin (run time).
    nvinfer1::IPluginV3* createPlugin(nvinfer1::AsciiChar const* name, nvinfer1::PluginFieldCollection const* fields,
                                      nvinfer1::TensorRTPhase phase) noexcept override {
        AttributeWords attributes{};
        OpRules rules;
        Status const status = read(*fields, &attributes, &rules);
        if (!status.isOk()) {
            logError(status.within(name).message());
            return nullptr;
        }
        auto* const plugin = new (std::nothrow) OpPlugin(definition_, attributes, std::move(rules));
        if (plugin != nullptr && phase == nvinfer1::TensorRTPhase::kBUILD) {
            noteCreation(name, plugin->getMetadataString());
        }
        return plugin;
    }

    nvinfer1::PluginFieldCollection const* getFieldNames() noexcept override { return &fieldCollection_; }
    nvinfer1::AsciiChar const* getPluginName() const noexcept override { return definition_.spec.name; }
    nvinfer1::AsciiChar const* getPluginVersion() const noexcept override { return contract::kPluginVersion; }
    nvinfer1::AsciiChar const* getPluginNamespace() const noexcept override { return contract::kOpDomain; }

  private:
    Status read(nvinfer1::PluginFieldCollection const& fields, AttributeWords* attributes, OpRules* rules) const {
        HSPEC_TRT_RETURN_IF_ERROR(readFields(definition_.spec, fields, attributes));
        HSPEC_TRT_RETURN_IF_ERROR(definition_.checkAttributes(*attributes).within(definition_.spec.name));
        return OpRules::create(definition_.spec, *attributes, rules);
    }

    OpDefinition const& definition_;
    std::vector<nvinfer1::PluginField> fields_;
    nvinfer1::PluginFieldCollection fieldCollection_;
};

std::vector<nvinfer1::IPluginCreatorInterface*> pointersTo(std::vector<OpCreator>& creators) {
    std::vector<nvinfer1::IPluginCreatorInterface*> list;
    for (OpCreator& creator : creators) {
        list.push_back(&creator);
    }
    return list;
}

}  // namespace
}  // namespace hspec_trt

extern "C" __attribute__((visibility("default"))) nvinfer1::IPluginCreatorInterface* const* getCreators(
    int32_t& nbCreators) {
    using hspec_trt::OpCreator;
    static std::vector<OpCreator> creators(hspec_trt::allOps().begin(), hspec_trt::allOps().end());
    static std::vector<nvinfer1::IPluginCreatorInterface*> const list = hspec_trt::pointersTo(creators);
    nbCreators = static_cast<int32_t>(list.size());
    return list.data();
}

extern "C" __attribute__((visibility("default"))) void setLoggerFinder(nvinfer1::ILoggerFinder* finder) {
    hspec_trt::useLoggerFinder(finder);
}

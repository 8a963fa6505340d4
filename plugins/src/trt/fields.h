// SPDX-License-Identifier: Apache-2.0
// Plugin fields to attribute values and back.
#pragma once

#include <NvInferRuntime.h>

#include <ostream>
#include <vector>

#include "core/status.h"
#include "core/tensor.h"

namespace hspec_trt {

// Fields that point to the values; without values (nullptr) they only announce names and types.
std::vector<nvinfer1::PluginField> fieldsOf(contract::OpSpec const& spec, int32_t const* values);

inline std::vector<nvinfer1::PluginField> fieldsOf(contract::OpSpec const& spec, AttributeWords const& values) {
    return fieldsOf(spec, values.data());
}

// All attributes must be there with the type of the contract; fields of other names are not looked at.
Status readFields(contract::OpSpec const& spec, nvinfer1::PluginFieldCollection const& fields, AttributeWords* values);

void writeValue(std::ostream& out, contract::AttributeType type, int32_t word);

}  // namespace hspec_trt

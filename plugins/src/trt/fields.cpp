// SPDX-License-Identifier: Apache-2.0
#include "trt/fields.h"

#include <cstring>
#include <string>

namespace hspec_trt {
namespace {

using nvinfer1::PluginField;
using nvinfer1::PluginFieldType;

PluginFieldType fieldType(contract::AttributeType type) {
    return type == contract::AttributeType::kInt ? PluginFieldType::kINT32 : PluginFieldType::kFLOAT32;
}

PluginField const* findField(nvinfer1::PluginFieldCollection const& fields, char const* name) {
    for (int32_t i = 0; i < fields.nbFields; ++i) {
        if (std::strcmp(fields.fields[i].name, name) == 0) {
            return &fields.fields[i];
        }
    }
    return nullptr;
}

}  // namespace

std::vector<PluginField> fieldsOf(contract::OpSpec const& spec, int32_t const* values) {
    std::vector<PluginField> fields;
    for (int32_t i = 0; i < spec.numAttributes; ++i) {
        fields.emplace_back(spec.attributes[i].name, values == nullptr ? nullptr : values + i,
                            fieldType(spec.attributes[i].type), 1);
    }
    return fields;
}

Status readFields(contract::OpSpec const& spec, nvinfer1::PluginFieldCollection const& fields, AttributeWords* values) {
    for (int32_t i = 0; i < spec.numAttributes; ++i) {
        contract::Attribute const& attribute = spec.attributes[i];
        PluginField const* const field = findField(fields, attribute.name);
        if (field == nullptr || field->data == nullptr) {
            return Status::error(std::string(spec.name) + ": attribute " + attribute.name + " is missing");
        }
        if (field->type != fieldType(attribute.type) || field->length != 1) {
            return Status::error(std::string(spec.name) + ": attribute " + attribute.name + " has field type " +
                                 std::to_string(static_cast<int32_t>(field->type)) + " and length " +
                                 std::to_string(field->length) + ", needed one " +
                                 (attribute.type == contract::AttributeType::kInt ? "int32" : "float32"));
        }
        std::memcpy(&(*values)[static_cast<std::size_t>(i)], field->data, sizeof(int32_t));
    }
    return Status::ok();
}

void writeValue(std::ostream& out, contract::AttributeType type, int32_t word) {
    if (type == contract::AttributeType::kInt) {
        out << word;
        return;
    }
    float value = 0;
    std::memcpy(&value, &word, sizeof(value));
    out << value;
}

}  // namespace hspec_trt

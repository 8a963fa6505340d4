// SPDX-License-Identifier: Apache-2.0
#include "core/op_rules.h"

#include <cctype>
#include <sstream>

namespace hspec_trt {
namespace {

constexpr int64_t kUnknownSize = -1;

std::vector<std::string> split(std::string const& text, char separator) {
    std::vector<std::string> parts;
    std::istringstream stream(text);
    for (std::string part; std::getline(stream, part, separator);) {
        parts.push_back(part);
    }
    return parts;
}

// Index of an attribute by name, or -1.
int32_t attributeIndex(contract::OpSpec const& spec, std::string const& name) {
    for (int32_t i = 0; i < spec.numAttributes; ++i) {
        if (name == spec.attributes[i].name) {
            return i;
        }
    }
    return -1;
}

int32_t symbolIndex(std::vector<std::string>* symbols, std::string const& name) {
    for (std::size_t i = 0; i < symbols->size(); ++i) {
        if ((*symbols)[i] == name) {
            return static_cast<int32_t>(i);
        }
    }
    symbols->push_back(name);
    return static_cast<int32_t>(symbols->size() - 1);
}

// One dim expression of the table, e.g. "num_heads*head_dim+2*n_groups*state_size" or "R+1".
Status parseDim(contract::OpSpec const& spec, AttributeWords const& attributes, std::string const& text,
                std::vector<std::string>* symbols, DimRule* rule) {
    for (std::string const& term : split(text, '+')) {
        int64_t product = 1;
        int32_t symbol = -1;
        for (std::string const& factor : split(term, '*')) {
            int32_t const attribute = attributeIndex(spec, factor);
            if (attribute >= 0) {
                product *= attributes[static_cast<std::size_t>(attribute)];
            } else if (std::isdigit(static_cast<unsigned char>(factor[0])) != 0) {
                product *= std::stoll(factor);
            } else {
                symbol = symbolIndex(symbols, factor);
            }
        }
        if (symbol < 0) {
            rule->constant += product;
        } else if (rule->symbol < 0 && product == 1) {
            rule->symbol = symbol;
        } else {
            return Status::error(std::string(spec.name) + ": dim \"" + text + "\" has more than one size of the call");
        }
    }
    return Status::ok();
}

DType fixedType(contract::Type type) {
    switch (type) {
        case contract::Type::kInt32:
            return DType::kInt32;
        case contract::Type::kInt64:
            return DType::kInt64;
        case contract::Type::kBool:
            return DType::kBool;
        case contract::Type::kKv:
        case contract::Type::kFloat32:
            break;
    }
    return DType::kFloat32;
}

bool isKernelType(DType dtype) {
    return dtype == DType::kFloat16 || dtype == DType::kBFloat16;
}

}  // namespace

char const* toString(DType dtype) {
    constexpr char const* kNames[] = {"float32", "float16", "bfloat16", "int32", "int64", "bool"};
    return kNames[static_cast<int32_t>(dtype)];
}

Status OpRules::create(contract::OpSpec const& spec, AttributeWords const& attributes, OpRules* rules) {
    OpRules made;
    made.spec_ = &spec;
    for (int32_t i = 0; i < made.numOperands(); ++i) {
        std::vector<DimRule> dims;
        for (std::string const& text : split(spec.operands[i].dims, ' ')) {
            HSPEC_TRT_RETURN_IF_ERROR(parseDim(spec, attributes, text, &made.symbols_, &dims.emplace_back()));
        }
        made.dims_.push_back(std::move(dims));
    }
    if (made.symbols_.size() > kMaxSymbols) {
        return Status::error(std::string(spec.name) + ": too many sizes of the call");
    }
    *rules = std::move(made);
    return Status::ok();
}

int32_t OpRules::kvInput() const {
    for (int32_t i = 0; i < spec_->numInputs; ++i) {
        if (spec_->operands[i].type == contract::Type::kKv) {
            return i;
        }
    }
    return -1;
}

bool OpRules::typeFits(int32_t operand, DType dtype, DType kvDtype) const {
    contract::Type const type = spec_->operands[operand].type;
    if (type == contract::Type::kKv) {
        return isKernelType(dtype) && dtype == kvDtype;
    }
    return dtype == fixedType(type);
}

Status OpRules::misfit(int32_t operand, std::string const& found) const {
    contract::Operand const& row = spec_->operands[operand];
    return Status::error(std::string(spec_->name) + " " + row.name + " [" + row.dims + "]: " + found);
}

Status OpRules::checkShape(int32_t operand, Shape const& shape, Sizes* sizes) const {
    std::vector<DimRule> const& rules = dims(operand);
    if (shape.rank != static_cast<int32_t>(rules.size())) {
        return misfit(operand, std::to_string(shape.rank) + " dims, needed " + std::to_string(rules.size()));
    }
    for (int32_t axis = 0; axis < shape.rank; ++axis) {
        DimRule const& rule = rules[static_cast<std::size_t>(axis)];
        int64_t expected = rule.constant;
        if (rule.symbol >= 0) {
            int64_t& size = (*sizes)[static_cast<std::size_t>(rule.symbol)];
            if (size == kUnknownSize) {
                size = shape[axis] - rule.constant;
            }
            expected += size;
        }
        if (shape[axis] != expected || expected < 0) {
            std::string const why = rule.symbol < 0 ? "" : " (" + symbols_[static_cast<std::size_t>(rule.symbol)] + ")";
            return misfit(operand, "dim " + std::to_string(axis) + " is " + std::to_string(shape[axis]) + ", needed " +
                                       std::to_string(expected) + why);
        }
    }
    return Status::ok();
}

Status OpRules::check(Tensor const* inputs, Tensor const* outputs) const {
    Sizes sizes;
    sizes.fill(kUnknownSize);
    int32_t const kv = kvInput();
    DType const kvDtype = kv < 0 ? DType::kFloat32 : inputs[kv].dtype;
    for (int32_t i = 0; i < numOperands(); ++i) {
        Tensor const& tensor = i < spec_->numInputs ? inputs[i] : outputs[i - spec_->numInputs];
        if (!typeFits(i, tensor.dtype, kvDtype)) {
            contract::Type const type = spec_->operands[i].type;
            char const* const needed =
                type == contract::Type::kKv ? "float16 or bfloat16, one for all" : toString(fixedType(type));
            return misfit(i, std::string("type is ") + toString(tensor.dtype) + ", needed " + needed);
        }
        HSPEC_TRT_RETURN_IF_ERROR(checkShape(i, tensor.shape, &sizes));
    }
    return Status::ok();
}

}  // namespace hspec_trt

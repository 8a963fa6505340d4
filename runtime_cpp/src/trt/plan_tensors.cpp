// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <iterator>
#include <set>
#include <utility>

#include "bundle/manifest_gen.h"
#include "hspec_trt/runtime/error.h"
#include "trt/trt_engine.h"

namespace hspec_trt::trt {
namespace {

using Operands = std::vector<contract::Operand const*>;

[[noreturn]] void refuse(std::string found, std::string needed, std::string const& where) {
    throw Error(Fault{"L031", std::move(found), std::move(needed), where, schema::kRebuild});
}

bool has(Extensions const& extensions, std::string const& name) {
    return (name == "logit_edits" && extensions.logitEdits) || (name == "token_masks" && extensions.tokenMasks) ||
           (name == "top_logprobs" && extensions.topLogprobs) || (name == "feedback" && extensions.feedback);
}

// The tensors that an engine with these extensions must have.
std::pair<Operands, Operands> contractTensors(Extensions const& extensions) {
    Operands inputs;
    Operands outputs;
    for (contract::Operand const& operand : contract::kStepInputs) {
        inputs.push_back(&operand);
    }
    for (contract::Operand const& operand : contract::kStepOutputs) {
        outputs.push_back(&operand);
    }
    for (contract::ExtensionSpec const& extension : contract::kExtensions) {
        for (int32_t i = 0; i < extension.numInputs + extension.numOutputs && has(extensions, extension.name); ++i) {
            (i < extension.numInputs ? inputs : outputs).push_back(extension.operands + i);
        }
    }
    return {inputs, outputs};
}

std::string listed(std::set<std::string> const& names) {
    std::string text;
    for (std::string const& name : names) {
        text += (text.empty() ? "'" : ", '") + name + "'";
    }
    return "[" + text + "]";
}

// What is missing and what is unknown, in words; `optional` may be there or not.
std::string difference(char const* kind, std::set<std::string> const& found, std::set<std::string> const& needed,
                       std::string const& optional) {
    std::set<std::string> missing;
    std::set<std::string> unknown;
    std::set_difference(needed.begin(), needed.end(), found.begin(), found.end(),
                        std::inserter(missing, missing.end()));
    std::set_difference(found.begin(), found.end(), needed.begin(), needed.end(),
                        std::inserter(unknown, unknown.end()));
    unknown.erase(optional);
    std::string text = missing.empty() ? "" : std::string("missing ") + kind + ": " + listed(missing);
    if (!unknown.empty()) {
        text += (text.empty() ? "" : "; ") + std::string("unknown ") + kind + ": " + listed(unknown);
    }
    return text;
}

int64_t itemSize(std::string const& dtype) {
    return dtype == "float32" ? 4 : dtype == "float16" || dtype == "bfloat16" ? 2 : 0;
}

std::vector<Pool> poolsOf(std::vector<PlanTensor> const& tensors, std::string const& where) {
    std::vector<Pool> pools;
    for (PlanTensor const& tensor : tensors) {
        for (auto const& [prefix, outPrefix] :
             {std::pair<std::string, std::string>{contract::kKvPagesPrefix, contract::kKvPagesOutPrefix},
              {contract::kDraftKvPagesPrefix, contract::kDraftKvPagesOutPrefix}}) {
            if (!tensor.isInput || tensor.name.rfind(prefix, 0) != 0) {
                continue;
            }
            int64_t bytes = itemSize(tensor.dtype);
            if (bytes == 0 || tensor.shape.empty()) {
                refuse(tensor.name + " is no pool of pages", "pages of a float type", where);
            }
            Shape const page(tensor.shape.begin() + 1, tensor.shape.end());
            for (int64_t const size : page) {
                bytes *= size;
            }
            pools.push_back({tensor.name, outPrefix + tensor.name.substr(prefix.size()), page, bytes});
        }
    }
    return pools;
}

std::set<std::string> namesOf(Operands const& operands) {
    std::set<std::string> names;
    for (contract::Operand const* operand : operands) {
        names.insert(operand->name);
    }
    return names;
}

void check(std::vector<PlanTensor> const& tensors, std::vector<Pool> const& pools, Operands const& inputs,
           Operands const& outputs, std::string const& where) {
    std::set<std::string> foundInputs;
    std::set<std::string> foundOutputs;
    for (PlanTensor const& tensor : tensors) {
        (tensor.isInput ? foundInputs : foundOutputs).insert(tensor.name);
    }
    std::set<std::string> neededInputs = namesOf(inputs);
    std::set<std::string> neededOutputs = namesOf(outputs);
    for (Pool const& pool : pools) {
        neededInputs.insert(pool.name);
        neededOutputs.insert(pool.outName);
    }
    std::string faults = difference("inputs", foundInputs, neededInputs, contract::kNextIds.name);
    std::string const further = difference("outputs", foundOutputs, neededOutputs, contract::kDraftConfidence.name);
    faults += (faults.empty() || further.empty() ? "" : "; ") + further;
    if (!faults.empty() || pools.empty()) {
        refuse(faults.empty() ? "no pages" : faults, "the step contract's names", where);
    }
}

}  // namespace

PlanTensors PlanTensors::of(Plan const& plan, Limits const& limits, std::string const& where) {
    std::vector<PlanTensor> const found = plan.tensors();
    auto [inputs, outputs] = contractTensors(limits.extensions);
    PlanTensors tensors;
    tensors.pools = poolsOf(found, where);
    check(found, tensors.pools, inputs, outputs, where);
    if (plan.numProfiles() != 2) {
        refuse(std::to_string(plan.numProfiles()) + " optimization profiles", "2: decode and mixed", where);
    }
    auto const given = [&found](contract::Operand const& operand) {
        return std::any_of(found.begin(), found.end(),
                           [&](PlanTensor const& each) { return each.name == operand.name; });
    };
    if (given(contract::kNextIds)) {
        inputs.push_back(&contract::kNextIds);
    }
    if (given(contract::kDraftConfidence)) {
        outputs.push_back(&contract::kDraftConfidence);
    }
    for (contract::Operand const* operand : inputs) {
        tensors.inputs.emplace_back(*operand);
    }
    for (contract::Operand const* operand : outputs) {
        tensors.outputs.emplace_back(*operand);
    }
    return tensors;
}

}  // namespace hspec_trt::trt

// SPDX-License-Identifier: Apache-2.0
#include "core/registry.h"

#include <NvInferVersion.h>

#include <set>
#include <sstream>

namespace hspec_trt {
namespace {

void describeOps(std::ostream& out) {
    char const* separator = "";
    for (OpDefinition const* definition : allOps()) {
        contract::OpSpec const& spec = definition->spec;
        out << separator << '"' << spec.name << "\":[";
        for (int32_t i = 0; i < spec.numAttributes; ++i) {
            out << (i == 0 ? "" : ",") << '"' << spec.attributes[i].name << '"';
        }
        out << ']';
        separator = ",";
    }
}

void describeKernels(std::ostream& out) {
    std::set<int32_t> cubins;
    std::set<int32_t> ptx;
    for (std::size_t i = 0; i < kNumKernelVariants; ++i) {
        (kKernelVariants[i].ptx ? ptx : cubins).insert(kKernelVariants[i].sm);
    }
    auto const list = [&out](char const* name, std::set<int32_t> const& values) {
        out << '"' << name << "\":[";
        char const* separator = "";
        for (int32_t const value : values) {
            out << separator << value;
            separator = ",";
        }
        out << ']';
    };
    out << "\"variants\":" << kNumKernelVariants << ',';
    list("sm", cubins);
    out << ',';
    list("ptx", ptx);
}

}  // namespace

std::array<OpDefinition const*, kNumOps> const& allOps() {
    static std::array<OpDefinition const*, kNumOps> const ops{&pagedAttention(), &appendKv(), &sharedKvAttention(),
                                                              &mamba2BlockScan(), &sampleTokens()};
    return ops;
}

OpDefinition const* findOp(std::string const& name) {
    for (OpDefinition const* definition : allOps()) {
        if (name == definition->spec.name) {
            return definition;
        }
    }
    return nullptr;
}

std::string describeLibrary() {
    std::ostringstream out;
    out << "{\"contract_version\":" << contract::kContractVersion << ",\"plugin_version\":\""
        << contract::kPluginVersion << "\",\"ops_digest\":\"" << contract::kOpsDigest << "\",\"tensorrt\":\""
        << NV_TENSORRT_MAJOR << '.' << NV_TENSORRT_MINOR << '.' << NV_TENSORRT_PATCH << "\",\"ops\":{";
    describeOps(out);
    out << "},\"kernels\":{";
    describeKernels(out);
    out << "}}";
    return out.str();
}

}  // namespace hspec_trt

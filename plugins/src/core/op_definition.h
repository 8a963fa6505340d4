// SPDX-License-Identifier: Apache-2.0
// What one op tells the generic plugin: its contract, its kernels, its workspace and its launch.
#pragma once

#include <cstring>
#include <vector>

#include "core/kernel_store.h"
#include "core/status.h"
#include "core/tensor.h"

namespace hspec_trt {

// A call whose types and shapes agree with the contract.
struct OpCall {
    AttributeWords attributes{};
    Tensor const* inputs = nullptr;
    Tensor const* outputs = nullptr;
    void* workspace = nullptr;  // at least workspaceBytes
    CUstream stream = nullptr;
};

struct OpDefinition {
    contract::OpSpec const& spec;
    // Values that no kernel can serve.
    Status (*checkAttributes)(AttributeWords const& attributes);
    // Enough for these input shapes and any smaller ones.
    std::size_t (*workspaceBytes)(AttributeWords const& attributes, Shape const* inputs);
    // Kernels that a node with these attributes and inputs launches; shapes may be unknown (-1) in step-wide dims.
    std::vector<KernelRequest> (*kernels)(AttributeWords const& attributes, DType kvDtype, Shape const* inputs);
    // Called through launchOp.
    Status (*launch)(OpCall const& call);
    // Sizes that no compiled kernel takes, or only a slow one, before any launch; shapes as for `kernels`. Null where
    // there is no such size.
    Status (*checkSizes)(AttributeWords const& attributes, DType kvDtype, Shape const* inputs) = nullptr;
};

// Launch after a check that everything starts on the bytes that kernels are compiled for.
Status launchOp(OpDefinition const& definition, OpCall const& call);

// The generated struct of the op's attributes.
template <typename Attributes>
Attributes attributesOf(AttributeWords const& words) {
    Attributes attributes;
    static_assert(sizeof(attributes) <= sizeof(words), "raise kMaxAttributes");
    std::memcpy(&attributes, words.data(), sizeof(attributes));
    return attributes;
}

inline uint64_t address(void const* pointer) {
    return reinterpret_cast<uint64_t>(pointer);
}

OpDefinition const& pagedAttention();
OpDefinition const& appendKv();
OpDefinition const& sharedKvAttention();
OpDefinition const& mamba2BlockScan();
OpDefinition const& sampleTokens();

}  // namespace hspec_trt

// SPDX-License-Identifier: Apache-2.0
// A compiled plan in TensorRT's hands. TensorRT and TensorRT for RTX have the same interface under the same names but
// not the same layout, so plan.cpp is compiled once for each whose headers are there; this header is what both give.
#pragma once

#include <cuda.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace hspec_trt::trt {

using Shape = std::vector<int64_t>;

// Numbers of the profiles that hspec_trt/engine/profiles.py builds.
constexpr int32_t kDecodeProfile = 0;
constexpr int32_t kMixedProfile = 1;

// A call that TensorRT refused, with what it logged.
class PlanError : public std::runtime_error {
  public:
    using std::runtime_error::runtime_error;
};

// An input or output of a plan.
struct PlanTensor {
    std::string name;
    bool isInput = false;
    std::string dtype;  // a name of hspec_trt/dtypes.py; empty for a type that no contract tensor has
    Shape shape;        // -1 where it changes from step to step
};

// Runs a plan for one profile. Used by one thread at a time.
class PlanContext {
  public:
    virtual ~PlanContext() = default;
    // Whether a run may be recorded as a CUDA graph now.
    virtual bool canBeCaptured(CUstream stream) const = 0;
    // Throw PlanError: a shape is outside the profile, or an output has another shape than it is read with.
    virtual void bindInput(std::string const& name, CUdeviceptr address, Shape const& shape) = 0;
    virtual void bindOutput(std::string const& name, CUdeviceptr address, Shape const& shape) = 0;
    // Run it on what is bound, in the stream's order. Throws PlanError.
    virtual void run(CUstream stream) = 0;
};

class Plan {
  public:
    virtual ~Plan() = default;
    virtual std::vector<PlanTensor> tensors() const = 0;
    virtual int32_t numProfiles() const = 0;
    // Scratch memory that any context needs; they may share it where they run one after the other.
    virtual std::size_t scratchBytes() const = 0;
    // Throws PlanError.
    virtual std::unique_ptr<PlanContext> context(int32_t profile, CUdeviceptr scratch, std::size_t bytes,
                                                 CUstream stream) = 0;
};

// An opened TensorRT library.
class Library {
  public:
    virtual ~Library() = default;
    // Such as "10.14.1.48".
    virtual std::string version() const = 0;
    // Load a plugin library into TensorRT's registry. Returns the names of the contract's ops that are missing
    // afterwards, and "the library" where TensorRT refuses it.
    virtual std::vector<std::string> registerPlugins(std::string const& path) = 0;
    // Throws PlanError. `data` may go afterwards.
    virtual std::unique_ptr<Plan> deserialize(void const* data, std::size_t size) = 0;
};

// One flavour of TensorRT that this runtime was compiled for.
struct Flavour {
    char const* backend;  // as in manifests
    char const* package;  // for messages
    std::string library;  // the file that the system's loader looks for
    // `handle` is the opened library. Throws PlanError where it is another version than the headers'.
    std::unique_ptr<Library> (*open)(void* handle);
};

// Those that were compiled in.
std::vector<Flavour> const& flavours();

}  // namespace hspec_trt::trt

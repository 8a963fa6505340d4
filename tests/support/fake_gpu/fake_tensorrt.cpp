// SPDX-License-Identifier: Apache-2.0
// TensorRT's runtime interface over plans that are lists of tensors: "input NAME TYPE DIM ...", "output ...", "profiles
// N", "aliased" where pages are written in place. A dim is a number, a name, or a name and a number to add (R+1). What
// a plan computes is a callback's business. Pages that are not where the plan has them are refused when a step starts.
#include <NvInferRuntime.h>

#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "fake_gpu.h"
#include "hspec_trt/contract_gen.h"
#include "stubs.h"  // generated from TensorRT's headers: every method ends the process

namespace {

using Dims = nvinfer1::Dims;

struct FakeTensor {
    std::string name;
    bool isInput = false;
    nvinfer1::DataType type{};
    std::vector<std::string> dims;
};

// One tensor of a run, for the callback.
struct Bound {
    char const* name;
    void* address;
    int32_t rank;
    int64_t dims[8];
};
using Execute = void (*)(Bound const* tensors, int32_t count);

Execute execute = nullptr;
int64_t runs = 0;

nvinfer1::DataType typeOf(std::string const& name) {
    std::map<std::string, nvinfer1::DataType> const types{
        {"float32", nvinfer1::DataType::kFLOAT}, {"float16", nvinfer1::DataType::kHALF},
        {"bfloat16", nvinfer1::DataType::kBF16}, {"int32", nvinfer1::DataType::kINT32},
        {"int64", nvinfer1::DataType::kINT64},   {"bool", nvinfer1::DataType::kBOOL},
        {"int8", nvinfer1::DataType::kINT8}};
    return types.at(name);
}

struct FakePlan {
    std::vector<FakeTensor> tensors;
    int32_t profiles = 2;
    bool isAliased = false;

    FakeTensor const* find(std::string const& name) const {
        for (FakeTensor const& tensor : tensors) {
            if (tensor.name == name) {
                return &tensor;
            }
        }
        return nullptr;
    }
};

// What a context was given last.
struct Given {
    std::map<std::string, Dims> shapes;
    std::map<std::string, void*> addresses;
};

class FakeContext final : public stubs::VExecutionContext {
  public:
    FakeContext(std::shared_ptr<FakePlan const> plan, nvinfer1::ILogger& logger)
        : plan_(std::move(plan)), logger_(logger) {}

    void setDeviceMemoryV2(void*, int64_t) noexcept override {}
    bool setOptimizationProfileAsync(int32_t profile, cudaStream_t) noexcept override {
        return profile < plan_->profiles && !fake::fails("setOptimizationProfileAsync");
    }
    bool setInputShape(char const* name, Dims const& dims) noexcept override {
        FakeTensor const* tensor = plan_->find(name);
        if (tensor == nullptr || static_cast<std::size_t>(dims.nbDims) != tensor->dims.size() ||
            fake::fails("setInputShape")) {
            return false;
        }
        given_->shapes[name] = dims;
        return true;
    }
    Dims getTensorShape(char const* name) const noexcept override {
        FakeTensor const& tensor = *plan_->find(name);
        Dims dims{};
        dims.nbDims = static_cast<int32_t>(tensor.dims.size());
        for (std::size_t i = 0; i < tensor.dims.size(); ++i) {
            dims.d[i] = sizeOf(tensor.dims[i]);
        }
        return dims;
    }
    bool setTensorAddress(char const* name, void* address) noexcept override {
        given_->addresses[name] = address;
        return address != nullptr && reinterpret_cast<std::uintptr_t>(address) % 256 == 0;
    }
    bool enqueueV3(cudaStream_t stream) noexcept override {
        if (fake::fails("enqueueV3")) {
            return false;
        }
        if (std::string const misplaced = misplacedPages(); !misplaced.empty()) {
            logger_.log(nvinfer1::ILogger::Severity::kERROR, (misplaced + " is misplaced").c_str());
            return false;
        }
        std::vector<Bound> bound;
        for (FakeTensor const& tensor : plan_->tensors) {
            Dims const dims = tensor.isInput ? given_->shapes.at(tensor.name) : getTensorShape(tensor.name.c_str());
            Bound each{tensor.name.c_str(), given_->addresses.at(tensor.name), dims.nbDims, {}};
            std::copy_n(dims.d, dims.nbDims, each.dims);
            for (std::size_t i = 0; i < tensor.dims.size(); ++i) {
                if (int64_t const size = sizeOf(tensor.dims[i]); size >= 0 && size != dims.d[i]) {
                    return false;  // two inputs disagree about a dim
                }
            }
            bound.push_back(each);
        }
        std::shared_ptr<FakePlan const> const plan = plan_;
        std::shared_ptr<Given const> const given = given_;
        std::map<std::string, void*> const addresses = given_->addresses;
        bool const captured = fake::capturing(reinterpret_cast<CUstream>(stream));
        fake::enqueue(reinterpret_cast<CUstream>(stream), [bound, plan, given, addresses, captured] {
            if (captured && given->addresses != addresses) {
                std::fprintf(stderr, "a recorded launch outlived its context's bindings\n");
                std::abort();
            }
            ++runs;
            execute(bound.data(), static_cast<int32_t>(bound.size()));
        });
        return true;
    }

  private:
    // An output of pages that lies at its input and must not, or the other way round; empty where there is none.
    std::string misplacedPages() const {
        for (FakeTensor const& tensor : plan_->tensors) {
            std::size_t const at = tensor.name.find("kv_pages_out.");
            if (at == std::string::npos) {
                continue;
            }
            std::string const source = tensor.name.substr(0, at) + "kv_pages." + tensor.name.substr(at + 13);
            if ((given_->addresses.at(tensor.name) == given_->addresses.at(source)) != plan_->isAliased) {
                return tensor.name;
            }
        }
        return "";
    }

    // -1 where no input tells it.
    int64_t sizeOf(std::string const& dim) const {
        if (std::isdigit(static_cast<unsigned char>(dim[0])) != 0) {
            return std::atoll(dim.c_str());
        }
        std::size_t const plus = dim.find('+');
        std::string const name = dim.substr(0, plus);
        int64_t const added = plus == std::string::npos ? 0 : std::atoll(dim.c_str() + plus + 1);
        for (FakeTensor const& tensor : plan_->tensors) {
            auto const shape = given_->shapes.find(tensor.name);
            for (std::size_t i = 0; i < tensor.dims.size() && shape != given_->shapes.end(); ++i) {
                if (tensor.dims[i] == name) {
                    return shape->second.d[i] + added;
                }
            }
        }
        return -1;
    }

    std::shared_ptr<FakePlan const> plan_;
    nvinfer1::ILogger& logger_;
    std::shared_ptr<Given> const given_ = std::make_shared<Given>();
};

class FakeEngine final : public stubs::VCudaEngine {
  public:
    FakeEngine(std::shared_ptr<FakePlan const> plan, nvinfer1::ILogger& logger)
        : plan_(std::move(plan)), logger_(logger) {}

    int32_t getNbIOTensors() const noexcept override { return static_cast<int32_t>(plan_->tensors.size()); }
    char const* getIOTensorName(int32_t index) const noexcept override {
        return plan_->tensors[static_cast<std::size_t>(index)].name.c_str();
    }
    nvinfer1::TensorIOMode getTensorIOMode(char const* name) const noexcept override {
        return plan_->find(name)->isInput ? nvinfer1::TensorIOMode::kINPUT : nvinfer1::TensorIOMode::kOUTPUT;
    }
    nvinfer1::DataType getTensorDataType(char const* name) const noexcept override { return plan_->find(name)->type; }
    Dims getTensorShape(char const* name) const noexcept override {
        Dims dims{};
        for (std::string const& dim : plan_->find(name)->dims) {
            dims.d[dims.nbDims++] =
                std::isdigit(static_cast<unsigned char>(dim[0])) != 0 ? std::atoll(dim.c_str()) : -1;
        }
        return dims;
    }
    int32_t getNbOptimizationProfiles() const noexcept override { return plan_->profiles; }
    int64_t getDeviceMemorySizeV2() const noexcept override { return 4096; }
#ifdef TRT_MAJOR_RTX
    nvinfer1::IRuntimeConfig* createRuntimeConfig() noexcept override {
        return fake::fails("createRuntimeConfig") ? nullptr : new nvinfer1::IRuntimeConfig;
    }
    nvinfer1::IExecutionContext* createExecutionContextWithRuntimeConfig(
        nvinfer1::IRuntimeConfig* config) noexcept override {
        std::printf("%d %d %p\n", static_cast<int>(config->allocation), static_cast<int>(config->kernels),
                    static_cast<void*>(config->cache));
        return newContext();
    }
#else
    nvinfer1::IExecutionContext* createExecutionContext(
        nvinfer1::ExecutionContextAllocationStrategy) noexcept override {
        return newContext();
    }
#endif

  private:
    nvinfer1::IExecutionContext* newContext() noexcept {
        struct Object final : nvinfer1::IExecutionContext {
            Object(std::shared_ptr<FakePlan const> plan, nvinfer1::ILogger& to) : fake(std::move(plan), to) {
                mImpl = &fake;
            }
            FakeContext fake;
        };
        return fake::fails("createExecutionContext") ? nullptr : new Object(plan_, logger_);
    }

    std::shared_ptr<FakePlan const> plan_;
    nvinfer1::ILogger& logger_;
};

class FakeRuntime final : public stubs::VRuntime {
  public:
    explicit FakeRuntime(nvinfer1::ILogger& logger) : logger_(logger) {}

    nvinfer1::ICudaEngine* deserializeCudaEngine(void const* data, std::size_t size) noexcept override {
        auto plan = std::make_shared<FakePlan>();
        std::istringstream text(std::string(static_cast<char const*>(data), size));
        for (std::string line; std::getline(text, line);) {
            std::istringstream words(line);
            std::string kind;
            words >> kind;
            if (kind == "profiles") {
                words >> plan->profiles;
            } else if (kind == "aliased") {
                plan->isAliased = true;
            } else if (kind == "input" || kind == "output") {
                FakeTensor tensor;
                std::string type;
                words >> tensor.name >> type;
                tensor.isInput = kind == "input";
                tensor.type = typeOf(type);
                for (std::string dim; words >> dim;) {
                    tensor.dims.push_back(dim);
                }
                plan->tensors.push_back(tensor);
            } else {
                logger_.log(nvinfer1::ILogger::Severity::kERROR, "the magic number does not match");
                return nullptr;
            }
        }
        struct Object final : nvinfer1::ICudaEngine {
            Object(std::shared_ptr<FakePlan const> read, nvinfer1::ILogger& to) : fake(std::move(read), to) {
                mImpl = &fake;
            }
            FakeEngine fake;
        };
        return new Object(std::move(plan), logger_);
    }

  private:
    nvinfer1::ILogger& logger_;
};

class Creator final : public nvinfer1::IPluginCreatorV3One {
  public:
    explicit Creator(char const* name) : name_(name) {}
    nvinfer1::IPluginV3* createPlugin(char const*, nvinfer1::PluginFieldCollection const*,
                                      nvinfer1::TensorRTPhase) noexcept override {
        return nullptr;
    }
    nvinfer1::PluginFieldCollection const* getFieldNames() noexcept override { return nullptr; }
    char const* getPluginName() const noexcept override { return name_; }
    char const* getPluginVersion() const noexcept override { return hspec_trt::contract::kPluginVersion; }
    char const* getPluginNamespace() const noexcept override { return hspec_trt::contract::kOpDomain; }

  private:
    char const* name_;
};

// Any plugin library registers the contract's ops, unless the environment asks for a refusal.
class Registry final : public stubs::IPluginRegistry {
  public:
    void* loadLibrary(char const*) noexcept override {
        if (fake::fails("loadLibrary")) {
            return nullptr;
        }
        for (hspec_trt::contract::OpSpec const* op : hspec_trt::contract::kOps) {
            creators_.push_back(std::make_unique<Creator>(op->name));
            listed_.push_back(creators_.back().get());
        }
        return this;
    }
    nvinfer1::IPluginCreatorInterface* const* getAllCreators(int32_t* count) const noexcept override {
        *count = static_cast<int32_t>(listed_.size());
        return listed_.data();
    }

  private:
    std::vector<std::unique_ptr<Creator>> creators_;
    std::vector<nvinfer1::IPluginCreatorInterface*> listed_;
};

}  // namespace

extern "C" {

int32_t getInferLibMajorVersion() noexcept {
    return fake::fails("version") ? NV_TENSORRT_MAJOR + 1 : NV_TENSORRT_MAJOR;
}
int32_t getInferLibMinorVersion() noexcept {
    return NV_TENSORRT_MINOR;
}
int32_t getInferLibPatchVersion() noexcept {
    return NV_TENSORRT_PATCH;
}
int32_t getInferLibBuildVersion() noexcept {
    return NV_TENSORRT_BUILD;
}

void* createInferRuntime_INTERNAL(void* logger, int32_t) noexcept {
    struct Object final : nvinfer1::IRuntime {
        explicit Object(nvinfer1::ILogger& to) : fake(to) { mImpl = &fake; }
        FakeRuntime fake;
    };
    return fake::fails("createInferRuntime") ? nullptr : new Object(*static_cast<nvinfer1::ILogger*>(logger));
}

nvinfer1::IPluginRegistry* getPluginRegistry() noexcept {
    static Registry registry;
    return &registry;
}

void fake_gpu_execute(Execute function) {
    execute = function;
}
int64_t fake_gpu_runs(void) {
    return runs;
}

}  // extern "C"

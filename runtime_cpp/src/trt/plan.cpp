// SPDX-License-Identifier: Apache-2.0
// Every call of TensorRT's runtime API. Compiled once for each flavour, with HSPEC_TRT_FLAVOUR as its name and nvinfer1
// renamed, so that inline functions of the two do not meet in one library.
#include "trt/plan.h"

#include <NvInferRuntime.h>
#include <dlfcn.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <utility>

#include "hspec_trt/contract_gen.h"
#include "trt/plan_flavours.h"

namespace hspec_trt::trt::HSPEC_TRT_FLAVOUR {
namespace {

#ifdef TRT_MAJOR_RTX
constexpr char const* kBackend = "tensorrt-rtx";
constexpr char const* kPackage = "tensorrt-rtx";
constexpr char const* kLibraryName = "libtensorrt_rtx.so.";
#else
constexpr char const* kBackend = "tensorrt";
constexpr char const* kPackage = "tensorrt";
constexpr char const* kLibraryName = "libnvinfer.so.";
#endif

// Keeps what TensorRT says of failures, for the exception that follows.
class Logger final : public nvinfer1::ILogger {
  public:
    void log(Severity severity, char const* message) noexcept override {
        if (severity > Severity::kERROR) {
            return;
        }
        std::lock_guard<std::mutex> const lock(mutex_);
        errors_.emplace_back(message);
    }

    // `what`, and the last two things that were logged.
    PlanError error(std::string const& what) {
        std::string const logged = taken(": ");
        return PlanError(logged.empty() ? what : what + ": " + logged);
    }
    // The last two things that were logged; `unlogged` where there are none.
    PlanError loggedError(std::string const& unlogged) {
        std::string const logged = taken("; ");
        return PlanError(logged.empty() ? unlogged : logged);
    }

  private:
    std::string taken(char const* separator) {
        std::lock_guard<std::mutex> const lock(mutex_);
        std::string text;
        for (std::size_t i = errors_.size() > 2 ? errors_.size() - 2 : 0; i < errors_.size(); ++i) {
            text += (text.empty() ? "" : separator) + errors_[i];
        }
        errors_.clear();
        return text;
    }

    std::mutex mutex_;
    std::vector<std::string> errors_;
};

nvinfer1::Dims dimsOf(Shape const& shape) {
    nvinfer1::Dims dims{};
    dims.nbDims = static_cast<int32_t>(shape.size());
    std::copy(shape.begin(), shape.end(), dims.d);
    return dims;
}

Shape shapeOf(nvinfer1::Dims const& dims) {
    return dims.nbDims < 0 ? Shape{} : Shape(dims.d, dims.d + dims.nbDims);
}

std::string shown(Shape const& shape) {
    std::string text;
    for (int64_t const size : shape) {
        text += (text.empty() ? "" : ", ") + std::to_string(size);
    }
    return "[" + text + "]";
}

std::string dtypeName(nvinfer1::DataType type) {
    switch (type) {
        case nvinfer1::DataType::kFLOAT:
            return "float32";
        case nvinfer1::DataType::kHALF:
            return "float16";
        case nvinfer1::DataType::kBF16:
            return "bfloat16";
        case nvinfer1::DataType::kINT32:
            return "int32";
        case nvinfer1::DataType::kINT64:
            return "int64";
        case nvinfer1::DataType::kBOOL:
            return "bool";
        default:
            return "";
    }
}

// Streams are the same objects for the driver and for CUDA's runtime.
cudaStream_t runtimeStream(CUstream stream) {
    return reinterpret_cast<cudaStream_t>(stream);
}

// Plain TensorRT has no such question, nor have some headers of TensorRT for RTX: it may always be tried.
template <typename Made>
auto capturable(Made const& context, cudaStream_t stream, int) -> decltype(context.isStreamCapturable(stream)) {
    return context.isStreamCapturable(stream);
}
template <typename Made>
bool capturable(Made const& /*context*/, cudaStream_t /*stream*/, long) {
    return true;
}

class Context final : public PlanContext {
  public:
    Context(std::unique_ptr<nvinfer1::IExecutionContext> context, std::shared_ptr<Logger> logger)
        : context_(std::move(context)), logger_(std::move(logger)) {}

    bool canBeCaptured(CUstream stream) const override { return capturable(*context_, runtimeStream(stream), 0); }

    void bindInput(std::string const& name, CUdeviceptr address, Shape const& shape) override {
        if (!context_->setInputShape(name.c_str(), dimsOf(shape))) {
            throw logger_->error("input " + name + " with shape " + shown(shape) + " is refused");
        }
        bind(name, address);
    }

    void bindOutput(std::string const& name, CUdeviceptr address, Shape const& shape) override {
        Shape const found = shapeOf(context_->getTensorShape(name.c_str()));
        bool const fits = std::equal(found.begin(), found.end(), shape.begin(), shape.end(),
                                     [](int64_t has, int64_t wanted) { return has == -1 || has == wanted; });
        if (!fits) {
            throw PlanError("output " + name + " has shape " + shown(found) + ", needs " + shown(shape));
        }
        bind(name, address);
    }

    void run(CUstream stream) override {
        if (!context_->enqueueV3(runtimeStream(stream))) {
            throw logger_->error("the step cannot be started");
        }
    }

  private:
    void bind(std::string const& name, CUdeviceptr address) {
        if (!context_->setTensorAddress(name.c_str(), reinterpret_cast<void*>(address))) {
            throw logger_->error(name + " cannot be bound");
        }
    }

    std::unique_ptr<nvinfer1::IExecutionContext> context_;
    std::shared_ptr<Logger> logger_;
};

class LoadedPlan final : public Plan {
  public:
    LoadedPlan(std::unique_ptr<nvinfer1::ICudaEngine> engine, std::shared_ptr<nvinfer1::IRuntime> runtime,
               std::shared_ptr<Logger> logger)
        : logger_(std::move(logger)), runtime_(std::move(runtime)), engine_(std::move(engine)) {}

    std::vector<PlanTensor> tensors() const override {
        std::vector<PlanTensor> tensors;
        for (int32_t i = 0; i < engine_->getNbIOTensors(); ++i) {
            char const* name = engine_->getIOTensorName(i);
            bool const isInput = engine_->getTensorIOMode(name) == nvinfer1::TensorIOMode::kINPUT;
            tensors.push_back(
                {name, isInput, dtypeName(engine_->getTensorDataType(name)), shapeOf(engine_->getTensorShape(name))});
        }
        return tensors;
    }

    int32_t numProfiles() const override { return engine_->getNbOptimizationProfiles(); }

    std::size_t scratchBytes() const override {
        return static_cast<std::size_t>(std::max<int64_t>(engine_->getDeviceMemorySizeV2(), 0));
    }

    std::unique_ptr<PlanContext> context(int32_t profile, CUdeviceptr scratch, std::size_t bytes,
                                         CUstream stream) override {
        std::unique_ptr<nvinfer1::IExecutionContext> made(newContext(profile));
        if (made == nullptr) {
            throw logger_->error("no execution context");
        }
        made->setDeviceMemoryV2(reinterpret_cast<void*>(scratch), static_cast<int64_t>(bytes));
        if (!made->setOptimizationProfileAsync(profile, runtimeStream(stream))) {
            throw logger_->error("profile " + std::to_string(profile) + " is refused");
        }
        return std::make_unique<Context>(std::move(made), logger_);
    }

  private:
#ifdef TRT_MAJOR_RTX
    nvinfer1::IExecutionContext* newContext(int32_t profile) {
        std::unique_ptr<nvinfer1::IRuntimeConfig>& config = configs_[profile];
        if (config == nullptr) {
            config = newConfig(profile == kDecodeProfile);
        }
        return engine_->createExecutionContext(config.get());
    }

    // Left to itself TensorRT changes from a general kernel to a special one in mid-text, once that is compiled, and
    // the two round differently. So the few decode shapes get their own before their first step, which waits for the
    // compiler; prompts come in any shape, keep the general kernels and never wait. All share what is compiled.
    std::unique_ptr<nvinfer1::IRuntimeConfig> newConfig(bool special) {
        using Kernels = nvinfer1::DynamicShapesKernelSpecializationStrategy;
        std::unique_ptr<nvinfer1::IRuntimeConfig> config(engine_->createRuntimeConfig());
        if (config == nullptr) {
            throw logger_->error("no runtime configuration");
        }
        config->setExecutionContextAllocationStrategy(nvinfer1::ExecutionContextAllocationStrategy::kUSER_MANAGED);
        config->setDynamicShapesKernelSpecializationStrategy(special ? Kernels::kEAGER : Kernels::kNONE);
        if (compiled_ == nullptr) {
            compiled_.reset(config->createRuntimeCache());
        }
        if (compiled_ != nullptr) {
            static_cast<void>(config->setRuntimeCache(*compiled_));  // without it kernels are compiled more often
        }
        return config;
    }
#else
    nvinfer1::IExecutionContext* newContext(int32_t /*profile*/) {
        return engine_->createExecutionContext(nvinfer1::ExecutionContextAllocationStrategy::kUSER_MANAGED);
    }
#endif

    // Destroyed from the last to the first: an engine needs its runtime, a runtime its logger.
    std::shared_ptr<Logger> logger_;
    std::shared_ptr<nvinfer1::IRuntime> runtime_;
    std::unique_ptr<nvinfer1::ICudaEngine> engine_;
#ifdef TRT_MAJOR_RTX
    std::unique_ptr<nvinfer1::IRuntimeCache> compiled_;
    std::map<int32_t, std::unique_ptr<nvinfer1::IRuntimeConfig>> configs_;  // by profile
#endif
};

class LoadedLibrary final : public Library {
  public:
    explicit LoadedLibrary(void* handle) : handle_(handle), logger_(std::make_shared<Logger>()) {
        if (number("getInferLibMajorVersion") != NV_TENSORRT_MAJOR) {
            throw PlanError("it is version " + version() + ", and this runtime was compiled for " +
                            std::to_string(NV_TENSORRT_MAJOR) + "." + std::to_string(NV_TENSORRT_MINOR));
        }
    }

    std::string version() const override {
        std::string text;
        for (char const* part : {"Major", "Minor", "Patch", "Build"}) {
            text += (text.empty() ? "" : ".") +
                    std::to_string(number(("getInferLib" + std::string(part) + "Version").c_str()));
        }
        return text;
    }

    std::vector<std::string> registerPlugins(std::string const& path) override {
        nvinfer1::IPluginRegistry* registry = function<nvinfer1::IPluginRegistry*()>("getPluginRegistry")();
        if (missing(*registry).empty()) {
            return {};
        }
        bool const taken = registry->loadLibrary(path.c_str()) != nullptr;
        std::vector<std::string> names = missing(*registry);
        if (names.empty() && !taken) {
            names.emplace_back("the library");
        }
        return names;
    }

    std::unique_ptr<Plan> deserialize(void const* data, std::size_t size) override {
        void* made = function<void*(void*, int32_t)>("createInferRuntime_INTERNAL")(
            static_cast<nvinfer1::ILogger*>(logger_.get()), static_cast<int32_t>(NV_TENSORRT_VERSION));
        if (made == nullptr) {
            throw logger_->error("no runtime");
        }
        std::shared_ptr<nvinfer1::IRuntime> runtime(static_cast<nvinfer1::IRuntime*>(made));
        std::unique_ptr<nvinfer1::ICudaEngine> engine(runtime->deserializeCudaEngine(data, size));
        if (engine == nullptr) {
            throw logger_->loggedError("it cannot be read");
        }
        return std::make_unique<LoadedPlan>(std::move(engine), std::move(runtime), logger_);
    }

  private:
    template <typename Signature>
    Signature* function(char const* name) const {
        auto* found = reinterpret_cast<Signature*>(dlsym(handle_, name));
        if (found == nullptr) {
            throw PlanError(std::string("it has no ") + name);
        }
        return found;
    }

    int32_t number(char const* name) const { return function<int32_t()>(name)(); }

    static std::vector<std::string> missing(nvinfer1::IPluginRegistry& registry) {
        int32_t count = 0;
        nvinfer1::IPluginCreatorInterface* const* creators = registry.getAllCreators(&count);
        std::vector<std::string> names;
        for (contract::OpSpec const* op : contract::kOps) {
            bool const known = std::any_of(creators, creators + count, [op](nvinfer1::IPluginCreatorInterface* each) {
                return isCreatorOf(*each, op->name);
            });
            if (!known) {
                names.emplace_back(op->name);
            }
        }
        std::sort(names.begin(), names.end());
        return names;
    }

    static bool isCreatorOf(nvinfer1::IPluginCreatorInterface& creator, std::string const& op) {
        if (std::string(creator.getInterfaceInfo().kind) != "PLUGIN CREATOR_V3ONE") {
            return false;
        }
        auto const& known = static_cast<nvinfer1::IPluginCreatorV3One const&>(creator);
        return known.getPluginName() == op && std::string(known.getPluginVersion()) == contract::kPluginVersion &&
               std::string(known.getPluginNamespace()) == contract::kOpDomain;
    }

    void* handle_;
    std::shared_ptr<Logger> logger_;
};

std::unique_ptr<Library> openLibrary(void* handle) {
    return std::make_unique<LoadedLibrary>(handle);
}

}  // namespace

Flavour flavour() {
    return {kBackend, kPackage, kLibraryName + std::to_string(NV_TENSORRT_MAJOR), openLibrary};
}

}  // namespace hspec_trt::trt::HSPEC_TRT_FLAVOUR

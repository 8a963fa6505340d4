// SPDX-License-Identifier: Apache-2.0
#include "trt/loading.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <utility>

#include "bundle/manifest.h"
#include "bundle/manifest_gen.h"
#include "hspec_trt/runtime/error.h"
#include "plugin_library.h"
#include "trt/cuda.h"
#include "trt/plan.h"
#include "trt/trt_engine.h"

namespace hspec_trt::trt {
namespace {

constexpr char const* kVariable = "HSPEC_TRT_TENSORRT_LIBRARY";

Flavour const& flavourOf(std::string const& backend) {
    for (Flavour const& flavour : flavours()) {
        if (flavour.backend == backend) {
            return flavour;
        }
    }
    char const* headers = backend == "tensorrt" ? "TENSORRT_INCLUDE_DIR" : "TENSORRT_RTX_INCLUDE_DIR";
    throw Error(Fault{"L032", "this runtime was compiled without the headers of " + backend, "", "",
                      std::string("Compile it with ") + headers});
}

std::unique_ptr<Cuda> openGpu(EngineFolder const& folder, int32_t device) {
    try {
        return std::make_unique<Cuda>(device);
    } catch (CudaError const& error) {
        throw Error(
            Fault{"L042", "backend " + folder.backend() + " finds no NVIDIA GPU to run on (" + error.what() + ")",
                  "a GPU with driver", folder.path(),
                  "Build with --backend onnxruntime to run on a CPU, or run on a machine with a GPU and its driver"});
    }
}

std::unique_ptr<Library> openTensorrt(Flavour const& flavour, std::string const& given) {
    char const* variable = std::getenv(kVariable);
    std::string const named = variable == nullptr ? "" : variable;
    std::string const chosen = !given.empty() ? given : !named.empty() ? named : flavour.library;
    std::string what;
    if (void* handle = dlopen(chosen.c_str(), RTLD_NOW | RTLD_LOCAL)) {
        try {
            return flavour.open(handle);
        } catch (PlanError const& error) {
            what = chosen + ": " + error.what();
        }
    } else {
        what = dlerror();
    }
    throw Error(Fault{"L033", std::string("this engine needs the library of ") + flavour.package + ": " + what,
                      flavour.library, "", std::string("Install it, or set ") + kVariable});
}

// The part of a version within which plans can be read.
std::string series(std::string const& version) {
    std::size_t const first = version.find('.');
    return first == std::string::npos ? version : version.substr(0, version.find('.', first + 1));
}

std::string listed(std::vector<int64_t> const& numbers) {
    std::string text;
    for (int64_t const number : numbers) {
        text += (text.empty() ? "" : ", ") + std::to_string(number);
    }
    return text;
}

void checkFit(EngineFolder const& folder, Artifact const& artifact, Flavour const& flavour, std::string const& version,
              DeviceInfo const& device, std::optional<PluginLibrary> const& plugins) {
    std::vector<Fault> faults;
    std::string const machine = std::to_string(device.sm) + ", this machine's " + device.name;
    if (series(version) != series(artifact.tensorrtVersion)) {
        faults.push_back({"L038",
                          std::string("the plan was built by ") + flavour.package + " " + artifact.tensorrtVersion,
                          version + ", which is installed", folder.path(), schema::kRebuild});
    }
    if (!artifact.sm.empty() && std::count(artifact.sm.begin(), artifact.sm.end(), device.sm) == 0) {
        faults.push_back({"L038", "the plan is for sm " + listed(artifact.sm), machine, folder.path(),
                          std::string(schema::kRebuild) + " --sm " + std::to_string(device.sm)});
    }
    if (plugins && !plugins->runsOn(device.sm)) {
        std::string const sm = plugins->sm.empty() ? "no GPU" : listed(plugins->sm);
        faults.push_back(
            {"L002", "the plugin library has kernels for sm " + sm, machine, plugins->path,
             "python build_scripts/compile_kernels.py " + folder.path() + " && python build_scripts/build_plugins.py"});
    }
    if (!faults.empty()) {
        throw Error(std::move(faults));
    }
}

void registerPlugins(Library& library, PluginLibrary const& plugins) {
    std::string names;
    for (std::string const& name : library.registerPlugins(plugins.path)) {
        names += (names.empty() ? "" : ", ") + name;
    }
    if (!names.empty()) {
        throw Error(Fault{
            "L002", "TensorRT does not take " + names + " from the plugin library",
            std::string("plugins of namespace '") + contract::kOpDomain + "', version '" + contract::kPluginVersion +
                "'",
            plugins.path,
            "It was built with headers of TensorRT " + plugins.tensorrtVersion + ": build it for the installed one"});
    }
}

// A file in memory for as long as this object lives.
class MappedFile {
  public:
    explicit MappedFile(std::string const& path) {
        int const descriptor = open(path.c_str(), O_RDONLY | O_CLOEXEC);
        off_t const end = descriptor < 0 ? -1 : lseek(descriptor, 0, SEEK_END);
        if (end >= 0) {
            size_ = static_cast<std::size_t>(end);
            data_ = size_ == 0 ? nullptr : mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, descriptor, 0);
        }
        int const number = errno;
        if (descriptor >= 0) {
            close(descriptor);
        }
        if (data_ == MAP_FAILED) {
            throw Error(
                Fault{"L008", std::string(std::strerror(number)) + ": " + path, "files that can be read", path, ""});
        }
    }
    ~MappedFile() {
        if (data_ != nullptr) {
            munmap(data_, size_);
        }
    }
    MappedFile(MappedFile const&) = delete;
    MappedFile& operator=(MappedFile const&) = delete;

    void const* data() const { return data_; }
    std::size_t size() const { return size_; }

  private:
    void* data_ = MAP_FAILED;
    std::size_t size_ = 0;
};

std::unique_ptr<Plan> readPlan(Library& library, std::string const& path) {
    MappedFile const file(path);
    try {
        return library.deserialize(file.data(), file.size());
    } catch (PlanError const& error) {
        throw Error(
            Fault{"L039", std::string("TensorRT refuses the plan: ") + error.what(), "", path, schema::kRebuild});
    }
}

// Pages of the pools, the null page included: what the budget holds, at most what full rows of full length take.
int32_t numPages(Limits const& limits, EngineOptions const& options, int64_t free) {
    int64_t const budget =
        options.kvCacheMemory.value_or(static_cast<int64_t>(static_cast<double>(free) * options.kvCacheFraction));
    int64_t const most = int64_t{limits.maxRows} * limits.maxPagesPerRow() + 1;
    int64_t const count = std::min(budget / limits.pageBytes, most);
    if (count < 2) {
        throw Error(Fault{"L035", std::to_string(budget) + " bytes for pages",
                          std::to_string(2 * limits.pageBytes) + " for one page of " + std::to_string(limits.pageSize) +
                              " tokens and the null page",
                          "", "Raise --kv-cache-memory"});
    }
    return static_cast<int32_t>(count);
}

std::string roomOf(DeviceInfo const& device) {
    std::array<char, 32> gib{};
    std::snprintf(gib.data(), gib.size(), "%.1f", static_cast<double>(device.free) / (1 << 30));
    return "the GPU " + device.name + " with " + gib.data() + " GiB free";
}

void givePages(TrtEngine& engine, EngineOptions const& options) {
    int32_t const count = numPages(engine.limits(), options, engine.cuda().device().free);
    try {
        engine.allocate(count);
    } catch (CudaError const& error) {
        throw Error(Fault{
            "L035",
            roomOf(engine.cuda().device()) + " does not hold " + std::to_string(count) + " pages: " + error.what(), "",
            "", "Lower --kv-cache-memory"});
    }
}

}  // namespace

std::unique_ptr<StepEngine> load(EngineFolder const& folder, EngineOptions const& options) {
    Manifest const& manifest = folder.manifest();
    if (manifest.artifacts.empty()) {
        throw Error(Fault{"L006", "the manifest lists nothing to run", "", folder.path(), schema::kRebuild});
    }
    Artifact const& artifact = manifest.artifacts.front();
    std::string const planPath = folder.file(artifact.file);
    Flavour const& flavour = flavourOf(manifest.backend);
    std::optional<PluginLibrary> plugins;
    if (manifest.pluginKernels) {
        plugins = PluginLibrary::open(PluginLibrary::find(options.pluginLibrary));
    }
    std::unique_ptr<Cuda> cuda = openGpu(folder, options.device);
    DeviceInfo const device = cuda->device();
    std::unique_ptr<Library> const library = openTensorrt(flavour, options.tensorrtLibrary);
    checkFit(folder, artifact, flavour, library->version(), device, plugins);
    if (plugins) {
        registerPlugins(*library, *plugins);
    }
    try {
        std::unique_ptr<Plan> plan = readPlan(*library, planPath);
        PlanTensors tensors = PlanTensors::of(*plan, manifest.limits, planPath);
        auto engine = std::make_unique<TrtEngine>(std::move(cuda), std::move(plan), std::move(tensors), manifest.limits,
                                                  manifest.pluginKernels, options.cudaGraphs);
        givePages(*engine, options);
        return engine;
    } catch (CudaError const& error) {
        throw Error(Fault{"L035", roomOf(device) + " does not hold the engine: " + error.what(), "", planPath,
                          "Free GPU memory, or use a larger GPU"});
    } catch (PlanError const& error) {
        throw Error(
            Fault{"L039", std::string("TensorRT refuses the plan: ") + error.what(), "", planPath, schema::kRebuild});
    }
}

}  // namespace hspec_trt::trt

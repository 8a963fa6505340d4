// SPDX-License-Identifier: Apache-2.0
#include "plugin_library.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <stdexcept>
#include <utility>

#include "hspec_trt/contract_gen.h"
#include "hspec_trt/runtime/error.h"
#include "json.h"
#include "paths.h"

namespace hspec_trt {
namespace {

using json::Kind;
using json::Value;

constexpr char const* kName = "libhspec_trt_plugins.so";
constexpr char const* kVariable = "HSPEC_TRT_PLUGIN_LIBRARY";
constexpr char const* kBuild = "Build it: python build_scripts/build_plugins.py; or set HSPEC_TRT_PLUGIN_LIBRARY";

Error unusable(std::string const& what, std::string const& path) {
    return Error(Fault{"L002", "the plugin library cannot be used: " + what, kName, path, kBuild});
}

// The text of `describe` as the object that it must be.
Value description(char const* text, std::string const& path) {
    try {
        Value value = json::parse(text);
        if (value.kind == Kind::kObject) {
            return value;
        }
    } catch (std::logic_error const&) {  // what json::parse throws
    }
    throw unusable("its description is not a JSON object", path);
}

// The ops of the contract with their attributes, as the library must list them.
std::string opsText() {
    std::string text;
    for (contract::OpSpec const* op : contract::kOps) {
        std::string attributes;
        for (int32_t i = 0; i < op->numAttributes; ++i) {
            attributes += (i > 0 ? ", " : "") + json::quoted(op->attributes[i].name);
        }
        text += (text.empty() ? "" : ", ") + json::quoted(op->name) + ": [" + attributes + "]";
    }
    return "{" + text + "}";
}

void check(Value const& found, std::string const& path) {
    std::vector<Fault> faults;
    for (auto const& [key, needed] :
         {std::pair<char const*, std::string>{"contract_version", std::to_string(contract::kContractVersion)},
          {"plugin_version", json::quoted(contract::kPluginVersion)},
          {"ops", opsText()},
          {"ops_digest", json::quoted(contract::kOpsDigest)}}) {
        Value const* value = found.find(key);
        std::string const text = value == nullptr ? "missing" : value->dump();
        if (text != needed) {
            faults.push_back(
                {"L002", std::string("the plugin library's ") + key + " is " + text, needed, path, kBuild});
        }
    }
    if (!faults.empty()) {
        throw Error(std::move(faults));
    }
}

std::vector<int64_t> numbers(Value const& object, char const* key) {
    std::vector<int64_t> result;
    for (Value const& each : object.at(key).array) {
        result.push_back(each.integer);
    }
    return result;
}

}  // namespace

bool PluginLibrary::runsOn(int64_t deviceSm) const {
    return std::count(sm.begin(), sm.end(), deviceSm) > 0 ||
           std::any_of(ptx.begin(), ptx.end(), [deviceSm](int64_t least) { return least <= deviceSm; });
}

std::string PluginLibrary::find(std::string const& given) {
    char const* variable = std::getenv(kVariable);
    std::string const named = variable == nullptr ? "" : variable;
    std::string const chosen = paths::collapsed(!given.empty()   ? given
                                                : !named.empty() ? named
                                                                 : paths::ownFolder() + "/" + kName);
    std::error_code ignored;
    if (std::filesystem::is_regular_file(chosen, ignored)) {
        return std::filesystem::canonical(chosen).string();
    }
    std::string const told = !given.empty()   ? "given"
                             : !named.empty() ? std::string("$") + kVariable
                                              : "the package's own";
    throw Error(Fault{"L002", "no plugin library at " + chosen + " (" + told + ")", kName, "", kBuild});
}

PluginLibrary PluginLibrary::open(std::string const& path) {
    void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) {
        throw unusable(dlerror(), path);
    }
    auto const describe = reinterpret_cast<char const* (*)()>(dlsym(library, "hspec_trt_describe"));
    if (describe == nullptr) {
        throw unusable(dlerror(), path);
    }
    Value const value = description(describe(), path);
    check(value, path);
    try {
        Value const& kernels = value.at("kernels");
        return {path, value.at("tensorrt").string, numbers(kernels, "sm"), numbers(kernels, "ptx")};
    } catch (std::invalid_argument const&) {
        throw unusable("its description does not tell its kernels", path);
    }
}

}  // namespace hspec_trt

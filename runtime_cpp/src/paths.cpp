// SPDX-License-Identifier: Apache-2.0
#include "paths.h"

#include <dlfcn.h>

#include <algorithm>
#include <string_view>

namespace hspec_trt::paths {

std::string collapsed(std::string const& path) {
    std::string result;
    bool const twoSlashes = path.rfind("//", 0) == 0 && path.rfind("///", 0) != 0;
    if (!path.empty() && path.front() == '/') {
        result = twoSlashes ? "//" : "/";
    }
    std::size_t const root = result.size();
    for (std::size_t at = 0; at < path.size();) {
        std::size_t const end = std::min(path.find('/', at), path.size());
        std::string_view const part = std::string_view(path).substr(at, end - at);
        if (!part.empty() && part != ".") {
            result += result.size() > root ? "/" : "";
            result += part;
        }
        at = end + 1;
    }
    return result.empty() ? "." : result;
}

std::string joined(std::string const& folder, std::string const& name) {
    return collapsed(folder + "/" + name);
}

std::string ownFolder() {
    Dl_info info{};
    static char const here = 0;
    if (dladdr(&here, &info) == 0 || info.dli_fname == nullptr) {
        return ".";
    }
    std::string const file = info.dli_fname;
    std::size_t const slash = file.rfind('/');
    return slash == std::string::npos ? "." : file.substr(0, slash);
}

}  // namespace hspec_trt::paths

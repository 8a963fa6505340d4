// SPDX-License-Identifier: Apache-2.0
#include "core/creation_log.h"

#include <mutex>

namespace hspec_trt {
namespace {

struct Log {
    std::mutex mutex;
    std::string entries;
};

Log& log() {
    static Log instance;
    return instance;
}

// Names come from ONNX nodes and may hold anything.
std::string quoted(std::string const& text) {
    constexpr char kHex[] = "0123456789abcdef";
    std::string result = "\"";
    for (char const c : text) {
        auto const byte = static_cast<unsigned char>(c);
        if (c == '"' || c == '\\') {
            result += '\\';
            result += c;
        } else if (byte < 0x20) {
            result += std::string("\\u00") + kHex[byte >> 4] + kHex[byte & 15];
        } else {
            result += c;
        }
    }
    return result + '"';
}

}  // namespace

void noteCreation(std::string const& name, std::string const& description) {
    std::lock_guard<std::mutex> const lock(log().mutex);
    std::string& entries = log().entries;
    entries += (entries.empty() ? "" : ",");
    entries += "{\"name\":" + quoted(name) + ",\"plugin\":" + description + "}";
}

char const* createdPlugins() {
    thread_local std::string text;
    std::lock_guard<std::mutex> const lock(log().mutex);
    text = "[" + log().entries + "]";
    return text.c_str();
}

}  // namespace hspec_trt

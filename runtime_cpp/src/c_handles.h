// SPDX-License-Identifier: Apache-2.0
// What stands behind the handles of the C interface, and how its structures are read and written.
#pragma once

#include <algorithm>
#include <cstring>
#include <exception>
#include <memory>
#include <optional>
#include <string>

#include "hspec_trt/runtime/engine_folder.h"
#include "hspec_trt/runtime/error.h"
#include "hspec_trt/runtime/load.h"
#include "hspec_trt/runtime/replay.h"
#include "hspec_trt/runtime/runtime.h"
#include "hspec_trt/runtime_c.h"

struct hspec_rt_error {
    hspec_trt::Error error;
};

struct hspec_rt_folder {
    hspec_trt::EngineFolder folder;
    std::string path;  // the last one that was asked for
};

struct hspec_rt_engine {
    std::unique_ptr<hspec_trt::StepEngine> engine;
};

struct hspec_rt_runtime {
    std::unique_ptr<hspec_trt::Runtime> runtime;
};

struct hspec_rt_result {
    hspec_trt::RequestResult const& result;
    std::optional<hspec_rt_error> error;
};

namespace hspec_trt::c_api {

// Throws Error R330 where `wrong`.
void misuse(bool wrong, char const* what);

// The exception that is being handled, as an error for the caller.
void tell(hspec_rt_error** error) noexcept;

// Run a function; 0, or 1 with `*error` set where it throws.
template <typename Function>
int32_t guarded(hspec_rt_error** error, Function&& function) noexcept {
    try {
        function();
        return 0;
    } catch (...) {
        tell(error);
        return 1;
    }
}

// The same, with the function's value in `*result`, which is empty after a failure.
template <typename Result, typename Function>
int32_t guarded(Result* result, hspec_rt_error** error, Function&& function) noexcept {
    if (result != nullptr) {
        *result = {};
    }
    return guarded(error, [&] {
        Result const value = function();
        if (result != nullptr) {
            *result = value;
        }
    });
}

// A structure of the caller's, whose program may be older or newer than this library: what it lacks has its default.
template <typename Struct>
Struct readStruct(Struct const* given, void (*init)(Struct*)) {
    Struct read{};
    init(&read);
    if (given != nullptr) {
        misuse(given->size == 0, "a structure has size 0: call its init function");
        std::memcpy(&read, given, std::min(given->size, sizeof(Struct)));
    }
    return read;
}

// Fill as much of a structure as its size says; that stays.
template <typename Struct>
void writeStruct(Struct const& value, Struct* to) {
    size_t const size = to->size;
    std::memcpy(to, &value, std::min(size, sizeof(Struct)));
    to->size = size;
}

void writeLimits(Limits const& limits, hspec_rt_limits* to);
RuntimeOptions runtimeOptions(hspec_rt_runtime_options const& given);
Request requestOf(hspec_rt_request const& given);
void deliver(Update const& update, hspec_rt_callback callback, void* user);

}  // namespace hspec_trt::c_api

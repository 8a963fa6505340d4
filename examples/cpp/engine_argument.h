// SPDX-License-Identifier: Apache-2.0
// The first arguments of both examples: an engine folder, or --replay and a trace where there is no GPU.
#pragma once

#include <hspec_trt/runtime/engine_folder.h>
#include <hspec_trt/runtime/load.h>
#include <hspec_trt/runtime/replay.h>
#include <hspec_trt/runtime/runtime.h>

#include <memory>
#include <stdexcept>
#include <string>

struct ChosenEngine {
    std::unique_ptr<hspec_trt::StepEngine> engine;
    hspec_trt::RuntimeOptions options;
    int nextArgument;
};

inline ChosenEngine chooseEngine(int argc, char** argv) {
    std::string const first = argc > 1 ? argv[1] : "";
    if (first == "--replay" && argc > 2) {
        return {hspec_trt::openReplay(argv[2]), {}, 3};
    }
    if (first.empty() || first[0] == '-') {
        throw std::invalid_argument("the first argument is an engine folder, or --replay TRACE");
    }
    hspec_trt::EngineFolder const folder = hspec_trt::EngineFolder::open(first);
    hspec_trt::RuntimeOptions options;
    options.eosIds = folder.eosIds();
    return {hspec_trt::loadEngine(folder), options, 2};
}

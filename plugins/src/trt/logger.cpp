// SPDX-License-Identifier: Apache-2.0
#include "trt/logger.h"

#include <NvInferRuntime.h>

#include <atomic>
#include <cstdio>

#include "core/last_error.h"

namespace hspec_trt {
namespace {

std::atomic<nvinfer1::ILoggerFinder*> loggerFinder{nullptr};

}  // namespace

void useLoggerFinder(nvinfer1::ILoggerFinder* finder) {
    loggerFinder = finder;
}

void logError(std::string const& message) {
    setLastError(message);
    nvinfer1::ILoggerFinder* const finder = loggerFinder;
    nvinfer1::ILogger* const logger = finder != nullptr ? finder->findLogger() : nullptr;
    if (logger != nullptr) {
        logger->log(nvinfer1::ILogger::Severity::kERROR, ("hspec_trt: " + message).c_str());
    } else {
        std::fprintf(stderr, "hspec_trt: %s\n", message.c_str());
    }
}

}  // namespace hspec_trt

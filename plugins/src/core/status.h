// SPDX-License-Identifier: Apache-2.0
// The result of a check or a launch. Success holds no text, so it costs no allocation.
#pragma once

#include <string>
#include <utility>

namespace hspec_trt {

class [[nodiscard]] Status {
  public:
    static Status ok() { return Status{std::string{}}; }
    static Status error(std::string message) { return Status{std::move(message)}; }

    bool isOk() const { return message_.empty(); }
    std::string const& message() const { return message_; }

    // The same failure, with what was being done in front.
    Status within(std::string const& what) const { return isOk() ? *this : error(what + ": " + message_); }

  private:
    explicit Status(std::string message) : message_(std::move(message)) {}
    std::string message_;
};

}  // namespace hspec_trt

// Return from the calling function when the expression is a failed Status.
#define HSPEC_TRT_RETURN_IF_ERROR(expression)              \
    do {                                                   \
        ::hspec_trt::Status hspecTrtStatus = (expression); \
        if (!hspecTrtStatus.isOk())                        \
            return hspecTrtStatus;                         \
    } while (false)

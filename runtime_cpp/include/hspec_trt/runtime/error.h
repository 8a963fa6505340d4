// SPDX-License-Identifier: Apache-2.0
// Errors that people meet: the codes and texts of hspec_trt/errors.py.
#pragma once

#include <exception>
#include <string>
#include <vector>

#include "hspec_trt/runtime/api.h"

namespace hspec_trt {

// One fault. `found` is what is there, `needed` what should be, `where` the file and key or the field, `fix` one
// remedy; all but `code` and `found` may be empty.
struct HSPEC_TRT_RUNTIME_API Fault {
    std::string code;
    std::string found;
    std::string needed = {};
    std::string where = {};
    std::string fix = {};

    // found; needed: ... (where). fix
    std::string message() const;
    // error[CODE]: message
    std::string text() const;
};

// One fault or several that were found together. what() has a line for each.
class HSPEC_TRT_RUNTIME_API Error : public std::exception {
  public:
    explicit Error(Fault fault);
    // `faults` has at least one entry.
    explicit Error(std::vector<Fault> faults);

    std::vector<Fault> const& faults() const { return faults_; }
    // Code of the first fault.
    std::string const& code() const { return faults_.front().code; }
    char const* what() const noexcept override { return text_.c_str(); }

  private:
    std::vector<Fault> faults_;
    std::string text_;
};

}  // namespace hspec_trt

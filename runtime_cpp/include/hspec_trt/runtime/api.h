// SPDX-License-Identifier: Apache-2.0
// What is visible outside the library.
#pragma once

#define HSPEC_TRT_RUNTIME_API __attribute__((visibility("default")))

# SPDX-License-Identifier: Apache-2.0
# find_package(hspec_trt) gives the target hspec_trt::runtime.
include("${CMAKE_CURRENT_LIST_DIR}/hspec_trtTargets.cmake")

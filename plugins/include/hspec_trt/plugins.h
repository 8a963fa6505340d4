/* SPDX-License-Identifier: Apache-2.0
 * C interface of libhspec_trt_plugins.so, beside the entry points that TensorRT itself calls (getCreators,
 * setLoggerFinder). It lets a loader check the library before TensorRT sees it, and calls launchers without TensorRT.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define HSPEC_TRT_API __attribute__((visibility("default")))

/* dtype: 0 float32, 1 float16, 2 bfloat16, 3 int32, 4 int64, 5 bool. data: device memory, contiguous, starts on a
 * multiple of 16 bytes; so does a workspace. */
typedef struct {
    void* data;
    int32_t dtype;
    int32_t rank;
    int64_t dims[8];
} hspec_trt_tensor;

/* JSON object: contract_version, plugin_version, ops_digest, tensorrt (version of the headers), ops, kernels. */
HSPEC_TRT_API char const* hspec_trt_describe(void);

/* JSON list of the plugins that were created for networks in this process: name, plugin {op, fields, aliased}. Valid
 * until the calling thread's next call. */
HSPEC_TRT_API char const* hspec_trt_created_plugins(void);

/* Text of the calling thread's last failure; valid until its next failure. */
HSPEC_TRT_API char const* hspec_trt_last_error(void);

/* In the calls below: `op` is the op's name; `attributes` its values in the contract's order, four bytes each;
 * `inputs` and `outputs` its operands in the contract's order. They return 0 on success. */

/* Whether every kernel of such a node is compiled for `sm` (89 for compute capability 8.9). Only shapes and types of
 * `inputs` are read; sizes that change from step to step may be -1. T of PagedAttention is the verify width: rows that
 * long must have a kernel of their own. */
HSPEC_TRT_API int32_t hspec_trt_check_kernels(char const* op, int32_t const* attributes, hspec_trt_tensor const* inputs,
                                              int32_t sm);

/* Bytes of workspace for inputs of these shapes or smaller ones. */
HSPEC_TRT_API int32_t hspec_trt_workspace_bytes(char const* op, int32_t const* attributes,
                                                hspec_trt_tensor const* inputs, size_t* bytes);

/* Launch on `stream` (a CUstream) of the current context; checks types and shapes first. */
HSPEC_TRT_API int32_t hspec_trt_launch(char const* op, int32_t const* attributes, hspec_trt_tensor const* inputs,
                                       hspec_trt_tensor const* outputs, void* workspace, size_t workspace_bytes,
                                       void* stream);

#ifdef __cplusplus
}
#endif

/* SPDX-License-Identifier: Apache-2.0
 * Stands for the plugin library: checks what the caller hands over and answers with it, so that the translation from
 * tensors can be tested without a GPU. Every byte of the first output becomes the rank of the last input; SharedKvAttention
 * writes one byte after its workspace if it has a window, else one before. */
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "hspec_trt/plugins.h"

static char error[256];

char const* hspec_trt_last_error(void) {
    return error;
}

int32_t hspec_trt_workspace_bytes(char const* op, int32_t const* attributes, hspec_trt_tensor const* inputs,
                                  size_t* bytes) {
    (void)attributes;
    *bytes = (size_t)inputs[0].dims[0] + strlen(op);
    return 0;
}

int32_t hspec_trt_launch(char const* op, int32_t const* attributes, hspec_trt_tensor const* inputs,
                         hspec_trt_tensor const* outputs, void* workspace, size_t workspace_bytes, void* stream) {
    if (strcmp(op, "Mamba2BlockScan") == 0) {
        int32_t const last = inputs[7].rank;
        size_t const count = (size_t)(outputs[0].dims[0] * outputs[0].dims[1] * outputs[0].dims[2]);
        memset(outputs[0].data, last, 2 * count);
        return 0;
    }
    if (strcmp(op, "SharedKvAttention") == 0) {
        ((unsigned char*)workspace)[attributes[5] ? (ptrdiff_t)workspace_bytes : -1] = 0;
        return 0;
    }
    if (strcmp(op, "AppendKv") == 0) {
        snprintf(error, sizeof(error), "AppendKv %d %d %d ranks %d %d %d in place %d", attributes[0], attributes[1],
                 attributes[2], inputs[2].rank, inputs[3].rank, inputs[5].rank, inputs[2].data == outputs[0].data);
        return 1;
    }
    float scale = 0.0F;
    if (strcmp(op, "PagedAttention") == 0) {
        memcpy(&scale, attributes + 4, sizeof(scale));
    }
    snprintf(error, sizeof(error), "%s heads %d scale %.3f window %d dtypes %d %d dims %lld %lld bytes %zu first %d stream %d",
             op, attributes[0], (double)scale, attributes[5], inputs[0].dtype, inputs[4].dtype,
             (long long)inputs[3].dims[0], (long long)inputs[7].dims[1], workspace_bytes,
             ((unsigned char*)workspace)[0], stream != NULL);
    return 1;
}

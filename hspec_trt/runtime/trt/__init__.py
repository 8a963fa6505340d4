# SPDX-License-Identifier: Apache-2.0
"""The session on TensorRT: bindings, device memory, CUDA graphs. Nothing here knows of requests."""

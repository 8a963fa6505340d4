# SPDX-License-Identifier: Apache-2.0
"""GPU kernels of the custom ops, in Triton; `catalog` and `geometry` need no Triton. Nothing here knows TensorRT."""

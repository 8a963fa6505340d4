# SPDX-License-Identifier: Apache-2.0
"""Checks of the GPU kernels against float64 references; the same checks run small under Triton's interpreter."""

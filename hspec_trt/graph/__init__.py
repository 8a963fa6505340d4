# SPDX-License-Identifier: Apache-2.0
"""The fused step as an ONNX graph: target, verification, drafter, and the custom ops as functions."""

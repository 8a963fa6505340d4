# SPDX-License-Identifier: Apache-2.0
"""Serving an engine: HTTP and Triton Inference Server."""

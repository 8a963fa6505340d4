# SPDX-License-Identifier: Apache-2.0
"""Triton Inference Server: the model repository that is exported, and the models that run inside the server."""

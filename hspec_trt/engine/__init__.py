# SPDX-License-Identifier: Apache-2.0
"""Compiled TensorRT engines: from the graph and its weights to a plan."""

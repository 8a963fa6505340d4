# SPDX-License-Identifier: Apache-2.0
"""Compiled TensorRT engines: from the graph and its weights to a plan."""

from hspec_trt.engine.compile import EngineReport, compile_engine, write_layers

__all__ = ["EngineReport", "compile_engine", "write_layers"]

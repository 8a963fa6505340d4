# SPDX-License-Identifier: Apache-2.0
"""Compiled TensorRT engines: from the graph and its weights to a plan."""

from hspec_trt.engine.compile import EnginePlan, EngineReport, check_backend, compile_engine, plan_engine, write_layers

__all__ = ["EnginePlan", "EngineReport", "check_backend", "compile_engine", "plan_engine", "write_layers"]

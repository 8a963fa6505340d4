# SPDX-License-Identifier: Apache-2.0
"""A session on the double of TensorRT, for a step graph on disk."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import onnx
import onnx_ir as ir

from hspec_trt.config.build import EngineLimits
from hspec_trt.engine.profiles import Profile, profiles
from hspec_trt.runtime.session import Limits
from hspec_trt.runtime.trt.cuda import Cuda
from hspec_trt.runtime.trt.engine import TrtEngine
from hspec_trt.runtime.trt.session import TrtSession
from tests.support.gpu_double import HostGpu
from tests.support.trt_double import FLAGS, FakeTensorRt, write_plan


@dataclass(frozen=True)
class DoubledSession:
    """A session with what stands behind it."""

    session: TrtSession
    gpu: HostGpu
    trt: FakeTensorRt


def graph_profiles(graph: Path, limits: Limits) -> Sequence[Profile]:
    """The profiles that a build makes for this graph."""
    engine_limits = EngineLimits(
        limits.max_rows, limits.max_seq_len, limits.max_tokens, limits.page_size, limits.num_drafts
    )
    model = onnx.load(graph, load_external_data=False)
    values = [ir.serde.deserialize_value_info_proto(value, None) for value in model.graph.input]
    return profiles(values, engine_limits)


def doubled_session(
    graph: Path,
    limits: Limits,
    *,
    aliased: bool = True,
    use_graphs: bool = True,
    flags: Sequence[str] = FLAGS,
    compiles_at_run_time: bool = True,
) -> DoubledSession:
    """A session whose plan, built with these flags, ONNX Runtime executes on host memory."""
    plan = write_plan(graph.with_suffix(".plan"), graph, graph_profiles(graph, limits), aliased=aliased, flags=flags)
    gpu = HostGpu()
    trt, cuda = FakeTensorRt(gpu, compiles_at_run_time=compiles_at_run_time), Cuda(gpu)
    engine = TrtEngine(trt, cuda, plan, limits, compiles_at_run_time=compiles_at_run_time)
    return DoubledSession(TrtSession(engine, cuda, limits, aliased=aliased, use_graphs=use_graphs), gpu, trt)

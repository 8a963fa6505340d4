# SPDX-License-Identifier: Apache-2.0
"""The emitted model as a file: contract names and types, external weights, no control flow for TensorRT, cost."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from pathlib import Path

import onnx
import onnx_ir as ir
import pytest

from hspec_trt import dtypes
from hspec_trt.bundle import plan_weights, write_weights
from hspec_trt.checkpoint.families import target_weights
from hspec_trt.config.build import BuildConfig
from hspec_trt.config.drafter import DrafterConfig
from hspec_trt.config.rope import RopeConfig
from hspec_trt.config.target import TargetConfig
from hspec_trt.contract import KV_DTYPE, OP_DOMAIN, OPS, STEP_INPUTS, STEP_OUTPUTS, kv_pages, kv_pages_out
from hspec_trt.dtypes import FLOAT32, DType
from hspec_trt.errors import BuildError
from hspec_trt.graph.step import build_step
from hspec_trt.graph.weights import EngineWeight, engine_weights
from tests.support.golden_pair import HSPEC_CASES, hspec_pair
from tests.support.graph_engine import Pair

BUILD = BuildConfig(page_size=16, num_drafts=7)
DTYPES = ("float32", "float16", "bfloat16")


def emit(pair: Pair, build: BuildConfig = BUILD, **options: bool) -> tuple[onnx.ModelProto, list[EngineWeight]]:
    dtype = dtypes.BY_NAME[build.dtype]
    weights = engine_weights(pair.target_tensors, pair.drafter_tensors, pair.target, pair.drafter, dtype)
    return ir.to_proto(build_step(pair.target, pair.drafter, build, plan_weights(weights), **options)), weights


def all_nodes(model: onnx.ModelProto) -> list[onnx.NodeProto]:
    """Nodes of the graph, its functions, and their subgraphs."""
    found: list[onnx.NodeProto] = []
    pending = [*model.graph.node, *(node for function in model.functions for node in function.node)]
    while pending:
        node = pending.pop()
        found.append(node)
        pending += [inner for attribute in node.attribute for inner in attribute.g.node]
    return found


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("drafter", [True, False])
def test_inputs_and_outputs_are_those_of_the_contract(dtype: str, drafter: bool) -> None:
    pair = hspec_pair("hspec_qwen3")
    model, _ = emit(pair if drafter else pair.without_drafter(), replace(BUILD, dtype=dtype))
    layers = range(pair.target.num_layers)
    for values, specs in (
        (model.graph.input, [*STEP_INPUTS, *map(kv_pages, layers)]),
        (model.graph.output, [*STEP_OUTPUTS, *map(kv_pages_out, layers)]),
    ):
        assert [value.name for value in values] == [spec.name for spec in specs]
        for value, spec in zip(values, specs, strict=True):
            name = dtype if spec.dtype == KV_DTYPE else spec.dtype
            assert value.type.tensor_type.elem_type == dtypes.BY_NAME[name].onnx
            dims = value.type.tensor_type.shape.dim
            assert len(dims) == len(spec.dims)
            for dim, wanted in zip(dims, spec.dims, strict=True):
                sizes = {"G": 7, "G+1": 8, "kv_heads": 2, "page_size": 16, "head_dim": 16, "2": 2}
                assert (dim.dim_value or dim.dim_param) == sizes.get(wanted, wanted)


@pytest.mark.parametrize("case", HSPEC_CASES)
@pytest.mark.parametrize("dtype", DTYPES)
def test_the_checker_accepts_it(case: str, dtype: str, tmp_path: Path) -> None:
    """Checked from a file beside its weights, with shapes and types inferred through the functions."""
    for branches in (False, True):
        model, weights = emit(hspec_pair(case), replace(BUILD, dtype=dtype), branches=branches)
        folder = tmp_path / str(branches)
        folder.mkdir()
        write_weights(folder / "weights.safetensors", weights)
        onnx.save(model, folder / "graph.onnx")
        onnx.checker.check_model(str(folder / "graph.onnx"), full_check=True)


def test_weights_are_external_and_all_used() -> None:
    pair = hspec_pair("hspec_qwen3")
    model, weights = emit(pair)
    places = plan_weights(weights)
    seen = set()
    for initializer in model.graph.initializer:
        if initializer.data_location != onnx.TensorProto.EXTERNAL:
            assert len(initializer.raw_data) <= 1024, f"{initializer.name} is too large to lie in the graph"
            continue
        name = initializer.name.split("[")[0]
        place = {entry.key: entry.value for entry in initializer.external_data}
        assert place["location"] == places[name].location
        assert int(place["offset"]) == places[name].offset
        assert int(place["length"]) <= places[name].nbytes
        seen.add(name)
    assert seen == {weight.name for weight in weights}


def test_padding_rows_of_the_head_are_left_out_without_a_copy() -> None:
    pair = hspec_pair("hspec_llama").without_drafter()
    smaller = replace(pair, target=replace(pair.target, vocab_size=250))
    model, weights = emit(smaller)
    place = plan_weights(weights)["target.model.embed_tokens.weight"]
    (head,) = [tensor for tensor in model.graph.initializer if tensor.name == f"{place.name}[:250]"]
    assert list(head.dims) == [250, pair.target.hidden_size]
    entries = {entry.key: int(entry.value) for entry in head.external_data if entry.key != "location"}
    assert entries == {"offset": place.offset, "length": place.nbytes // 256 * 250}


@pytest.mark.parametrize("backend", ["tensorrt", "tensorrt-rtx"])
def test_no_control_flow_for_tensorrt(backend: str) -> None:
    model, _ = emit(hspec_pair("hspec_qwen3"), replace(BUILD, backend=backend, dtype="float16"))
    assert not {node.op_type for node in all_nodes(model)} & {"If", "Loop", "Scan"}
    for_cpu, _ = emit(hspec_pair("hspec_qwen3"))
    assert {"If", "Loop"} <= {node.op_type for node in all_nodes(for_cpu)}


def test_custom_ops_carry_all_that_the_contract_lists() -> None:
    model, _ = emit(hspec_pair("hspec_qwen3"))
    nodes = [node for node in all_nodes(model) if node.domain == OP_DOMAIN]
    used = set(OPS) - {"AppendKv"}  # H-Spec has no cache of its own
    assert {node.op_type for node in nodes} == used
    for node in nodes:
        spec = OPS[node.op_type]
        assert len(node.input) == len(spec.inputs) and all(node.input)
        assert len(node.output) == len(spec.outputs) and all(node.output)
        assert {attribute.name for attribute in node.attribute} == set(spec.attributes)
    assert {function.name for function in model.functions} == used
    assert not [node.name for function in model.functions for node in function.node if node.name]


def test_float32_arithmetic_where_it_matters() -> None:
    """No half-precision norm statistics, softmax, logarithm or exponential in a bfloat16 engine."""
    model, _ = emit(hspec_pair("hspec_qwen3"), replace(BUILD, dtype="bfloat16", backend="tensorrt"))
    inferred = onnx.shape_inference.infer_shapes(model)
    types = {value.name: value.type.tensor_type.elem_type for value in inferred.graph.value_info}
    rotated = [node.output[0] for node in model.graph.node if node.op_type == "RotaryEmbedding"]
    assert rotated and all(types[name] == FLOAT32.onnx for name in rotated)
    for node in model.graph.node:
        if node.op_type in ("Exp", "Log", "Cos", "Sin", "Softmax"):
            assert types[node.output[0]] == FLOAT32.onnx
        if node.op_type == "RMSNormalization":
            assert {a.name: a.i for a in node.attribute}["stash_type"] == FLOAT32.onnx


@dataclass(frozen=True)
class UnknownConfig(DrafterConfig):
    pass


def test_an_unknown_drafter_is_refused() -> None:
    pair = hspec_pair("hspec_qwen3")
    known = {name: getattr(pair.drafter, name) for name in DrafterConfig.__dataclass_fields__}
    unknown = UnknownConfig(**known | {"kind": "oracle"})
    with pytest.raises(BuildError) as raised:
        build_step(pair.target, unknown, BUILD, plan_weights(emit(pair)[1]))
    assert raised.value.code == "B030"
    assert "oracle" in str(raised.value)


@pytest.mark.parametrize("num_drafts", [1, 3, 7])
def test_fewer_drafts_than_trained(num_drafts: int) -> None:
    model, _ = emit(hspec_pair("hspec_qwen3"), replace(BUILD, num_drafts=num_drafts))
    assert model.graph.output[3].type.tensor_type.shape.dim[1].dim_value == num_drafts


def test_more_drafts_than_trained_are_refused() -> None:
    with pytest.raises(BuildError) as raised:
        emit(hspec_pair("hspec_qwen3"), replace(BUILD, num_drafts=8))
    assert raised.value.code == "B031"


QWEN3_0_6B = TargetConfig(
    family="qwen3",
    vocab_size=151_936,
    embedding_rows=151_936,
    hidden_size=1024,
    intermediate_size=3072,
    num_layers=28,
    num_heads=16,
    num_kv_heads=8,
    head_dim=128,
    rms_norm_eps=1e-6,
    rope=RopeConfig(theta=1e6),
    max_position=40_960,
    tie_word_embeddings=True,
)


@dataclass(frozen=True)
class Unread:
    """A tensor whose values must not be needed."""

    name: str
    shape: tuple[int, ...]
    dtype: DType = dtypes.BFLOAT16

    def read(self) -> None:
        raise AssertionError(f"{self.name} was read")


def test_emission_reads_no_weight_and_takes_a_moment() -> None:
    tensors = {name: Unread(name, shape) for name, shape in target_weights(QWEN3_0_6B).items()}
    start = time.process_time()
    model, weights = emit(Pair(QWEN3_0_6B, tensors), BuildConfig(num_drafts=7))
    size = len(model.SerializeToString())
    seconds = time.process_time() - start
    assert len(weights) == len(tensors) + 1
    assert size < 1_000_000
    assert seconds < 2.0

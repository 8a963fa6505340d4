# SPDX-License-Identifier: Apache-2.0
"""What TensorRT is given: the graph copy, the profiles, the architectures, the kernels an engine needs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from hspec_trt.config.build import BuildConfig
from hspec_trt.contract import OP_DOMAIN, OPS
from hspec_trt.engine.backends import trt_backend
from hspec_trt.engine.prepare import external_weights, for_tensorrt, op_nodes
from hspec_trt.engine.profiles import profiles, step_ranges
from hspec_trt.errors import BuildError, HspecError
from tests.support.golden_pair import hspec_pair
from tests.support.graph_engine import Engine, Feed, Row, write_engine
from tests.unit.engine.conftest import LIMITS, Step


@pytest.fixture
def model(step: Step) -> onnx.ModelProto:
    return onnx.ModelProto.FromString(step.graph)


def custom(model: onnx.ModelProto) -> list[onnx.NodeProto]:
    return [node for node in model.graph.node if node.domain == OP_DOMAIN]


def test_plugin_copy_names_plugins_and_drops_bodies(model: onnx.ModelProto) -> None:
    copy = onnx.ModelProto.FromString(for_tensorrt(model, "kernels"))
    assert len(custom(copy)) == len(custom(model)) and not copy.functions
    for node in custom(copy):
        named = {attr.name: attr.s for attr in node.attribute if attr.type == onnx.AttributeProto.STRING}
        assert named == {"plugin_namespace": b"hspec_trt", "plugin_version": b"1"}
    assert len(model.functions) == len(OPS) - 1


def test_copy_without_plugins_has_bodies_in_place_and_nothing_twice(model: onnx.ModelProto) -> None:
    before = len(model.functions)
    copy = onnx.ModelProto.FromString(for_tensorrt(model, "none"))
    assert not copy.functions and not custom(copy) and len(model.functions) == before
    assert [value.name for value in copy.graph.input] == [value.name for value in model.graph.input]
    assert [value.name for value in copy.graph.output] == [value.name for value in model.graph.output]
    assert external_weights(copy) == external_weights(model)
    bodies = {function.name: len(function.node) for function in model.functions}
    called = sum(bodies.get(node.op_type, 1) for node in model.graph.node)
    assert len(copy.graph.node) < 0.8 * called
    computed = [node for node in copy.graph.node if node.op_type != "Constant"]
    said = [node.SerializeToString() for node in map(_without_outputs, computed)]
    assert len(set(said)) == len(said)


def _without_outputs(node: onnx.NodeProto) -> onnx.NodeProto:
    bare = onnx.NodeProto()
    bare.CopyFrom(node)
    del bare.output[:]
    bare.name = ""
    return bare


@pytest.mark.parametrize("case", ["hspec_qwen3", "dflash_qwen3", "peagle_qwen3"])
def test_copy_without_plugins_computes_the_same(case: str, tmp_path: Path) -> None:
    build = BuildConfig(backend="tensorrt-rtx", dtype="float32", plugins="none", max_seq_len=256, page_size=16)
    pair = hspec_pair(case)
    graph = write_engine(tmp_path, pair, build)
    inlined = graph.with_name("inlined.onnx")
    inlined.write_bytes(for_tensorrt(onnx.load(graph, load_external_data=False), "none"))
    found = []
    for path in (graph, inlined):
        engine = Engine(path, pair, build, num_pages=8)
        rows = [Row([5, 9, 2, 7, 11], [3, 1]), Row([8, 4, 6], [2, 5], temperature=0.8, top_p=0.9, top_k=20, seed=7)]
        outputs = [engine.step(rows, [Feed(row.prompt, num_verify=1, draft=True) for row in rows])]
        for row in rows:
            row.context, row.tokens = len(row.prompt), [13]
        outputs.append(engine.step(rows, [Feed([13, 17, 19], num_verify=3, draft=True), Feed([13], num_verify=1)]))
        found.append(outputs)
    for first, second in zip(*found, strict=True):
        assert first.keys() == second.keys()
        for name, values in first.items():
            np.testing.assert_allclose(second[name], values, rtol=1e-5, atol=1e-6, err_msg=name)


def test_external_weights_lie_in_the_file(model: onnx.ModelProto, step: Step) -> None:
    weights = external_weights(model)
    assert len({weight.name for weight in weights}) == len(weights) > 50
    assert max(weight.offset + weight.length for weight in weights) <= step.weights.stat().st_size


def test_op_nodes_know_all_that_kernels_depend_on(model: onnx.ModelProto) -> None:
    nodes = {node.op: node for node in op_nodes(model, "bfloat16", 8)}
    assert set(nodes) == set(OPS) - {"AppendKv"}
    sample = dict(zip(OPS["SampleTokens"].inputs, nodes["SampleTokens"].shapes, strict=True))
    assert sample["logits"][0] == -1 and sample["logits"][1] == sample["token_ids"][0] > 0
    paged = nodes["PagedAttention"]
    assert paged.shapes[3] == (-1, 2, paged.attributes["num_kv_heads"], 16, paged.attributes["head_dim"])
    assert -1 not in nodes["Mamba2BlockScan"].shapes[2]
    slots = dict(zip(OPS["PagedAttention"].inputs, paged.shapes, strict=True))["query_slots"]
    assert slots == (-1, 8) and nodes["SharedKvAttention"].shapes[0][:2] == (-1, 8)
    wide = {node.op: node for node in op_nodes(model, "bfloat16", 8, block_size=16)}
    assert wide["PagedAttention"] == paged and wide["SharedKvAttention"].shapes[0][1] == 16


def test_profiles_agree_with_themselves(model: onnx.ModelProto) -> None:
    inputs = [ir.serde.deserialize_value_info_proto(value, None) for value in model.graph.input]
    made = profiles(inputs, LIMITS)
    assert [profile.name for profile in made] == ["decode", "mixed"]
    for profile in made:
        assert set(profile.shapes) == {str(value.name) for value in inputs}
        for index in range(3):
            rows = profile.shapes["context_lens"][index][0]
            assert profile.shapes["cu_query_lens"][index][0] == rows + 1
            assert profile.shapes["query_slots"][index][0] == profile.shapes["page_table"][index][0] == rows
        for least, opt, most in profile.shapes.values():
            assert all(a <= b <= c for a, b, c in zip(least, opt, most, strict=True))


def test_profile_bounds_hold_every_step_of_the_limits() -> None:
    ranges = step_ranges(replace(LIMITS, max_seq_len=250))
    assert ranges["decode"]["N"].max == ranges["decode"]["K"].max == 4 * 8
    assert ranges["mixed"]["N"].max == ranges["mixed"]["T"].max == 64
    assert ranges["decode"]["M"].max == 16 and ranges["decode"]["D"].min == 0


def test_dimension_that_the_contract_does_not_name() -> None:
    value = ir.Value(name="x", shape=ir.Shape(["Q"]), type=ir.TensorType(ir.DataType.FLOAT))
    with pytest.raises(BuildError, match=r"B045.*x has a dimension Q"):
        profiles([value], LIMITS)


def test_architectures() -> None:
    rtx = trt_backend("tensorrt-rtx")
    assert rtx.settle_sm(()) == (80, 86, 89, 120) and rtx.settle_sm((120,)) == (120,)
    with pytest.raises(HspecError, match=r"B044.*--sm 90") as caught:
        rtx.settle_sm((90, 75, 89))
    assert [fault.code for fault in caught.value.faults] == ["B044", "B044"]
    with pytest.raises(BuildError, match=r"B044.*twice"):
        rtx.settle_sm((89, 89))
    with pytest.raises(BuildError, match=r"B044.*this machine's GPU"):
        trt_backend("tensorrt").settle_sm((90,))

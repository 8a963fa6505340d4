# SPDX-License-Identifier: Apache-2.0
"""A build is refused where the plugin library lacks a kernel, a single tile of an attention kernel too."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import onnx
import pytest

from build_scripts.engine_needs import need_from_text
from hspec_trt.contract import PAGED_ATTENTION, SHARED_KV_ATTENTION
from hspec_trt.engine.prepare import check_kernels, op_nodes
from hspec_trt.errors import BuildError
from hspec_trt.native import OpNode, open_library
from plugins.kernels.needs import Need, PagedNeed, SharedNeed, variants_for
from tests.support.plugin_build import library_with, plugin_library
from tests.support.recording_driver_build import SM, told_kernel
from tests.unit.engine.conftest import Step

VERIFY_WIDTH, BLOCK = 8, 16
ATTENTION = (PAGED_ATTENTION.name, SHARED_KV_ATTENTION.name)


@pytest.fixture(scope="module")
def nodes(step: Step) -> tuple[OpNode, ...]:
    """Of a step with eight query heads a K/V head, so that one token and a whole row need tiles of their own."""
    model = onnx.ModelProto.FromString(step.graph)
    for node in model.graph.node:
        for attribute in node.attribute:
            if node.op_type in ATTENTION and attribute.name == "num_heads":
                attribute.i *= 4
    return op_nodes(model, "bfloat16", VERIFY_WIDTH, BLOCK)


@pytest.fixture(scope="module")
def needs(nodes: tuple[OpNode, ...]) -> list[Need]:
    """As the refusal of a library without kernels names them."""
    with pytest.raises(BuildError, match="B046") as caught:
        check_kernels(open_library(plugin_library()), nodes, (SM,))
    return [need_from_text(text) for text in re.findall(r"--need (\S+)", str(caught.value))]


def _refusal(nodes: tuple[OpNode, ...], needs: list[Need], folder: Path) -> str:
    """What is said of a library with these kernels; nothing where it has all."""
    library = library_with([told_kernel(variant) for variant in variants_for(needs)], folder)
    try:
        check_kernels(open_library(library), nodes, (SM,))
    except BuildError as error:
        return str(error)
    return ""


def test_kernels_of_the_remedy_are_enough(nodes: tuple[OpNode, ...], needs: list[Need], tmp_path: Path) -> None:
    assert {need.verify_width for need in needs if isinstance(need, PagedNeed)} == {VERIFY_WIDTH}
    assert {need.block for need in needs if isinstance(need, SharedNeed)} == {BLOCK}
    assert _refusal(nodes, needs, tmp_path) == ""


def test_library_for_a_smaller_verify_width(nodes: tuple[OpNode, ...], needs: list[Need], tmp_path: Path) -> None:
    narrow = [replace(need, verify_width=2) if isinstance(need, PagedNeed) else need for need in needs]
    text = _refusal(nodes, narrow, tmp_path)
    assert "B046" in text and "verify_attention (type bfloat16" in text and "TILE 64) or wider" in text
    assert f"verify_width={VERIFY_WIDTH}" in text


def test_library_for_a_shorter_block(nodes: tuple[OpNode, ...], needs: list[Need], tmp_path: Path) -> None:
    short = [replace(need, block=4) if isinstance(need, SharedNeed) else need for need in needs]
    text = _refusal(nodes, short, tmp_path)
    assert "B046" in text and f"a block of {BLOCK} slots with 8 heads" in text and "compiled tile of 32" in text


def test_a_wider_library_is_enough(nodes: tuple[OpNode, ...], needs: list[Need], tmp_path: Path) -> None:
    wide = [replace(need, verify_width=16) if isinstance(need, PagedNeed) else need for need in needs]
    assert _refusal(nodes, wide, tmp_path) == ""

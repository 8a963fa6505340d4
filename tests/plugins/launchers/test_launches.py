# SPDX-License-Identifier: Apache-2.0
"""The C++ launchers launch what the Python side does: kernels, order, grids, tiles, arguments, workspace.

Both ways into a launcher are taken: `hspec_trt_launch` of the C interface, and `enqueue` of the TensorRT plugin.
"""

from __future__ import annotations

import struct
from typing import Any

import pytest

from hspec_trt.contract import OPS
from plugins.kernels.catalog import KERNELS
from plugins.kernels.geometry import ceil_div
from tests.plugins.launchers.shapes import all_cases
from tests.support.recording_driver_build import LARGE_SHARED

Case = dict[str, Any]
Launch = dict[str, Any]
WAYS = ("call", "enqueue")
OUTPUTS = ("output", "ids", "logprobs", "finite")
SCRATCH = ("partial_", "scan_", "pick_", "thresholds")


def _written(case: Case, way: str) -> list[tuple[Launch, Launch]]:
    """What was launched, with what should be."""
    assert case[way]["fault"] == "", case["case"]
    return list(zip(case[way]["launches"], case["wanted"], strict=True))


def _places(case: Case, way: str) -> dict[str, set[tuple[int, int]]]:
    """Scratch tensors by name: offset in the workspace, and bytes; those that nothing is written to are left out."""
    start, _ = case[way]["workspace"]
    splits = any(launch["kernel"] == "merge_splits" for launch in case["wanted"])
    places: dict[str, set[tuple[int, int]]] = {}
    for got, wanted in _written(case, way):
        for name, told in wanted["args"].items():
            if name.startswith(SCRATCH) and (splits or not name.startswith("partial_")):
                places.setdefault(name, set()).add((got["args"][name] - start, told["bytes"]))
    return places


def test_the_cases_reach_every_kernel(recorded: list[Case]) -> None:
    assert len(recorded) == 2 * len(all_cases())
    assert {launch["kernel"] for case in recorded for launch in case["wanted"]} == set(KERNELS)
    tiles = {launch["constants"] for case in recorded for launch in case["wanted"] if "verify" in launch["kernel"]}
    assert {"float16,64,4,32,16", "float16,64,4,32,32"} <= tiles
    splits = {launch["grid"][0] for case in recorded for launch in case["wanted"] if "verify" in launch["kernel"]}
    assert {1, 3, 10, 32} <= splits


@pytest.mark.parametrize("way", WAYS)
def test_kernels_order_constants_and_grids(recorded: list[Case], way: str) -> None:
    for case in recorded:
        for got, wanted in _written(case, way):
            found = (case["case"], got["kernel"], got["constants"], got["grid"])
            assert found == (case["case"], wanted["kernel"], wanted["constants"], wanted["grid"])


@pytest.mark.parametrize("way", WAYS)
def test_blocks_and_shared_memory_are_those_of_the_table(recorded: list[Case], way: str) -> None:
    for case in recorded:
        for launch in case[way]["launches"]:
            index = list(KERNELS).index(launch["kernel"])
            shared = LARGE_SHARED if launch["kernel"] == "prefill_attention" else 16 * index
            assert (launch["threads"], launch["shared"], launch["stream"]) == (32 * (1 + index), shared, 0)


@pytest.mark.parametrize("way", WAYS)
def test_arguments(recorded: list[Case], way: str) -> None:
    for case in recorded:
        for got, wanted in _written(case, way):
            assert got["args"]["global_scratch"] == got["args"]["profile_scratch"] == 0
            for name, told in wanted["args"].items():
                if not name.startswith(SCRATCH):
                    where = (case["case"], got["kernel"], name)
                    assert got["args"][name] == _expected(case[way], wanted, name, told), where


def _expected(way: Case, wanted: Launch, name: str, told: Any) -> int:
    if not isinstance(told, dict):
        return int.from_bytes(struct.pack("<f" if isinstance(told, float) else "<i", told), "little")
    unpacked = wanted["kernel"] == "merge_splits" and wanted["constants"].endswith(",0")
    unread = (name == "cu_query_lens" and unpacked) or (name == "output" and name not in way["outputs"])
    if unread:
        return 0
    return int(way["outputs"][name] if name in OUTPUTS else told["address"])


@pytest.mark.parametrize("way", WAYS)
def test_scratch_tensors_lie_apart_in_the_workspace(recorded: list[Case], way: str) -> None:
    seen = set()
    for case in recorded:
        places = _places(case, way)
        assert all(len(found) == 1 for found in places.values()), (case["case"], places)
        end = 0
        for name, ((start, nbytes),) in sorted(places.items(), key=lambda item: sorted(item[1])):
            assert start >= end and start % 256 == 0, (case["case"], name)
            end = start + nbytes
        assert end <= case[way]["workspace"][1], case["case"]
        seen.update(places)
    assert len(seen) == 10


def test_both_ways_ask_for_the_same_workspace(recorded: list[Case]) -> None:
    for case in recorded:
        assert case["call"]["workspace"][1] == case["enqueue"]["workspace"][1], case["case"]


def test_samples_ask_for_no_more_workspace_than_they_use(recorded: list[Case]) -> None:
    samples = [case for case in recorded if case["wanted"][0]["kernel"] == "sample_scan"]
    assert samples
    for case in samples:
        used = sum(ceil_div(nbytes, 256) * 256 for found in _places(case, "call").values() for _, nbytes in found)
        assert case["call"]["workspace"][1] == used


def test_enqueue_loads_nothing(recorded: list[Case]) -> None:
    for case in recorded:
        assert set(case["enqueue"]["other_calls_of_enqueue"]) == {"cuCtxGetDevice"}, case["case"]


def test_nothing_is_launched_for_nothing(told: list[Case]) -> None:
    empty = [entry for entry in told if entry["kind"] == "empty"]
    assert len(empty) == 5
    for case in empty:
        for way in WAYS:
            assert case[way]["launches"] == [] and case[way]["fault"] == "", case["case"]


def test_an_operand_off_16_bytes_is_refused_by_name(told: list[Case]) -> None:
    shifted = [entry for entry in told if entry["kind"] == "misaligned"]
    assert {entry["op"] for entry in shifted} == set(OPS)
    assert len(shifted) == sum(len(spec.operands) - len(spec.aliased) for spec in OPS.values()) + 3
    for entry in shifted:
        for way in WAYS:
            found = entry[way]["fault"]
            assert f"{entry['op']} {entry['operand']}" in found and "16 bytes" in found, (entry["op"], entry["operand"])
            assert entry[way]["launches"] == []

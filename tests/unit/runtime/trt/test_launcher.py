# SPDX-License-Identifier: Apache-2.0
"""How steps are launched: bound and run or as recorded graphs, with which kernels; the text never depends on it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from hspec_trt.runtime.ort_session import OrtSession
from hspec_trt.runtime.trt import launcher as launcher_module
from tests.support.gpu_double import Status
from tests.support.plain_loop import plain_decode
from tests.support.trt_double import FLAGS, Specialization

from .conftest import NUM_PAGES, Doubled

Reference = Callable[..., OrtSession]


def test_kernels_of_a_shape_stay_the_same(doubled: Doubled) -> None:
    """Those of decode shapes are compiled before they run, those of prompts never; what is compiled is shared."""
    made = doubled()
    plain_decode(made.session, [5, 6, 7], 40)
    kernels = {
        (context.profile, context.config.dynamic_shapes_kernel_specialization_strategy) for context in made.trt.contexts
    }
    assert kernels == {(0, Specialization.EAGER), (1, Specialization.NONE)}
    caches = {id(context.config.cache) for context in made.trt.contexts}
    assert len(caches) == 1 and made.trt.contexts[0].config.cache is not None


def test_plain_tensorrt_has_nothing_to_compile(doubled: Doubled, reference: Reference) -> None:
    made, wanted = doubled(compiles_at_run_time=False, flags=()), reference()
    wanted.allocate(NUM_PAGES)
    assert plain_decode(made.session, [5, 6, 7], 20).ids == plain_decode(wanted, [5, 6, 7], 20).ids
    assert made.session.launcher.counts.replayed > 5


@pytest.mark.parametrize(
    ("way", "fault"), [("asked", "TensorRT may allocate memory"), ("refused", "cudaErrorIllegalAddress"), ("off", "")]
)
def test_without_graphs(
    way: str, fault: str, doubled: Doubled, reference: Reference, caplog: pytest.LogCaptureFixture
) -> None:
    """Contexts that cannot be captured, a capture that fails, graphs switched off: slower, never wrong; told once."""
    made, wanted = doubled(use_graphs=way != "off", flags=() if way == "asked" else FLAGS), reference()
    if way == "refused":
        made.gpu.fail["cudaStreamEndCapture"] = Status.cudaErrorIllegalAddress
    wanted.allocate(NUM_PAGES)
    assert plain_decode(made.session, [5, 6, 7], 20).ids == plain_decode(wanted, [5, 6, 7], 20).ids
    launcher = made.session.launcher
    assert launcher.counts.replayed == 0 and (launcher.counts.not_capturable > 3) == (way == "asked")
    assert fault in launcher.capture_fault and bool(launcher.capture_fault) == bool(fault)
    assert [record.args for record in caplog.records] == ([(launcher.capture_fault,)] if fault else [])


def test_graphs_come_back_after_pages_were_allocated_anew(doubled: Doubled) -> None:
    """Another number of pages is another shape, which has to run before it is recorded."""
    session = doubled(num_pages=40).session
    for pages in (40, 48):
        session.allocate(pages)
        before = session.launcher.counts.replayed
        plain_decode(session, [5, 6, 7], 20)
        assert session.launcher.counts.replayed > before + 5 and session.launcher.capture_fault == ""


def test_a_launch_that_cannot_be_captured_costs_its_own_shape_only(doubled: Doubled, reference: Reference) -> None:
    made, wanted = doubled(), reference()
    made.trt.capture_fails = 1
    for session in (made.session, wanted):
        session.allocate(NUM_PAGES)
    assert plain_decode(made.session, [5, 6, 7], 90).ids == plain_decode(wanted, [5, 6, 7], 90).ids
    launcher = made.session.launcher
    assert "this launch cannot be captured" in launcher.capture_fault and made.trt.capture_fails == 0
    assert launcher.counts.replayed > 5
    alive = sum(not graph.destroyed for graph in made.gpu.graphs)
    assert alive == launcher.counts.recorded == len(made.gpu.graphs) // 2 - 1


def test_a_capture_that_gives_no_launch_leaves_no_graph(doubled: Doubled) -> None:
    made = doubled()
    made.gpu.fail["cudaGraphInstantiate"] = Status.cudaErrorMemoryAllocation
    plain_decode(made.session, [5, 6, 7], 20)
    assert made.gpu.graphs and all(graph.destroyed for graph in made.gpu.graphs)


def test_shapes_that_are_not_used_any_more_make_room(
    doubled: Doubled, reference: Reference, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launcher_module, "MAX_SHAPES", 1)
    session, wanted = doubled().session, reference()
    wanted.allocate(NUM_PAGES)
    assert plain_decode(session, [5, 6, 7], 90).ids == plain_decode(wanted, [5, 6, 7], 90).ids
    assert len(session.launcher._decoders) == 1

# SPDX-License-Identifier: Apache-2.0
"""Every binding counts: with any one of them wrong, the check that the other tests rely on fails."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from hspec_trt.config.sampling import SamplingParams
from hspec_trt.runtime.core import EngineCore
from hspec_trt.runtime.ort_session import OrtSession
from hspec_trt.runtime.trt import session as session_module
from hspec_trt.runtime.trt.cuda import Cuda
from hspec_trt.runtime.trt.launcher import Launcher
from hspec_trt.runtime.trt.layout import Layout
from hspec_trt.runtime.trt.pools import PagePools
from hspec_trt.runtime.trt.session import TrtSession
from tests.support.plain_loop import plain_decode
from tests.unit.runtime.harness import drain, submit

from .conftest import NUM_PAGES, Doubled

Reference = Callable[..., OrtSession]
PROMPT, COUNT = list(range(7, 31)), 60
PARAMS = SamplingParams(max_tokens=COUNT, temperature=0.8, seed=3, drafts="on")


def texts(doubled: Doubled, aliased: bool) -> list[list[int]]:
    """Two answers at once, drafts on, and again on new pages; [] where one failed."""
    session = doubled(aliased=aliased, num_pages=30).session
    said = []
    for _ in range(2):
        core = EngineCore(session)
        answers = [submit(core, prompt, PARAMS) for prompt in (PROMPT, PROMPT[3:])]
        drain(core, limit=2 * COUNT + 10)
        said += [answer.ids if answer.last.error is None else [] for answer in answers]
        session.allocate(28)
    return said


@pytest.fixture
def wanted(reference: Reference) -> list[list[int]]:
    session = reference()
    made = []
    for prompt in (PROMPT, PROMPT[3:]):
        session.allocate(NUM_PAGES)
        made.append(plain_decode(session, prompt, COUNT, temperature=0.8, seed=3).ids)
    return made * 2


def shifted_output(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """An output is written one place off."""
    outputs = PagePools.outputs
    if not name.startswith("kv_pages"):
        of = Layout.of

        def moved(arrays: object) -> Layout:
            layout = of(arrays)  # type: ignore[arg-type]
            places = dict(layout.places)
            if name in places and "emitted_ids" in places:
                places[name], places["emitted_ids"] = places["emitted_ids"], places[name]
            return Layout(places, layout.nbytes)

        monkeypatch.setattr(session_module.Layout, "of", staticmethod(moved))
        return
    monkeypatch.setattr(
        PagePools, "outputs", lambda self: outputs(self) | {name: outputs(self)[name.replace("0", "1")]}
    )


def swapped_inputs(monkeypatch: pytest.MonkeyPatch, first: str, second: str) -> None:
    """Two pools of the same shape change places."""
    inputs = PagePools.inputs

    def crossed(self: PagePools) -> dict:
        given = inputs(self)
        given[first], given[second] = given[second], given[first]
        return given

    monkeypatch.setattr(PagePools, "inputs", crossed)


SABOTAGE: dict[str, Callable[[pytest.MonkeyPatch], object]] = {
    "drafts and bonus are not fed back": lambda m: m.setitem(session_module._FED_BACK, "next_input_ids", "query_slots"),
    "context lengths are not fed back": lambda m: m.delitem(session_module._FED_BACK, "next_context_lens"),
    "an output lies where another does": lambda m: shifted_output(m, "next_input_ids"),
    "an output of pages is another layer's": lambda m: shifted_output(m, "kv_pages_out.0"),
    "two layers read each other's pages": lambda m: swapped_inputs(m, "kv_pages.1", "kv_pages.2"),
    "nobody waits for the step": lambda m: m.setattr(Cuda, "wait", lambda self, event: None),
    "inputs are not copied": lambda m: m.setattr(Cuda, "upload", lambda self, *arguments: None),
    "outputs are not copied": lambda m: m.setattr(Cuda, "download", lambda self, *arguments: None),
    "pages are not zeroed": lambda m: m.setattr(Cuda, "zero", lambda self, *arguments: None),
    "recorded launches outlive their memory": lambda m: m.setattr(Launcher, "forget_addresses", lambda self: None),
    "a recorded launch stands for another shape": lambda m: m.setattr(Launcher, "_decoder", one_decoder),
    "input bytes are cut short": lambda m: m.setattr(
        Cuda, "upload", lambda self, to, source, nbytes: self._copy(to, source, nbytes - 256, "cudaMemcpyHostToDevice")
    ),
}


def one_decoder(self: Launcher, shape: object) -> object:
    made = self._decoders
    for decoder in made.values():
        return decoder
    from hspec_trt.runtime.trt.launcher import _Decoder

    made[(shape, 0)] = _Decoder(self._engine.context(0))  # type: ignore[index]
    return made[(shape, 0)]  # type: ignore[index]


@pytest.mark.parametrize("aliased", [True, False], ids=["in_place", "swapped"])
def test_nothing_wrong(aliased: bool, doubled: Doubled, wanted: list[list[int]]) -> None:
    assert texts(doubled, aliased) == wanted


@pytest.mark.parametrize("what", SABOTAGE)
def test_one_thing_wrong(what: str, doubled: Doubled, wanted: list[list[int]], monkeypatch: pytest.MonkeyPatch) -> None:
    SABOTAGE[what](monkeypatch)
    try:
        said = texts(doubled, aliased=True)
    except (AssertionError, ValueError, RuntimeError, KeyError, IndexError):  # Misuse, or a loop that does not end
        return
    assert said != wanted


def test_buffers_that_do_not_change_places(
    doubled: Doubled, wanted: list[list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(PagePools, "swap", lambda self: None)
    assert texts(doubled, aliased=False) != wanted


def test_outputs_read_after_another_step_took_their_memory(
    doubled: Doubled, wanted: list[list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With one staging buffer instead of two, a step that runs ahead takes the memory of the one to be read."""
    monkeypatch.setattr(session_module, "IN_FLIGHT", 1)
    with pytest.raises(ValueError, match="was not read"):
        texts(doubled, aliased=True)
    assert TrtSession.follow

# SPDX-License-Identifier: Apache-2.0
"""The exported model.py files, run in this process: sessions that break, models that end, folders that are wrong."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hspec_trt.errors import RequestError
from hspec_trt.runtime.session import StepInputs, StepOutputs
from tests.support.fake_triton import Logger, Server, TritonError, TritonModelException, engine_of, serving
from tests.support.waiting import wait_until

GREEDY = {"temperature": 0.0, "max_tokens": 20}


class Faulty:
    """A session that raises, or finds non-finite logits, when it is told to."""

    def __init__(self, session: Any) -> None:
        self._session = session
        self.error: BaseException | None = None
        self.bad_rows = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._session, name)

    def step(self, inputs: StepInputs) -> StepOutputs:
        if self.error is not None:
            raise self.error
        outputs = self._session.step(inputs)
        return replace(outputs, finite=np.zeros_like(outputs.finite)) if self.bad_rows else outputs


@pytest.fixture
def faulty(repository: Path) -> Iterator[tuple[Server, Faulty]]:
    with serving(repository / "hspec") as server:
        watched = engine_of(server)._session
        watched._session = Faulty(watched._session)
        yield server, watched._session


def test_non_finite_logits_end_the_request_and_not_the_model(faulty: tuple[Server, Faulty]) -> None:
    server, session = faulty
    session.bad_rows = True
    error = server.ask(text_input="x").sender.failure()
    assert (error.code, "R301" in error.message) == (TritonError.INTERNAL, True)
    session.bad_rows = False
    server.ask(text_input="x", **GREEDY).sender.wait()
    assert server.model.is_ready()


def test_a_failed_step_ends_its_requests_and_not_the_model(faulty: tuple[Server, Faulty]) -> None:
    server, session = faulty
    session.error = RequestError("R302", "the step failed")
    assert "R302" in server.ask(text_input="x").sender.failure().message
    session.error = None
    server.ask(text_input="x", **GREEDY).sender.wait()
    assert server.model.is_ready()


@pytest.mark.parametrize("error", [RequestError("R302", "CUDA error 700"), ZeroDivisionError("ours")])
def test_a_dead_session_takes_the_model_out_of_service(
    error: Exception, faulty: tuple[Server, Faulty], monkeypatch: pytest.MonkeyPatch
) -> None:
    server, session = faulty
    monkeypatch.setattr(threading, "excepthook", lambda args: None)
    session.error = error
    requests = [server.ask(text_input="x", stream=True) for _ in range(12)]
    wait_until(lambda: server.unloaded == ["hspec"], 20)
    for request in requests:
        assert request.sender.failure().code in (TritonError.INTERNAL, TritonError.UNAVAILABLE)
        assert request.sender.finals == 1
    assert not server.model.is_ready()
    refused = server.ask(text_input="x").sender.failure()
    assert refused.message.startswith("error[R30")
    time.sleep(0.05)
    assert server.unloaded == ["hspec"], "asked once"


def test_a_server_that_cannot_unload_is_told_how_to(faulty: tuple[Server, Faulty]) -> None:
    server, session = faulty
    server.explicit = False
    session.error = RequestError("R302", "CUDA error 700")
    server.ask(text_input="x").sender.failure()
    wait_until(lambda: any("--model-control-mode=explicit" in line for line in Logger.lines), 20)
    assert "R30" in server.ask(text_input="x").sender.failure().message


def test_unloading_ends_what_runs(repository: Path) -> None:
    with serving(repository / "hspec") as server:
        running = server.ask(text_input="x", max_tokens=3900, stream=True, ignore_eos=True)
    assert running.sender.failure(1).code == TritonError.UNAVAILABLE
    assert running.sender.finals == 1


def test_a_server_that_stops_ends_what_runs(repository: Path) -> None:
    with serving(repository / "hspec") as server:
        running = [server.ask(text_input="x", max_tokens=3900, stream=True, ignore_eos=True) for _ in range(12)]
        server.stopping = True
        assert [request.sender.failure(2).code for request in running] == [TritonError.UNAVAILABLE] * 12


def test_faults_of_the_configuration_are_told_when_the_model_is_loaded(repository: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(repository / "hspec", tmp_path / "hspec")
    text = (folder / "config.pbtxt").read_text()
    (folder / "config.pbtxt").write_text(text.replace('key: "max_queue_size"', 'key: "max_queue_sise"'))
    with pytest.raises(TritonModelException, match="L050"):
        Server(folder)
    (folder / "config.pbtxt").write_text(text.replace("/engine", "/nowhere"))
    with pytest.raises(TritonModelException, match=r"L052.*--copy-engine"):
        Server(folder)

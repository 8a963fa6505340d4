# SPDX-License-Identifier: Apache-2.0
"""Requests that a real Triton Inference Server refuses, and a model that fails in it."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from tritonclient.utils import InferenceServerException

from hspec_trt.runtime.llm import LLM
from tests.support.triton_checks import GREEDY, LONG, Variant, active, wait_until
from tests.support.triton_server import SCRIPT, TritonServer, arrays_of, joined

pytestmark = pytest.mark.slow


ERRORS = {
    "R201": {"temperature": -1.0},
    "R101": {"max_tokens": 5000},
    "R102": {"text_input": ""},
    "R210": {"beam_width": 4},
    "R421": {"max_tokens": 4, "sampling_param_max_tokens": 5},
}


@pytest.mark.parametrize("code", ERRORS)
def test_a_bad_request_is_told_why_and_others_go_on(code: str, server: TritonServer) -> None:
    with server.stream() as other, server.stream() as stream:
        other.send("hspec", arrays_of(text_input="x", stream=True, max_tokens=60, ignore_eos=True))
        bad = {"text_input": "x", **ERRORS[code]}
        status, text = server.call("POST", "/v2/models/hspec/generate", bad)
        assert (status, f"error[{code}]" in text) == (400, True), text
        stream.send("hspec", arrays_of(**bad))
        with pytest.raises(InferenceServerException, match=code) as caught:
            stream.next()
        assert caught.value.status() in ("StatusCode.INVALID_ARGUMENT", None)
        stream.send("hspec", arrays_of(text_input="x", **GREEDY))
        assert joined(stream.rest()), "the same stream serves the next request"
        assert len(other.rest()) > 1


def test_the_status_of_a_bad_request_over_unary_grpc(variant: Variant, server: TritonServer) -> None:
    model = variant("hspec_unary", decoupled=False)
    with pytest.raises(InferenceServerException, match="R201") as caught:
        server.infer(model, arrays_of(text_input="x", temperature=-1.0))
    assert caught.value.status() == "StatusCode.INVALID_ARGUMENT"


def test_what_triton_itself_refuses(server: TritonServer) -> None:
    assert server.call("POST", "/v2/models/ensemble/generate", {"max_tokens": 4})[0] == 400
    assert server.call("POST", "/v2/models/none/generate", {"text_input": "x"})[0] in (400, 404)
    assert server.call("POST", "/v2/models/hspec/generate", '{"text_input": ')[0] >= 400
    with server.stream() as stream:
        stream.send("hspec", {"text_input": np.array([b"x"], np.object_)})
        with pytest.raises(InferenceServerException, match="shape"):
            stream.next()
    assert server.generate("hspec", text_input="x", **GREEDY)["text_output"]


def test_a_full_queue_is_unavailable(variant: Variant, server: TritonServer) -> None:
    model = variant("hspec_full", max_queue_size=0)
    with server.stream() as stream:
        for _ in range(8):
            stream.send(model, arrays_of(text_input="x", stream=True, **LONG))
        wait_until(lambda: active(server, model) == 8)
        status, text = server.call("POST", f"/v2/models/{model}/generate", {"text_input": "x"})
        assert (status, "R420" in text) == (400, True), text
        stream.cancel()
    wait_until(lambda: active(server, model) == 0)
    server.unload(model)


FAULTY_CODE = '''
import triton_python_backend_utils as pb_utils
from hspec_trt.errors import RequestError
from hspec_trt.serving.triton.hspec import HspecModel


class Dying:
    """A session that fails from the step on that runs token 5."""

    def __init__(self, session):
        self._session, self._dead = session, False

    def __getattr__(self, name):
        return getattr(self._session, name)

    def step(self, inputs):
        self._dead = self._dead or bool((inputs.input_ids[:2] == 5).all())
        if self._dead:
            raise RequestError("R302", "the step failed: CUDA error 700")
        return self._session.step(inputs)


class TritonPythonModel:
    def initialize(self, args):
        self.model = HspecModel(pb_utils, args)
        watched = self.model._engine._session
        watched._session = Dying(watched._session)

    def execute(self, requests):
        return self.model.execute(requests)

    def finalize(self):
        self.model.finalize()
'''


def test_a_dead_session_makes_the_model_not_ready(variant: Variant, server: TritonServer, reference: LLM) -> None:
    deadly = reference.tokenizer.decode([5, 5]) if reference.tokenizer else ""
    model = variant("hspec_dying", FAULTY_CODE)
    assert server.generate(model, text_input="the sea", **GREEDY)["text_output"]
    status, text = server.call("POST", f"/v2/models/{model}/generate", {"text_input": deadly, "drafts": "off"})
    assert (status, "R302" in text) == (400, True), text
    wait_until(lambda: not server.ready(model))
    assert server.ready("hspec")
    server.load(model)
    assert server.ready(model)
    assert server.generate(model, text_input="the sea", **GREEDY)["text_output"]
    server.unload(model)


def test_a_server_that_cannot_load_the_model_says_why(repository: Path, tmp_path: Path) -> None:
    models = tmp_path / "models"
    shutil.copytree(repository / "hspec", models / "hspec")
    config = models / "hspec" / "config.pbtxt"
    config.write_text(config.read_text().replace("/engine", "/nowhere"))
    command = [sys.executable, str(SCRIPT), "start", str(models), "--free-ports", "--log", str(tmp_path / "log")]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=600)
    assert done.returncode == 1
    assert "error[L052]" in done.stderr
    assert "Traceback" not in done.stderr

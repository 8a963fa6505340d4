# SPDX-License-Identifier: Apache-2.0
"""SmolLM2-135M-Instruct with its trained drafter in a real Triton Inference Server, on the CPU."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tritonclient.utils import InferenceServerException

from hspec_trt.config.build import BuildConfig
from hspec_trt.pipeline import build
from hspec_trt.runtime.llm import LLM
from hspec_trt.runtime.options import RuntimeOptions
from hspec_trt.serving.triton.repository import ExportOptions, export_repository
from tests.support.smollm2 import smollm2_gguf
from tests.support.triton_checks import active, cancelled, expected, load_variant, wait_until
from tests.support.triton_server import TritonServer, arrays_of, joined, stop, triton_server

pytestmark = pytest.mark.slow

DRAFTER = Path(__file__).parents[2] / "examples" / "smollm2_hspec"
GREEDY = {"temperature": 0.0, "max_tokens": 16}
SAMPLED = {"temperature": 0.7, "top_p": 0.9, "seed": 42, "max_tokens": 16}
LIGHTHOUSE = "Write a short story about a lighthouse keeper."
LONG = {"max_tokens": 400, "ignore_eos": True, "stream": True}
EMOJI = "Repeat after me: 🌊🗼 naïve café 灯台"


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("smollm2") / "engine"
    build(smollm2_gguf(), DRAFTER, folder, BuildConfig(max_batch_size=8, max_seq_len=512, max_num_tokens=128))
    return folder


@pytest.fixture(scope="module")
def reference(engine: Path) -> Iterator[LLM]:
    with LLM(engine, RuntimeOptions(num_threads=1, kv_cache_memory=1 << 28)) as llm:
        yield llm


@pytest.fixture(scope="module")
def server(engine: Path, reference: LLM, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TritonServer]:
    folder = tmp_path_factory.mktemp("served")
    options = ExportOptions(models="all", num_threads=1, kv_cache_memory=1 << 29)
    export_repository(engine, folder / "models", options)
    with triton_server(folder / "models", folder / "server.log") as running:
        yield running


def asked(reference: LLM, text: str) -> str:
    """The prompt of a conversation, as a client writes it."""
    assert reference.chat_template is not None
    return reference.chat_template.render([{"role": "user", "content": text}])


@pytest.mark.parametrize("model", ["hspec", "ensemble"])
@pytest.mark.parametrize("options", [GREEDY, SAMPLED], ids=["greedy", "sampled"])
@pytest.mark.parametrize("text", [LIGHTHOUSE, EMOJI], ids=["plain", "emoji"])
def test_chunks_together_are_what_llm_generates(
    text: str, options: dict[str, object], model: str, server: TritonServer, reference: LLM
) -> None:
    prompt = asked(reference, text)
    want = expected(reference, prompt, **options)
    with server.stream() as stream:
        stream.send(model, arrays_of(text_input=prompt, stream=True, **options))
        chunks = stream.rest()
    assert joined(chunks) == want.text
    assert len(chunks) > 1
    events = server.generate_stream(model, text_input=prompt, stream=True, **options)
    assert "".join(event["text_output"] for event in events) == want.text
    whole = server.generate(model, text_input=prompt, exclude_input_in_output=True, **options)
    assert whole["text_output"] == want.text


def test_names_of_the_llmapi_model_and_the_figures_of_drafting(server: TritonServer, reference: LLM) -> None:
    prompt = asked(reference, LIGHTHOUSE)
    want = expected(reference, prompt, drafts="on", **GREEDY)
    got = server.generate(
        "hspec",
        text_input=prompt,
        sampling_param_temperature=0.0,
        sampling_param_max_tokens=16,
        sampling_param_return_perf_metrics=True,
        drafts="on",
    )
    assert got["text_output"] == want.text
    assert got["total_draft_tokens"] == want.drafts.drafted > 0
    assert got["total_accepted_draft_tokens"] == want.drafts.num_accepted
    assert got["acceptance_rate"] == pytest.approx(want.drafts.num_accepted / want.drafts.drafted)
    assert got["accepted_length"] == pytest.approx(want.drafts.accepted_length)
    assert got["arrival_time_ns"] <= got["first_scheduled_time_ns"] < got["first_token_time_ns"]


def test_sixteen_clients_join_and_leave(server: TritonServer, reference: LLM) -> None:
    topics = ("rain", "bread", "a violin", "the moon", "trains", "ice", "a fox", "salt")
    prompts = [asked(reference, f"Tell me about {topics[n % 8]}.") for n in range(16)]
    options = [{"max_tokens": 4 + n % 8, "temperature": [0.0, 0.8][n % 2], "seed": n} for n in range(16)]
    wants = [expected(reference, p, **o).text for p, o in zip(prompts, options, strict=True)]

    def client(number: int) -> str:
        time.sleep(0.1 * (number % 5))
        with server.stream() as stream:
            stream.send("hspec", arrays_of(text_input=prompts[number], stream=True, **options[number]))
            return joined(stream.rest())

    with ThreadPoolExecutor(16) as pool:
        assert list(pool.map(client, range(16))) == wants


def test_tensors_of_the_llmapi_model(server: TritonServer, engine: Path, reference: LLM, tmp_path: Path) -> None:
    """Its names, without batch dimension."""
    load_variant(server, engine, tmp_path / "r", "hspec_llmapi", interface="llmapi", kv_cache_memory=1 << 28)
    prompt = asked(reference, EMOJI)
    options = {f"sampling_param_{name}": value for name, value in SAMPLED.items()}
    want = expected(reference, prompt, **SAMPLED).text
    with server.stream() as stream:
        stream.send("hspec_llmapi", arrays_of(batched=False, text_input=prompt, streaming=True, **options))
        chunks = stream.rest()
    assert len(chunks) > 1
    assert joined(chunks) == want
    assert server.generate("hspec_llmapi", text_input=prompt, **options)["text_output"] == want
    server.unload("hspec_llmapi")


@pytest.mark.parametrize("how", ["closed", "deadline"])
def test_a_client_that_gives_up_frees_its_row(how: str, server: TritonServer, reference: LLM) -> None:
    prompt, before = asked(reference, LIGHTHOUSE), cancelled(server)
    with server.stream(timeout=3.0 if how == "deadline" else None) as stream:
        stream.send("hspec", arrays_of(text_input=prompt, **LONG))
        stream.next()
        if how == "closed":
            stream.cancel()
        else:
            with pytest.raises(InferenceServerException, match="Deadline"):
                while True:
                    stream.next()
        wait_until(lambda: cancelled(server) == before + 1 and active(server) == 0)


def test_a_bad_request_is_told_why_and_another_goes_on(server: TritonServer, reference: LLM) -> None:
    prompt = asked(reference, LIGHTHOUSE)
    with server.stream() as other:
        other.send("hspec", arrays_of(text_input=prompt, stream=True, **GREEDY))
        for code, wrong in (
            ("R101", {"max_tokens": 600}),
            ("R201", {"temperature": -1.0}),
            ("R210", {"beam_width": 4}),
        ):
            status, text = server.call("POST", "/v2/models/hspec/generate", {"text_input": prompt, **wrong})
            assert (status, f"error[{code}]" in text) == (400, True), text
        assert joined(other.rest()) == expected(reference, prompt, **GREEDY).text


def test_metrics(server: TritonServer, reference: LLM) -> None:
    """Of 10 requests 8 run and 2 wait; pages are in use and are given back."""
    labels = {"model": "hspec", "instance": "0"}

    def requests(kind: str) -> float:
        return server.metric("nv_trt_llm_request_metrics", request_type=kind, **labels)

    def pages(kind: str) -> float:
        return server.metric("nv_trt_llm_kv_cache_block_metrics", kv_cache_block_type=kind, **labels)

    with server.stream() as stream:
        for _ in range(10):
            stream.send("hspec", arrays_of(text_input=asked(reference, LIGHTHOUSE), **LONG))
        wait_until(lambda: [requests(kind) for kind in ("active", "scheduled", "waiting")] == [10, 8, 2])
        assert 0 < pages("used") <= pages("max")
    wait_until(lambda: requests("active") == requests("waiting") == pages("used") == 0)
    assert pages("free") == pages("max")
    assert 1 <= server.metric("hspec_mean_accepted_length", **labels) <= 8


def test_unloading_drains_and_loading_again_serves(server: TritonServer, reference: LLM) -> None:
    prompt = asked(reference, LIGHTHOUSE)
    want = expected(reference, prompt, temperature=0.0, max_tokens=60).text
    with server.stream() as stream:
        stream.send("hspec", arrays_of(text_input=prompt, stream=True, temperature=0.0, max_tokens=60))
        first, _ = stream.next()
        server.unload("hspec")
        assert joined([first, *stream.rest()]) == want
    wait_until(lambda: not server.ready("hspec"))
    server.load("hspec")
    assert (
        server.generate("hspec", text_input=prompt, **GREEDY)["text_output"]
        == expected(reference, prompt, **GREEDY).text
    )


def test_shutdown_with_requests_in_flight(server: TritonServer, reference: LLM) -> None:
    """Within 10 s. The last test of this file: its server is gone."""
    with server.stream() as stream:
        for _ in range(10):
            stream.send("hspec", arrays_of(text_input=asked(reference, LIGHTHOUSE), **LONG))
        stream.next()
        assert stop(server) < 10

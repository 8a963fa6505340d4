# SPDX-License-Identifier: Apache-2.0
"""SmolLM2-135M-Instruct with its trained drafter in a real Triton Inference Server, on the CPU."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from hspec_trt.config.build import BuildConfig
from hspec_trt.config.sampling import SamplingParams
from hspec_trt.pipeline import build
from hspec_trt.runtime.llm import LLM
from hspec_trt.runtime.options import RuntimeOptions
from hspec_trt.runtime.results import CompletionOutput
from hspec_trt.serving.triton.repository import ExportOptions, export_repository
from tests.support.smollm2 import smollm2_gguf
from tests.support.triton_server import TritonServer, arrays_of, joined, triton_server

pytestmark = pytest.mark.slow

DRAFTER = Path(__file__).parents[2] / "examples" / "smollm2_hspec"
GREEDY = {"temperature": 0.0, "max_tokens": 16}
SAMPLED = {"temperature": 0.7, "top_p": 0.9, "seed": 42, "max_tokens": 16}
LIGHTHOUSE = "Write a short story about a lighthouse keeper."
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


def expected(reference: LLM, prompt: str, **options: object) -> CompletionOutput:
    return reference.generate(prompt, SamplingParams(**options)).outputs[0]  # type: ignore[arg-type]


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


def test_closing_the_stream_frees_the_row(server: TritonServer, reference: LLM) -> None:
    prompt = asked(reference, LIGHTHOUSE)
    with server.stream() as stream:
        stream.send("hspec", arrays_of(text_input=prompt, stream=True, max_tokens=400, ignore_eos=True))
        stream.next()
        stream.cancel()
        began = time.monotonic()
        labels = {"model": "hspec", "request_type": "active", "instance": "0"}
        while server.metric("nv_trt_llm_request_metrics", **labels):
            assert time.monotonic() < began + 20
            time.sleep(0.05)

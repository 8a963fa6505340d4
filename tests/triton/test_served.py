# SPDX-License-Identifier: Apache-2.0
"""The exported model.py files, run in this process against the server's side of the interface."""

from __future__ import annotations

import json
import random
import re
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hspec_trt.config.sampling import SamplingParams
from hspec_trt.errors import RequestError
from hspec_trt.runtime.llm import LLM
from hspec_trt.runtime.tokenizer import Tokenizer
from hspec_trt.serving.triton.repository import ExportOptions, export_repository
from hspec_trt.serving.triton.steps import preprocess
from tests.support.fake_triton import Sender, Server, TritonError, engine_of, metric, serving
from tests.support.tokenizers_toy import ours
from tests.support.waiting import wait_until

GREEDY = {"temperature": 0.0, "max_tokens": 20}


@pytest.fixture(scope="module")
def server(repository: Path) -> Iterator[Server]:
    with serving(repository / "hspec") as loaded:
        yield loaded


@pytest.fixture(scope="module")
def tokens(repository: Path) -> Iterator[Server]:
    with serving(repository / "tensorrt_llm") as loaded:
        yield loaded


def texts(responses: list[dict[str, np.ndarray]]) -> list[str]:
    return [item.decode() for response in responses for item in response["text_output"].tolist()]


def expected(reference: LLM, prompt: str, **options: object) -> Any:
    return reference.generate(prompt, SamplingParams(**options)).outputs[0]  # type: ignore[arg-type]


def test_one_response_without_streaming(server: Server, reference: LLM) -> None:
    want = expected(reference, "the sea", **GREEDY)
    (response,) = server.ask(text_input="the sea", **GREEDY).sender.wait()
    assert texts([response]) == [want.text]
    assert response["finish_reason"].tolist() == [b"length"]


@pytest.mark.parametrize("options", [GREEDY, {"temperature": 0.8, "seed": 3, "max_tokens": 60, "top_k": 20}])
def test_chunks_together_are_the_text(options: dict[str, object], server: Server, reference: LLM) -> None:
    responses = server.ask(text_input="lighthouse", stream=True, **options).sender.wait()
    assert "".join(texts(responses)) == expected(reference, "lighthouse", **options).text
    assert len(responses) > 2
    assert all(text for text in texts(responses)[:-1]), "no empty chunks"
    assert ["finish_reason" in one for one in responses] == [False] * (len(responses) - 1) + [True]


def test_figures_of_an_answer(server: Server, reference: LLM) -> None:
    want = expected(reference, "abc", drafts="on", **GREEDY)
    flags = ("return_log_probs", "return_perf_metrics", "return_num_input_tokens", "return_num_output_tokens")
    request = server.ask(text_input="abc", return_token_ids=True, drafts="on", **dict.fromkeys(flags, True), **GREEDY)
    (got,) = request.sender.wait()
    assert got["output_ids"].tolist() == [[want.token_ids]]
    np.testing.assert_array_equal(got["output_log_probs"], np.array([[want.logprobs]], np.float32))
    assert got["cum_log_probs"].item() == pytest.approx(want.cumulative_logprob, rel=1e-5)
    assert got["num_input_tokens"].item() == 3
    assert got["num_output_tokens"].item() == len(want.token_ids)
    assert got["total_draft_tokens"].item() == want.drafts.drafted
    assert got["total_accepted_draft_tokens"].item() == want.drafts.num_accepted
    assert got["accepted_length"].item() == pytest.approx(want.drafts.accepted_length)
    times = [got[f"{name}_time_ns"].item() for name in ("arrival", "first_scheduled", "first_token", "last_token")]
    assert 0 < times[0] <= times[1] < times[2] < times[3]
    assert got["kv_cache_alloc_total_blocks"].item() == 2


def test_prompts_and_answers_of_one_request(server: Server, reference: LLM) -> None:
    options = {"temperature": 1.0, "seed": 5, "max_tokens": 9}
    arrays = {
        "text_input": np.array([[b"one"], [b"two"]], np.object_),
        "temperature": np.ones((2, 1), np.float32),
        "seed": np.full((2, 1), 5, np.uint64),
        "max_tokens": np.full((2, 1), 9, np.int32),
        "num_return_sequences": np.full((2, 1), 2, np.int32),
    }
    wants = [reference.generate(p, SamplingParams(n=2, **options)).outputs for p in ("one", "two")]  # type: ignore[arg-type]
    wanted = [answer.text for answers in wants for answer in answers]
    assert len(set(wanted)) == 4
    (whole,) = server.ask(**arrays).sender.wait()
    assert texts([whole]) == wanted
    assert whole["batch_index"].tolist() == [[0], [0], [1], [1]]
    assert whole["sequence_index"].tolist() == [[0], [1], [0], [1]]
    streamed = server.ask(**arrays, stream=np.ones((2, 1), bool)).sender.wait()
    joined = {(b, s): "" for b in (0, 1) for s in (0, 1)}
    for response in streamed:
        joined[response["batch_index"].item(), response["sequence_index"].item()] += texts([response])[0]
    assert list(joined.values()) == wanted


def test_stop_words_and_end_ids(server: Server, reference: LLM) -> None:
    text = expected(reference, "the sea", **GREEDY).text
    stop = text[4:6]
    (got,) = server.ask(text_input="the sea", stop_words=[stop], **GREEDY).sender.wait()
    assert texts([got]) == [text[: text.index(stop)]]
    assert (got["finish_reason"].tolist(), got["stop_reason"].tolist()) == ([b"stop"], [stop.encode()])
    ids = expected(reference, "the sea", **GREEDY).token_ids
    (got,) = server.ask(text_input="the sea", end_id=ids[5], **GREEDY).sender.wait()
    assert got["finish_reason"].tolist() == [b"stop"]
    assert got["stop_reason"].tolist() == [str(ids[5]).encode()]


def test_prompt_and_answer(server: Server, reference: LLM) -> None:
    want = expected(reference, "the sea", **GREEDY)
    (got,) = server.ask(text_input="the sea", exclude_input_in_output=False, **GREEDY).sender.wait()
    assert texts([got]) == ["the sea" + want.text]


def test_a_conversation(server: Server, reference: LLM) -> None:
    messages = [{"role": "user", "content": "hi"}]
    want = reference.chat(messages, SamplingParams(temperature=0.0, max_tokens=20)).outputs[0].text
    (got,) = server.ask(messages=json.dumps(messages), **GREEDY).sender.wait()
    assert texts([got]) == [want]
    (got,) = server.ask(messages=json.dumps(messages), exclude_input_in_output=False, **GREEDY).sender.wait()
    assert texts([got]) == ["user: hi\nassistant: " + want]


def test_the_token_model(tokens: Server, reference: LLM) -> None:
    ids = reference.encode("the sea")
    want = reference.generate(ids, SamplingParams(temperature=0.0, max_tokens=20)).outputs[0]
    arrays = {
        "input_ids": np.array([ids], np.int32),
        "input_lengths": np.array([len(ids)], np.int32),
        "request_output_len": np.array([20], np.int32),
        "temperature": np.zeros(1, np.float32),
    }
    (got,) = tokens.ask(**arrays).sender.wait()
    assert got["output_ids"].tolist() == [[ids + want.token_ids]]
    assert got["sequence_length"].tolist() == [[len(ids) + 20]]
    chunks = tokens.ask(**arrays, streaming=np.array([True])).sender.wait()
    assert [token for one in chunks for token in one["output_ids"][0, 0].tolist()] == want.token_ids
    assert b"".join(one["output_text"].item() for one in chunks).decode() == want.text
    assert all(set(one) == tokens.outputs for one in chunks)
    (got,) = tokens.ask(outputs=frozenset({"output_ids"}), **arrays).sender.wait()
    assert set(got) == {"output_ids"}


BAD = {
    "R201": {"temperature": -1.0},
    "R202": {"top_p": 1.5},
    "R205": {"seed": 2**63},
    "R209": {"num_return_sequences": 2000000000},
    "R101": {"max_tokens": 5000},
    "R102": {"text_input": ""},
    "R106": {"max_tokens": 0},
    "R208": {"drafts": "maybe"},
    "R210": {"beam_width": 4},
    "R421": {"max_tokens": 4, "sampling_param_max_tokens": 5},
    "R422": {"max_tokens": [4, 5]},
    "R423": {"messages": "[{", "text_input": ""},
    "R425": {"stop": True},
}


def test_a_prompt_of_megabytes_is_refused_before_it_is_encoded(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Tokenizer, "encode", lambda *_, **__: pytest.fail("the text was encoded"))
    monkeypatch.setattr(Tokenizer, "least_tokens", lambda self, text: len(text))  # a byte a token
    text = "x" * 7_000_000
    for ask in ({"text_input": text}, {"messages": json.dumps([{"role": "user", "content": text}])}):
        assert re.search(r"error\[R101\].*has at least", server.ask(**ask).sender.failure().message)
    arrays = {"QUERY": np.array([[text]], np.object_), "REQUEST_OUTPUT_LEN": np.array([[4]], np.int32)}
    with pytest.raises(RequestError, match=r"R101.*has at least"):
        preprocess(arrays, ours("byte_level"), vocab_size=256, max_seq_len=100)


@pytest.mark.parametrize("code", BAD)
def test_a_bad_request_gets_its_code_and_others_go_on(code: str, server: Server) -> None:
    other = server.ask(text_input="other", max_tokens=50, stream=True)
    error = server.ask(**{"text_input": "x", **BAD[code]}).sender.failure()
    assert f"error[{code}]" in error.message
    assert error.code == (TritonError.NOT_FOUND if code == "R425" else TritonError.INVALID_ARG)
    assert other.sender.wait()


def test_a_stop_request_ends_the_one_with_its_id(server: Server) -> None:
    running = server.ask("r1", text_input="x", max_tokens=3900, stream=True, ignore_eos=True, drafts="off")
    while not running.sender.responses:
        time.sleep(0.001)
    (answer,) = server.ask("r1", text_input="", stop=True).sender.wait()
    assert answer["finish_reason"].tolist() == [b"cancelled"]
    responses = running.sender.wait()
    assert responses[-1]["finish_reason"].tolist() == [b"cancelled"]
    assert len(responses) < 3800


def test_a_client_that_gives_up_frees_its_row_within_one_step(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """Case F10."""
    engine, noticed = engine_of(server), []
    cancel = engine.cancel

    def counted(sequences: Any) -> None:
        noticed.append(engine.core.stats.steps)
        cancel(sequences)

    monkeypatch.setattr(engine, "cancel", counted)
    running = server.ask(text_input="x", max_tokens=3900, stream=True, ignore_eos=True, drafts="off")
    while not running.sender.responses:
        time.sleep(0.001)
    running.sender.cancelled = True
    assert running.sender.failure(5).code == TritonError.CANCELLED
    assert engine.core.scheduler.is_idle
    assert engine.core.stats.steps <= noticed[0] + 1
    running = server.ask(text_input="x", max_tokens=3900, stream=True, ignore_eos=True, drafts="off")
    running.sender.broken_after = 3
    assert running.sender.done.wait(5)
    assert len(running.sender.responses) == 3
    assert running.sender.finals == 1


def test_random_cancels_end_every_request_once_and_leave_nothing(server: Server) -> None:
    """Case F11: cancelled before start, in prefill, at the natural end, twice; exactly one last response each."""
    rng = random.Random(0)
    senders: list[Sender] = []

    def client(number: int) -> None:
        own = random.Random(number)
        for turn in range(12):
            size, tokens = own.randint(1, 80), own.randint(1, 30)
            identity = f"{number}.{turn}"
            request = server.ask(
                identity, text_input="a" * size, max_tokens=tokens, stream=own.random() < 0.7, seed=own.randint(0, 9)
            )
            senders.append(request.sender)
            time.sleep(own.random() * 0.02)
            if own.random() < 0.6:
                request.sender.cancelled = True
            if own.random() < 0.2:
                server.ask(identity, text_input="", stop=True)

    threads = [threading.Thread(target=client, args=(rng.randint(0, 10**9),)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(sender.done.wait(60) for sender in senders)
    assert [sender.finals for sender in senders] == [1] * 96
    wait_until(lambda: not len(server.model.model._book))
    core = engine_of(server).core
    assert core.is_idle
    assert core.scheduler.allocator.in_use == 0


def test_metrics_follow_the_runtime(server: Server) -> None:
    labels = {"model": "hspec", "version": "1", "instance": "0"}
    engine = engine_of(server)
    server.ask(text_input="the sea", **GREEDY).sender.wait()
    wait_until(lambda: metric("hspec_tokens", kind="new", **labels).value == engine.core.stats.new_tokens, 20)
    wait_until(lambda: metric("nv_trt_llm_request_metrics", request_type="active", **labels).value == 0, 20)
    drafts = engine.core.stats.drafts
    assert metric("nv_trt_llm_request_metrics", request_type="max", **labels).value == 8
    blocks = {kind: metric("nv_trt_llm_kv_cache_block_metrics", kv_cache_block_type=kind, **labels).value
              for kind in ("max", "free", "used", "tokens_per", "reused", "fraction")}  # fmt: skip
    assert blocks["free"] + blocks["used"] == blocks["max"] == engine.memory.num_pages - 1
    assert blocks["tokens_per"] == 16
    for length, count in drafts.lengths.items():
        assert metric("hspec_decode_steps", accepted_length=str(length), **labels).value == count
    assert metric("hspec_draft_tokens", kind="accepted", **labels).value == drafts.num_accepted
    assert metric("hspec_mean_accepted_length", **labels).value == drafts.accepted_length
    assert metric("hspec_engine_ready", **labels).value == 1
    assert metric("nv_llm_output_token_len", **labels).observed[-1] == 20
    assert metric("nv_llm_input_token_len", **labels).observed[-1] == 7
    assert 0 < metric("hspec_time_to_first_token_seconds", **labels).observed[-1] < 10


def exported(tiny_engine: Path, folder: Path, **options: object) -> Path:
    settings = replace(ExportOptions(num_threads=1, kv_cache_memory=1 << 24), **options)  # type: ignore[arg-type]
    export_repository(tiny_engine, folder, settings)
    return folder / "hspec"


def test_too_many_requests_are_refused(tiny_engine: Path, tmp_path: Path) -> None:
    with serving(exported(tiny_engine, tmp_path / "r", max_queue_size=2)) as server:
        running = [server.ask(text_input="x", max_tokens=100, stream=True, ignore_eos=True) for _ in range(10)]
        error = server.ask(text_input="x").sender.failure()
        assert error.code == TritonError.UNAVAILABLE
        assert "R420" in error.message
        for request in running:
            request.sender.wait()
        server.ask(text_input="x", max_tokens=2).sender.wait()


def test_one_response_for_each_request_where_not_decoupled(tiny_engine: Path, tmp_path: Path) -> None:
    with serving(exported(tiny_engine, tmp_path / "r", decoupled=False, interface="llmapi")) as server:
        assert len(server.ask(text_input="x", **GREEDY).sender.wait()) == 1
        assert "R426" in server.ask(text_input="x", streaming=True).sender.failure().message

# SPDX-License-Identifier: Apache-2.0
"""`LLM` on a whole engine folder: results, streams, threads, event loops, cancel and close."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

import hspec_trt
from hspec_trt import LLM, RuntimeOptions, SamplingParams
from hspec_trt.errors import HspecError, LoadError, RequestError
from tests.support.engines import make_engine
from tests.support.golden_pair import golden_trace, golden_vectors, hspec_pair
from tests.support.tokenizers_toy import byte_level, ours

CASE = "hspec_qwen3"
GREEDY = SamplingParams(temperature=0.0, max_tokens=40, drafts="on")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    files = {"tokenizer.json": byte_level().to_str().encode(), "chat_template.jinja": b"{{ messages[0].content }}"}
    return make_engine(tmp_path_factory.mktemp("engine") / "e", hspec_pair(CASE), text_files=files)


@pytest.fixture(scope="module")
def llm(folder: Path) -> Iterator[LLM]:
    with LLM(folder, RuntimeOptions(num_threads=1, kv_cache_memory=1 << 22)) as loaded:
        yield loaded


def traced() -> tuple[list[int], list[int], list[int]]:
    """Prompt, greedy text and emitted counts of the golden trace."""
    trace = golden_trace(CASE)[0]
    prompt = golden_vectors(CASE)[f"p{trace['prompt']}.prompt_ids"].tolist()
    return prompt, trace["plain_greedy"], [step["accepted"] + 1 for step in trace["steps"]]


def test_golden_trace_with_its_accepted_lengths(llm: LLM) -> None:
    prompt, text, emitted = traced()
    answer = llm.generate(prompt, GREEDY).outputs[0]
    assert answer.token_ids == text
    assert answer.finish_reason == "length"
    assert answer.drafts.steps == len(emitted)  # the step that ends the prompt is none of them
    assert answer.drafts.accepted_length == pytest.approx(39 / len(emitted))
    assert len(answer.drafts.acceptance_by_position) == 7
    assert answer.timing.finished >= answer.timing.first_token >= answer.timing.arrived
    assert answer.timing.time_to_first_token > 0


def test_one_prompt_or_a_list(llm: LLM) -> None:
    prompt, text, _ = traced()
    assert [r.outputs[0].token_ids for r in llm.generate([prompt, prompt], GREEDY)] == [text, text]
    both = llm.generate([prompt, prompt], [GREEDY, SamplingParams(temperature=0.0, max_tokens=3)])
    assert [len(r.outputs[0].token_ids) for r in both] == [40, 3]
    assert llm.generate(np.array(prompt), GREEDY).outputs[0].token_ids == text  # type: ignore[call-overload]
    texts = llm.generate(["ab", "cd"], SamplingParams(max_tokens=2, seed=1))
    assert [r.prompt for r in texts] == ["ab", "cd"]


def test_text_stream_is_the_text(llm: LLM) -> None:
    params = SamplingParams(max_tokens=60, temperature=1.5, seed=3)
    whole = llm.generate("Hello", params).outputs[0]
    stream = [(o.outputs[0].text_diff, list(o.outputs[0].token_ids_diff)) for o in llm.generate_async("Hello", params)]
    assert "".join(text for text, _ in stream) == whole.text
    assert [token for _, ids in stream for token in ids] == whole.token_ids
    assert llm.tokenizer is not None
    assert whole.text == llm.tokenizer.decode(whole.token_ids)
    assert len(stream) > 10


def test_stop_string_and_its_reason(llm: LLM) -> None:
    free = llm.generate("Hello", SamplingParams(max_tokens=30, temperature=1.5, seed=3)).outputs[0]
    stop = next(free.text[i : i + 2] for i in range(8, 99) if "\ufffd" not in free.text[i : i + 2])
    answer = llm.generate("Hello", SamplingParams(max_tokens=30, temperature=1.5, seed=3, stop=(stop,))).outputs[0]
    assert answer.finish_reason == "stop_string"
    assert answer.stop_reason == stop
    assert answer.text == free.text[: free.text.find(stop)]


def test_several_answers_to_one_prompt(llm: LLM) -> None:
    params = SamplingParams(max_tokens=8, temperature=1.0, seed=5, n=3)
    outputs = llm.generate("ab", params).outputs
    assert [o.index for o in outputs] == [0, 1, 2]
    assert len({tuple(o.token_ids) for o in outputs}) == 3
    alone = llm.generate("ab", SamplingParams(max_tokens=8, temperature=1.0, seed=7)).outputs[0]
    assert alone.token_ids == outputs[2].token_ids


def test_chat(llm: LLM) -> None:
    assert llm.chat_ids([{"role": "user", "content": "hi"}]) == llm.encode("hi")
    assert llm.chat([{"role": "user", "content": "hi"}], SamplingParams(max_tokens=2)).outputs[0].token_ids


def test_many_threads(llm: LLM) -> None:
    prompt, text, _ = traced()
    with ThreadPoolExecutor(16) as pool:
        jobs = [pool.submit(llm.generate, prompt, GREEDY) for _ in range(32)]
        assert all(job.result(60).outputs[0].token_ids == text for job in jobs)


def test_event_loop(llm: LLM) -> None:
    prompt, text, _ = traced()

    async def one() -> list[int]:
        ids: list[int] = []
        async for output in llm.generate_async(prompt, GREEDY):
            ids += output.outputs[0].token_ids_diff
        return ids

    async def all_of_them() -> list[list[int]]:
        return await asyncio.gather(*(one() for _ in range(8)))

    assert asyncio.run(all_of_them()) == [text] * 8


def test_cancel_and_a_stream_left_early(llm: LLM) -> None:
    long = SamplingParams(temperature=1.0, seed=1, max_tokens=240, drafts="off")
    generation = llm.generate_async("a", long)
    stream = iter(generation)
    next(stream)
    generation.cancel()
    generation.cancel()
    answer = generation.result(30).outputs[0]
    assert answer.finish_reason == "cancelled"
    assert len(answer.token_ids) < 240
    stream = iter(llm.generate_async("a", long))
    next(stream)
    del stream
    gc.collect()
    llm.generate("a", SamplingParams(max_tokens=1))
    assert llm.stats.finished["cancelled"] >= 2


def test_refused_requests_and_the_good_one_after(llm: LLM) -> None:
    prompt, text, _ = traced()
    for bad, code in (([], "R102"), ([999], "R103"), ([0.5], "R104"), ([1] * 9000, "R101")):
        with pytest.raises(RequestError) as caught:
            llm.generate(bad, GREEDY)  # type: ignore[call-overload]
        assert caught.value.code == code
    with pytest.raises(HspecError, match="R108"):
        llm.generate([prompt, prompt], [GREEDY])
    with pytest.raises(HspecError, match="R209"):
        llm.generate(prompt, SamplingParams(n=0))
    assert llm.generate(prompt, GREEDY).outputs[0].token_ids == text


def test_result_can_time_out(llm: LLM) -> None:
    generation = llm.generate_async("a", SamplingParams(max_tokens=200, drafts="off"), streaming=False)
    with pytest.raises(TimeoutError):
        generation.result(0.001)
    assert len(generation.result(60).outputs[0].token_ids) == 200


def test_closed_engine(folder: Path) -> None:
    llm = LLM(folder, RuntimeOptions(num_threads=1, kv_cache_memory=1 << 22))
    running = llm.generate_async("a", SamplingParams(max_tokens=240, drafts="off"))
    stream = iter(running)
    next(stream)
    waiter = threading.Thread(target=running.result)
    waiter.start()
    llm.close()
    waiter.join(30)
    answer = running.output.outputs[0]
    assert answer.finish_reason == "error"
    assert answer.error is not None
    assert answer.error.code == "R303"
    with pytest.raises(RequestError, match="R303"):
        llm.generate("a", GREEDY)
    llm.close()


def test_draining_close_finishes_what_runs(folder: Path) -> None:
    llm = LLM(folder, RuntimeOptions(num_threads=1, kv_cache_memory=1 << 22))
    running = llm.generate_async("a", SamplingParams(max_tokens=30, drafts="off", ignore_eos=True))
    llm.close(drain=True)
    assert llm._worker.fault is None
    assert len(running.result(1).outputs[0].token_ids) == 30


def test_fault_of_ours_leaves_nobody_waiting(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    llm = LLM(folder, RuntimeOptions(num_threads=1, kv_cache_memory=1 << 22))
    monkeypatch.setattr(threading, "excepthook", lambda args: None)

    def broken() -> bool:
        raise ZeroDivisionError

    monkeypatch.setattr(llm._core, "step", broken)
    answer = llm.generate_async("a", GREEDY).result(30).outputs[0]
    assert answer.error is not None
    assert answer.error.code == "R304"
    with pytest.raises(RequestError, match="R304"):
        llm.generate("a", GREEDY)
    assert llm._worker.fault is not None


def test_engine_without_a_tokenizer(tmp_path: Path) -> None:
    prompt, text, _ = traced()
    with LLM(make_engine(tmp_path / "e", hspec_pair(CASE)), RuntimeOptions(num_threads=1)) as bare:
        output = bare.generate(prompt, GREEDY).outputs[0]
        assert output.token_ids == text
        assert output.text == ""
        for call in (
            lambda: bare.generate("text"),
            lambda: bare.chat([]),
            lambda: bare.generate([1], SamplingParams(stop=("x",))),
        ):
            with pytest.raises(RequestError):
                call()


def test_memory_table_and_budget(folder: Path, llm: LLM) -> None:
    memory = llm.memory
    assert memory.pages == memory.num_pages * memory.page_bytes <= 1 << 22
    assert memory.tokens == (memory.num_pages - 1) * 16
    assert memory.weights == (folder / "weights.safetensors").stat().st_size
    with pytest.raises(LoadError, match="L035"):
        LLM(folder, RuntimeOptions(kv_cache_memory=1000))


def test_public_names() -> None:
    assert {name for name in hspec_trt.__all__ if not hasattr(hspec_trt, name)} == set()
    with pytest.raises(AttributeError, match="nothing"):
        _ = hspec_trt.nothing


def test_a_prompt_of_megabytes_is_refused_before_it_is_encoded(llm: LLM, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every token of this tokenizer stands for so many bytes at most that none of these texts can fit."""
    tokenizer = ours("byte_level")
    monkeypatch.setattr(llm, "tokenizer", tokenizer)
    monkeypatch.setattr(tokenizer, "encode", lambda text, special=True: pytest.fail("the text was encoded"))
    with pytest.raises(RequestError, match="7000000 bytes") as caught:
        llm.generate("x" * 7_000_000)
    assert caught.value.code == "R101"

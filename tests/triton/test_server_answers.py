# SPDX-License-Identifier: Apache-2.0
"""What the exported repository answers in a real Triton Inference Server."""

from __future__ import annotations

import json
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from tritonclient.utils import InferenceServerException

from hspec_trt.config.sampling import SamplingParams
from hspec_trt.runtime.llm import LLM
from tests.support.triton_checks import GREEDY, SAMPLED, Variant, expected
from tests.support.triton_server import TritonServer, arrays_of, joined

pytestmark = pytest.mark.slow
FINISH_REASONS = {"eos": "stop", "length": "length", None: "none"}


@pytest.mark.parametrize("model", ["hspec", "ensemble"])
@pytest.mark.parametrize("options", [GREEDY, SAMPLED], ids=["greedy", "sampled"])
def test_http_generate(model: str, options: dict[str, object], server: TritonServer, reference: LLM) -> None:
    want = expected(reference, "the sea", **options)
    body = {"text_input": "the sea", "exclude_input_in_output": True, "bad_words": "", "stop_words": "", **options}
    got = server.generate(model, return_perf_metrics=True, id="a7", **body)
    assert got["text_output"] == want.text
    assert got["finish_reason"] == "length"
    assert got["total_draft_tokens"] >= got["total_accepted_draft_tokens"] >= 0
    assert got["id"] == "a7"


@pytest.mark.parametrize("model", ["hspec", "ensemble"])
@pytest.mark.parametrize("options", [GREEDY, SAMPLED], ids=["greedy", "sampled"])
def test_http_stream(model: str, options: dict[str, object], server: TritonServer, reference: LLM) -> None:
    many = {**options, "max_tokens": 300, "ignore_eos": True}
    events = server.generate_stream(model, text_input="lighthouse", stream=True, **many)
    assert "".join(event["text_output"] for event in events) == expected(reference, "lighthouse", **many).text
    assert len(events) > 1


@pytest.mark.parametrize("model", ["hspec", "ensemble"])
def test_grpc_stream(model: str, server: TritonServer, reference: LLM) -> None:
    want = expected(reference, "été", **SAMPLED)
    with server.stream() as stream:
        stream.send(model, arrays_of(text_input="été", stream=True, return_log_probs=True, **SAMPLED))
        responses = stream.rest()
    assert joined(responses) == want.text
    logprobs = [value for one in responses for value in one["output_log_probs"].reshape(-1).tolist()]
    np.testing.assert_array_equal(np.array(logprobs, np.float32), np.array(want.logprobs, np.float32))
    assert responses[0]["batch_index"].tolist() == [[0]]
    assert responses[-1]["finish_reason"].item().decode() == FINISH_REASONS[want.finish_reason]


def test_a_conversation(server: TritonServer, reference: LLM) -> None:
    messages = [{"role": "user", "content": "hi"}]
    want = reference.chat(messages, SamplingParams(temperature=0.0, max_tokens=20)).outputs[0].text
    assert server.generate("hspec", messages=json.dumps(messages), **GREEDY)["text_output"] == want


def test_outputs_asked_for_by_name(server: TritonServer) -> None:
    names = ("text_output", "acceptance_rate", "first_token_time_ns")
    with server.stream() as stream:
        stream.send("hspec", arrays_of(text_input="x", **GREEDY), outputs=names)
        (response,) = stream.rest()
    assert set(response) == set(names)


def test_token_ids_in_and_out(server: TritonServer, reference: LLM) -> None:
    ids = reference.encode("the sea")
    want = reference.generate(ids, SamplingParams(temperature=0.0, max_tokens=20)).outputs[0].token_ids
    arrays = {
        "input_ids": np.array([ids], np.int32),
        "input_lengths": np.array([[len(ids)]], np.int32),
        "request_output_len": np.array([[20]], np.int32),
        "temperature": np.zeros((1, 1), np.float32),
    }
    with server.stream() as stream:
        stream.send("tensorrt_llm", arrays)
        (whole,) = stream.rest()
        assert whole["output_ids"].tolist() == [[ids + want]]
        assert whole["sequence_length"].tolist() == [[len(ids) + 20]]
        stream.send("tensorrt_llm", {**arrays, "streaming": np.array([[True]])})
        chunks = stream.rest()
    assert [token for one in chunks for token in one["output_ids"].reshape(-1).tolist()] == want


def test_several_prompts_in_one_request(server: TritonServer, reference: LLM) -> None:
    prompts = ["one", "two", "three"]
    arrays = {
        "text_input": np.array([[p.encode()] for p in prompts], np.object_),
        "max_tokens": np.array([[5], [6], [7]], np.int32),
        "temperature": np.zeros((3, 1), np.float32),
    }
    wants = [
        expected(reference, p, temperature=0.0, max_tokens=n).text for p, n in zip(prompts, (5, 6, 7), strict=True)
    ]
    with server.stream() as stream:
        stream.send("hspec", arrays)
        (response,) = stream.rest()
    assert [text.decode() for text in response["text_output"].tolist()] == wants


def test_steps_of_the_ensemble_alone(server: TritonServer, reference: LLM) -> None:
    arrays = {
        "QUERY": np.array([[b"the sea"], [b"a"]], np.object_),
        "REQUEST_OUTPUT_LEN": np.array([[4], [5]], np.int32),
        "STOP_WORDS_DICT": np.array([[b"ab", b"c"], [b"d", b""]], np.object_),
        "EMBEDDING_BIAS_WORDS": np.array([[b"b"], [b"b"]], np.object_),
        "EMBEDDING_BIAS_WEIGHTS": np.array([[1.5], [2.5]], np.float32),
    }
    got = server.infer("preprocessing", arrays)
    ids, short, b = reference.encode("the sea"), reference.encode("a"), reference.encode("b")[0]
    assert got["INPUT_ID"].tolist() == [ids, short + [0] * (len(ids) - 1)]
    assert got["REQUEST_INPUT_LEN"].tolist() == [[len(ids)], [1]]
    assert got["REQUEST_OUTPUT_LEN"].tolist() == [[4], [5]]
    words = [reference.encode(word)[0] for word in "abcd"]
    assert got["STOP_WORDS_IDS"].tolist() == [[words[:3], [2, 3, -1]], [[words[3], 0, 0], [1, -1, -1]]]
    assert got["EMBEDDING_BIAS"][:, b].tolist() == [1.5, 2.5]
    assert np.count_nonzero(got["EMBEDDING_BIAS"]) == 2
    padded = np.array([[ids], [short + [0] * (len(ids) - 1)]], np.int32)
    lengths = np.array([[len(ids)], [1]], np.int32)
    got = server.infer("postprocessing", {"TOKENS_BATCH": padded, "SEQUENCE_LENGTH": lengths})
    assert got["OUTPUT"].tolist() == [b"the sea", b"a"]


def test_stop_words_in_the_ensemble_match_text(server: TritonServer, reference: LLM) -> None:
    """Case F5: the word falls anywhere in the tokens, and the text is cut before it."""
    text = expected(reference, "the sea", **GREEDY).text
    word = text[4:6]
    for model in ("hspec", "ensemble"):
        body = {"text_input": "the sea", "stop_words": ["zzz", word], "exclude_input_in_output": True, **GREEDY}
        got = server.generate(model, **body)
        assert got["text_output"] == text[: text.index(word)]
        assert (got["finish_reason"], got["stop_reason"]) == ("stop", word)


def test_llmapi_tensors_without_batch_dimension(variant: Variant, server: TritonServer, reference: LLM) -> None:
    model = variant("hspec_llmapi", interface="llmapi")
    want = expected(reference, "the sea", **SAMPLED)
    options = {"temperature": 0.9, "seed": 11, "top_k": 30, "max_tokens": 60}
    named = {f"sampling_param_{name}": value for name, value in options.items()}
    with server.stream() as stream:
        arrays = arrays_of(batched=False, text_input="the sea", streaming=True, return_finish_reason=True, **named)
        stream.send(model, arrays)
        responses = stream.rest()
    assert joined(responses) == want.text
    assert responses[-1]["finish_reason"].tolist() == [b"length"]
    got = server.generate(model, text_input="the sea", **named)
    assert got["text_output"] == want.text
    mixed = server.generate(model, text_input="the sea", **options)
    assert mixed["text_output"] == want.text


def test_not_decoupled(variant: Variant, server: TritonServer, reference: LLM) -> None:
    model = variant("hspec_unary", decoupled=False)
    want = expected(reference, "the sea", **SAMPLED).text
    got = server.infer(model, arrays_of(text_input="the sea", **SAMPLED))
    assert [text.decode() for text in got["text_output"].tolist()] == [want]
    assert server.generate(model, text_input="the sea", **SAMPLED)["text_output"] == want
    body = {
        "inputs": [
            {"name": "text_input", "shape": [1, 1], "datatype": "BYTES", "data": ["the sea"]},
            {"name": "max_tokens", "shape": [1, 1], "datatype": "INT32", "data": [20]},
            {"name": "temperature", "shape": [1, 1], "datatype": "FP32", "data": [0.0]},
        ]
    }
    status, text = server.call("POST", f"/v2/models/{model}/infer", body)
    assert status == 200, text
    outputs = {one["name"]: one["data"] for one in json.loads(text)["outputs"]}
    assert outputs["text_output"] == [expected(reference, "the sea", **GREEDY).text]
    with pytest.raises(InferenceServerException, match="R426"):
        server.infer(model, arrays_of(text_input="x", stream=True))


def test_sixteen_clients_join_and_leave(server: TritonServer, reference: LLM) -> None:
    """Each gets what it gets alone; the engine has 8 rows."""
    prompts = [f"client {number} says " + "ab" * (number % 5) for number in range(48)]
    options = [{"max_tokens": 5 + 7 * (n % 9), "temperature": [0.0, 0.8][n % 2], "seed": n} for n in range(48)]
    wants = [expected(reference, p, **o).text for p, o in zip(prompts, options, strict=True)]

    def client(number: int) -> list[str]:
        found = []
        with server.stream() as stream:
            for turn in range(number, 48, 16):
                time.sleep(0.01 * (number % 4))
                stream.send("hspec", arrays_of(text_input=prompts[turn], stream=turn % 3 > 0, **options[turn]))
                found.append(joined(stream.rest()))
        return found

    with ThreadPoolExecutor(16) as pool:
        found = list(pool.map(client, range(16)))
    assert found == [wants[number::16] for number in range(16)]

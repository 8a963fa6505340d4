# SPDX-License-Identifier: Apache-2.0
"""Penalties, biases, bad words, least lengths and guided decoding by their tensors: as `LLM.generate` does them."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from hspec_trt.config.build import BuildConfig
from hspec_trt.config.sampling import GuidedDecodingParams, SamplingParams
from hspec_trt.errors import RequestError
from hspec_trt.pipeline import build
from hspec_trt.runtime.llm import LLM
from hspec_trt.serving.triton.models import hspec_inputs
from hspec_trt.serving.triton.repository import ExportOptions, export_repository
from hspec_trt.serving.triton.requests import Reading, read_request
from tests.support.fake_triton import Server, serving
from tests.support.triton_server import TritonServer, arrays_of, joined, triton_server

PROMPT = "the sea"
GREEDY = {"temperature": 0.0, "max_tokens": 40}
SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"], "additionalProperties": False}
EBNF = 'root ::= "a" ("," [bc])* "!"'
OPTIONS = (
    *("repetition_penalty", "presence_penalty", "frequency_penalty", "min_tokens", "min_length", "bad_words"),
    *("embedding_bias", "json", "json_schema", "regex", "ebnf_grammar"),
)


def guide(kind: str, text: str = "") -> dict[str, object]:
    named = {"guided_decoding_guide_type": kind, "guided_decoding_guide": text}
    return {name: value for name, value in named.items() if value}


def option(name: str, plain: str, reference: LLM) -> tuple[dict[str, object], dict[str, object]]:
    """The tensors that ask for an option, and the fields of `SamplingParams`; `plain` is the text without it."""
    if name.endswith("_penalty"):
        return {name: 1.7}, {name: float(np.float32(1.7))}
    if name in ("min_tokens", "min_length"):
        end = reference.encode(plain)[3]
        return {name: 12, "end_id": end}, {"min_tokens": 12, "stop_token_ids": (end,)}
    if name == "bad_words":
        words = [plain[2:4], plain[5]]
        return {name: words}, {name: tuple(words)}
    if name == "embedding_bias":
        tensors = {"embedding_bias_words": ["b", plain[0]], "embedding_bias_weights": [30.0, -5.0]}
        ids = [reference.encode(word)[0] for word in tensors["embedding_bias_words"]]  # type: ignore[arg-type]
        return tensors, {"logit_bias": tuple(sorted(zip(ids, (30.0, -5.0), strict=True)))}
    texts = {"json": "", "json_schema": json.dumps(SCHEMA), "regex": "[a-d]{3,9}x", "ebnf_grammar": EBNF}
    fields = {"json": {"json_object": True}, "json_schema": {"json": texts["json_schema"]},
              "regex": {"regex": texts["regex"]}, "ebnf_grammar": {"grammar": EBNF}}  # fmt: skip
    return guide(name, texts[name]), {"guided_decoding": GuidedDecodingParams(**fields[name])}  # type: ignore[arg-type]


def wanted(name: str, reference: LLM) -> tuple[dict[str, object], str]:
    """The tensors for an option, and the text that they must give, which is another than without."""
    plain = reference.generate(PROMPT, SamplingParams(**GREEDY)).outputs[0].text  # type: ignore[arg-type]
    tensors, fields = option(name, plain, reference)
    params = SamplingParams(**{**GREEDY, **fields})  # type: ignore[arg-type]
    text = reference.generate(PROMPT, params).outputs[0].text
    assert text != plain, "the option does nothing here"
    return tensors, text


@pytest.fixture(scope="module")
def served(repository: Path) -> Iterator[dict[str, Server]]:
    with serving(repository / "hspec") as hspec, serving(repository / "tensorrt_llm") as tokens:
        yield {"hspec": hspec, "tensorrt_llm": tokens}


@pytest.mark.parametrize("name", OPTIONS)
def test_text_model(name: str, served: dict[str, Server], reference: LLM) -> None:
    tensors, text = wanted(name, reference)
    (whole,) = served["hspec"].ask(text_input=PROMPT, **tensors, **GREEDY).sender.wait()
    assert whole["text_output"].item().decode() == text
    chunks = served["hspec"].ask(text_input=PROMPT, stream=True, drafts="on", **tensors, **GREEDY).sender.wait()
    assert b"".join(one["text_output"].item() for one in chunks).decode() == text


@pytest.mark.parametrize("name", OPTIONS)
def test_token_model(name: str, served: dict[str, Server], reference: LLM) -> None:
    tensors, text = wanted(name, reference)
    ids = reference.encode(PROMPT)
    if name == "embedding_bias":
        words, weights = tensors.pop("embedding_bias_words"), tensors.pop("embedding_bias_weights")
        dense = np.zeros((1, reference.folder.manifest.target.vocab_size), np.float32)
        for word, weight in zip(words, weights, strict=True):  # type: ignore[call-overload]
            dense[0, reference.encode(word)[0]] = weight
        tensors["embedding_bias"] = dense
    if name == "bad_words":
        word_ids = [reference.encode(word) for word in tensors.pop("bad_words")]  # type: ignore[attr-defined]
        flat, ends = [token for word in word_ids for token in word], np.cumsum([len(word) for word in word_ids])
        padded = [*ends.tolist(), *[-1] * (len(flat) - len(ends))]
        tensors["bad_words_list"] = np.array([[flat, padded]], np.int32)
    asked = {
        "input_ids": np.array([ids], np.int32),
        "input_lengths": np.array([len(ids)], np.int32),
        "request_output_len": np.array([40], np.int32),
        "temperature": np.zeros(1, np.float32),
        "exclude_input_in_output": np.array([True]),
    }
    (whole,) = served["tensorrt_llm"].ask(**asked, **tensors).sender.wait()
    assert whole["output_text"].item().decode() == text


def test_log_probabilities_are_the_targets_own(served: dict[str, Server], reference: LLM) -> None:
    """Of what was drawn under a penalty, under the distribution without it."""
    want = reference.generate(PROMPT, SamplingParams(presence_penalty=1.5, temperature=0.0, max_tokens=40)).outputs[0]
    (got,) = served["hspec"].ask(text_input=PROMPT, presence_penalty=1.5, return_log_probs=True, **GREEDY).sender.wait()
    np.testing.assert_array_equal(got["output_log_probs"], np.array([[want.logprobs]], np.float32))


READING = Reading(hspec_inputs("llmapi"), False)
BAD_GUIDES = {
    "no such type": guide("yaml", "a: b"),
    "not served": guide("structural_tag", "{}"),
    "no type": guide("", "{}"),
    "no guide": guide("regex"),
    "a guide too many": guide("json", "{}"),
}


@pytest.mark.parametrize("name", BAD_GUIDES)
def test_a_guide_that_says_nothing_is_refused(name: str) -> None:
    with pytest.raises(RequestError, match="guided_decoding_guide") as caught:
        read_request(arrays_of(batched=False, text_input="x", **BAD_GUIDES[name]), READING)
    assert caught.value.code == "R220"


def test_a_guide_that_cannot_be_read_ends_one_request(served: dict[str, Server]) -> None:
    error = served["hspec"].ask(text_input="x", **guide("regex", "a(")).sender.failure()
    assert "R220" in error.message
    assert served["hspec"].ask(text_input="x", **GREEDY).sender.wait()


def test_an_engine_without_the_extensions_refuses_by_name(tiny_engine: Path, tmp_path: Path) -> None:
    source = tiny_engine.parent / "target"
    config = BuildConfig(max_batch_size=2, max_seq_len=64, max_num_tokens=32, page_size=16, extensions=())
    build(source, None, tmp_path / "engine", config)
    export_repository(tmp_path / "engine", tmp_path / "models", ExportOptions(num_threads=1, kv_cache_memory=1 << 22))
    asked: dict[str, dict[str, object]] = {
        "repetition_penalty": {"repetition_penalty": 1.2},
        "logit_bias": {"embedding_bias_words": ["b"], "embedding_bias_weights": [1.0]},
        "bad_words": {"bad_words": ["x"]},
        "min_tokens": {"min_length": 4},
        "guided_decoding": guide("regex", "a"),
    }
    with serving(tmp_path / "models" / "hspec") as server:
        for name, tensors in asked.items():
            message = server.ask(text_input="x", **tensors).sender.failure().message
            assert "R210" in message
            assert name in message


@pytest.fixture(scope="module")
def real(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TritonServer]:
    models = shutil.copytree(repository, tmp_path_factory.mktemp("served") / "models")
    with triton_server(models, tmp_path_factory.mktemp("log") / "server.log") as running:
        yield running


@pytest.mark.slow
@pytest.mark.parametrize("model", ["hspec", "ensemble"])
def test_on_the_real_server(model: str, real: TritonServer, reference: LLM) -> None:
    for name in OPTIONS:
        tensors, text = wanted(name, reference)
        body = {"text_input": PROMPT, "exclude_input_in_output": True, **tensors, **GREEDY}
        assert real.generate(model, **body)["text_output"] == text, name
        with real.stream() as stream:
            stream.send(model, arrays_of(text_input=PROMPT, stream=True, **tensors, **GREEDY))
            assert joined(stream.rest()) == text, name


@pytest.mark.slow
def test_guided_texts_on_the_real_server(real: TritonServer) -> None:
    """Sampled, several at once, with drafts: each fits its own grammar."""
    with real.stream() as stream:
        for seed in range(6):
            tensors = {**guide("regex", f"[a-d]{{3,9}}{seed}"), "seed": seed, "temperature": 1.0, "max_tokens": 40}
            stream.send("hspec", arrays_of(text_input=PROMPT, stream=False, drafts="on", **tensors), f"r{seed}")
        texts = sorted(joined(stream.rest())[-1] for _ in range(6))
    assert texts == list("012345")


def test_the_expected_texts_fit_their_grammars(reference: LLM) -> None:
    """What the server is compared with is right itself."""
    sampled = {"temperature": 1.0, "seed": 3, "max_tokens": 60, "drafts": "on"}
    regex = SamplingParams(guided_decoding=GuidedDecodingParams(regex="[a-d]{3,9}x"), **sampled)  # type: ignore[arg-type]
    grammar = replace(regex, guided_decoding=GuidedDecodingParams(grammar=EBNF))
    assert re.fullmatch("[a-d]{3,9}x", reference.generate(PROMPT, regex).outputs[0].text)
    assert re.match("a(,[bc])*", reference.generate(PROMPT, grammar).outputs[0].text)

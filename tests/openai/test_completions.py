# SPDX-License-Identifier: Apache-2.0
"""Completions through OpenAI's own client: what comes out is what `LLM` gives for the same options."""

from __future__ import annotations

import openai
import pytest

from hspec_trt import LLM, GuidedDecodingParams, SamplingParams
from tests.support.openai_server import Server

SEEDED = {"temperature": 1.0, "seed": 1, "max_tokens": 24}
PLAIN = SamplingParams(temperature=1.0, seed=1, max_tokens=24)
SCHEMA = {"type": "object", "properties": {"n": {"enum": [1, 2]}}, "required": ["n"], "additionalProperties": False}

OPTIONS: dict[str, tuple[dict, SamplingParams]] = {
    "greedy": ({"temperature": 0, "seed": None}, SamplingParams(temperature=0.0, max_tokens=24)),
    "top_p": ({"top_p": 0.5}, SamplingParams(seed=1, max_tokens=24, top_p=0.5)),
    "top_k": ({"top_k": 3}, SamplingParams(seed=1, max_tokens=24, top_k=3)),
    "min_p": ({"min_p": 0.3}, SamplingParams(seed=1, max_tokens=24, min_p=0.3)),
    "repetition": ({"repetition_penalty": 1.8}, SamplingParams(seed=1, max_tokens=24, repetition_penalty=1.8)),
    "presence": ({"presence_penalty": 1.5}, SamplingParams(seed=1, max_tokens=24, presence_penalty=1.5)),
    "frequency": ({"frequency_penalty": 1.5}, SamplingParams(seed=1, max_tokens=24, frequency_penalty=1.5)),
    "bias": ({"logit_bias": {"9": 50}}, SamplingParams(seed=1, max_tokens=24, logit_bias=((9, 50.0),))),
    "bad_words": ({"bad_words": ["m("]}, SamplingParams(seed=1, max_tokens=24, bad_words=("m(",))),
    "stop": ({"stop": ["[y", "zz"]}, SamplingParams(seed=1, max_tokens=24, stop=("[y", "zz"))),
    "stop_ids": ({"stop_token_ids": [115]}, SamplingParams(seed=1, max_tokens=24, stop_token_ids=(115,))),
    "end": ({"ignore_eos": True}, SamplingParams(seed=1, max_tokens=24, ignore_eos=True)),
    "min_tokens": ({"min_tokens": 20}, SamplingParams(seed=1, max_tokens=24, min_tokens=20)),
    "drafts": ({"drafts": "on", "num_drafts": 2}, SamplingParams(seed=1, max_tokens=24, drafts="on", num_drafts=2)),
    "lookup": (
        {"drafts": "on", "draft_source": "prompt_lookup"},
        SamplingParams(seed=1, max_tokens=24, drafts="on", draft_source="prompt_lookup"),
    ),
    "schema": (
        {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA}}, "max_tokens": 60},
        SamplingParams(
            seed=1,
            max_tokens=60,
            guided_decoding=GuidedDecodingParams(
                json='{"type": "object", "properties": {"n": {"enum": [1, 2]}}, "required": ["n"], '
                '"additionalProperties": false}'
            ),
        ),
    ),
    "json": (
        {"response_format": {"type": "json_object"}},
        SamplingParams(seed=1, max_tokens=24, guided_decoding=GuidedDecodingParams(json_object=True)),
    ),
    "regex": (
        {"response_format": {"type": "regex", "regex": "[0-9]{5}"}},
        SamplingParams(seed=1, max_tokens=24, guided_decoding=GuidedDecodingParams(regex="[0-9]{5}")),
    ),
    "grammar": (
        {"response_format": {"type": "grammar", "grammar": 'start: ("a" | "b")+'}},
        SamplingParams(seed=1, max_tokens=24, guided_decoding=GuidedDecodingParams(grammar='start: ("a" | "b")+')),
    ),
    "choice": (
        {"response_format": {"type": "choice", "choice": ["yes", "no"]}},
        SamplingParams(seed=1, max_tokens=24, guided_decoding=GuidedDecodingParams(choice=("yes", "no"))),
    ),
}  # fmt: skip


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("name", OPTIONS)
def test_every_option_does_what_it_does_in_python(name: str, stream: bool, server: Server, reference: LLM) -> None:
    fields, params = OPTIONS[name]
    want = reference.generate("hello there", params).outputs[0]
    asked = {"prompt": "hello there", "return_token_ids": True, "stream": stream, **SEEDED, **fields}
    reply = server.post("/v1/completions", asked)
    assert reply.status == 200, reply.body
    choices = [event["choices"][0] for event in reply.events] if stream else reply.json["choices"]
    assert [token for choice in choices for token in choice["token_ids"]] == want.token_ids
    assert "".join(choice["text"] for choice in choices) == want.text
    last = choices[-1]
    assert last["finish_reason"] == ("length" if want.finish_reason == "length" else "stop")
    own_stop = want.finish_reason in ("stop_string", "stop_token")
    assert last["stop_reason"] == (want.stop_reason if own_stop else None)


def test_options_are_not_without_effect(reference: LLM) -> None:
    """What the test above compares would be equal if neither side did anything."""
    plain = reference.generate("hello there", PLAIN).outputs[0].token_ids
    texts = {name: reference.generate("hello there", params).outputs[0] for name, (_, params) in OPTIONS.items()}
    same = {name for name, answer in texts.items() if answer.token_ids == plain}
    assert same <= {"drafts", "lookup", "end", "min_tokens"}, same


def test_client_gets_the_text_whole_and_in_pieces(client: openai.OpenAI, reference: LLM) -> None:
    want = reference.generate("hello", PLAIN).outputs[0]
    whole = client.completions.create(model="tiny", prompt="hello", **SEEDED)
    assert whole.choices[0].text == want.text
    assert whole.object == "text_completion"
    assert whole.usage is not None
    assert whole.usage.prompt_tokens == 5
    assert whole.usage.completion_tokens == len(want.token_ids)
    stream = client.completions.create(
        model="alias", prompt="hello", stream=True, stream_options={"include_usage": True}, **SEEDED
    )
    chunks = list(stream)
    assert "".join(chunk.choices[0].text for chunk in chunks if chunk.choices) == want.text
    assert len(chunks) > 4
    assert {chunk.id for chunk in chunks} == {chunks[0].id}
    last = chunks[-1].usage
    assert last is not None
    assert (last.prompt_tokens, last.completion_tokens, last.total_tokens) == (5, 24, 29)
    assert all(chunk.usage is None for chunk in chunks[:-1])
    assert [chunk.choices[0].finish_reason for chunk in chunks[:-1]][-1] is not None


def test_default_is_sixteen_tokens(client: openai.OpenAI) -> None:
    made = client.completions.create(model="tiny", prompt="hello", extra_body={"ignore_eos": True})
    assert made.usage is not None
    assert made.usage.completion_tokens == 16


@pytest.mark.parametrize("stream", [False, True])
def test_several_prompts_and_answers_keep_their_places(stream: bool, server: Server, reference: LLM) -> None:
    prompts = ["hello", "good day", "x"]
    body = {"prompt": prompts, "n": 2, "stream": stream, "return_token_ids": True, **SEEDED}
    reply = server.post("/v1/completions", body)
    choices = [event["choices"][0] for event in reply.events] if stream else reply.json["choices"]
    ids: dict[int, list[int]] = {}
    for choice in choices:
        ids.setdefault(choice["index"], []).extend(choice["token_ids"])
    want = [
        answer.token_ids
        for prompt in prompts
        for answer in reference.generate(prompt, SamplingParams(seed=1, max_tokens=24, n=2)).outputs
    ]
    assert [ids[place] for place in range(6)] == want


def test_prompts_of_token_ids(client: openai.OpenAI, reference: LLM) -> None:
    ids = reference.encode("hello")
    want = reference.generate("hello", PLAIN).outputs[0].text
    assert client.completions.create(model="tiny", prompt=ids, **SEEDED).choices[0].text == want
    both = client.completions.create(model="tiny", prompt=[ids, ids], **SEEDED)
    assert [choice.text for choice in both.choices] == [want, want]


@pytest.mark.parametrize("stream", [False, True])
def test_log_probabilities(stream: bool, server: Server, reference: LLM) -> None:
    """Case C14 over HTTP: one entry for each token, of the target's own row, with the chosen token among its list."""
    params = SamplingParams(temperature=0.0, max_tokens=12, logprobs=3, drafts="on")
    want = reference.generate("hello", params).outputs[0]
    body = {"prompt": "hello", "temperature": 0, "max_tokens": 12, "logprobs": 3, "drafts": "on", "stream": stream}
    reply = server.post("/v1/completions", body)
    choices = [event["choices"][0] for event in reply.events] if stream else reply.json["choices"]
    parts = [choice["logprobs"] for choice in choices]
    values = [value for part in parts for value in part["token_logprobs"]]
    assert values == pytest.approx(want.logprobs, abs=1e-6)
    tops = [top for part in parts for top in part["top_logprobs"]]
    tokens = [token for part in parts for token in part["tokens"]]
    assert all(token in top for token, top in zip(tokens, tops, strict=True))
    assert [max(top.values()) for top in tops] == pytest.approx([top[0][1] for top in want.top_logprobs], abs=1e-6)
    offsets = [offset for part in parts for offset in part["text_offset"]]
    assert offsets == [sum(len(one) for one in tokens[:place]) for place in range(len(tokens))]


def test_zero_logprobs_are_those_of_the_chosen_tokens(server: Server) -> None:
    body = {"prompt": "hello", "temperature": 0, "max_tokens": 4, "logprobs": 0}
    part = server.post("/v1/completions", body).json["choices"][0]["logprobs"]
    assert len(part["token_logprobs"]) == 4
    assert all(value < 0 for value in part["token_logprobs"])
    assert [list(top) for top in part["top_logprobs"]] == [[token] for token in part["tokens"]]


def test_echo_puts_the_prompt_before_the_text(server: Server) -> None:
    body = {"prompt": "hello", "echo": True, **SEEDED}
    text = server.post("/v1/completions", body).json["choices"][0]["text"]
    plain = server.post("/v1/completions", body | {"echo": False}).json["choices"][0]["text"]
    assert text == "hello" + plain
    events = server.post("/v1/completions", body | {"stream": True}).events
    assert "".join(event["choices"][0]["text"] for event in events) == text


def test_acceptance_is_told(server: Server, reference: LLM) -> None:
    want = reference.generate("hello", SamplingParams(temperature=0.0, max_tokens=40, drafts="on", ignore_eos=True))
    drafts = want.outputs[0].drafts
    body = {"prompt": "hello", "temperature": 0, "max_tokens": 40, "drafts": "on", "ignore_eos": True}
    usage = server.post("/v1/completions", body).json["usage"]
    assert usage["drafts"]["accepted_length"] == pytest.approx(drafts.accepted_length)
    assert usage["drafts"]["acceptance_by_position"] == pytest.approx(drafts.acceptance_by_position)
    details = usage["completion_tokens_details"]
    assert details["accepted_prediction_tokens"] == drafts.num_accepted
    assert details["rejected_prediction_tokens"] == drafts.drafted - drafts.num_accepted > 0


def test_a_prompt_again_is_found_in_the_cache(server: Server) -> None:
    body = {"prompt": "a prompt that is long enough for two pages", "max_tokens": 2}
    server.post("/v1/completions", body)
    assert server.post("/v1/completions", body).json["usage"]["prompt_tokens_details"]["cached_tokens"] == 32


def test_unseeded_answers_differ(server: Server) -> None:
    """Case C13: equal prompts without a seed, together and one after another."""
    body = {"prompt": ["hello"] * 6, "max_tokens": 16, "ignore_eos": True}
    texts = [choice["text"] for _ in range(2) for choice in server.post("/v1/completions", body).json["choices"]]
    assert len(set(texts)) == 12


def test_models(client: openai.OpenAI) -> None:
    assert [model.id for model in client.models.list()] == ["tiny", "alias"]
    assert client.models.retrieve("alias").id == "alias"
    with pytest.raises(openai.NotFoundError) as caught:
        client.models.retrieve("gpt-7")
    assert caught.value.code == "R438"

# SPDX-License-Identifier: Apache-2.0
"""Requests that cannot be served: each gets its status and code in OpenAI's shape, and nobody else notices."""

from __future__ import annotations

import json
from typing import Any

import openai
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hspec_trt import LLM, SamplingParams
from hspec_trt.serving.openai.schema import ChatRequest, CompletionRequest
from tests.openai.conftest import MAX_ANSWERS
from tests.support.openai_server import Reply, Server

C, CHAT = "/v1/completions", "/v1/chat/completions"
USER = [{"role": "user", "content": "hi"}]
TOOL = {"type": "function", "function": {"name": "f"}}
GOOD: dict[str, Any] = {"prompt": "hello", "temperature": 1.0, "seed": 1, "max_tokens": 8}

BODIES: dict[str, tuple[str, object, str, str | None]] = {
    "not_json": (C, b"{", "R430", None),
    "nothing": (C, b"", "R431", None),
    "not_utf8": (C, b'{"prompt": "\xff"}', "R430", None),
    "number_of_thousands_of_digits": (C, b'{"prompt": "x", "seed": ' + b"9" * 5000 + b"}", "R430", None),
    "nested_without_end": (C, b"[" * 100_000, "R430", None),
    "not_an_object": (C, [1, 2], "R431", None),
    "no_prompt": (C, {}, "R431", "prompt"),
    "prompt_of_another_kind": (C, {"prompt": {"text": "x"}}, "R431", "prompt"),
    "prompt_of_mixed_kinds": (C, {"prompt": ["x", 1]}, "R431", None),
    "unknown_field": (C, {"prompt": "x", "top_pp": 1}, "R431", "top_pp"),
    "number_as_text": (C, {"prompt": "x", "temperature": "1"}, "R431", "temperature"),
    "truth_as_number": (C, {"prompt": "x", "n": True}, "R431", "n"),
    "fraction_as_count": (C, {"prompt": "x", "max_tokens": 1.5}, "R431", "max_tokens"),
    "empty_prompt": (C, {"prompt": []}, "R102", None),
    "token_outside": (C, {"prompt": [256]}, "R103", None),
    "negative_token": (C, {"prompt": [-1]}, "R103", None),
    "token_beyond_64_bits": (C, {"prompt": [2**70]}, "R103", None),
    "too_long": (C, {"prompt": [5] * 400}, "R101", None),
    "too_many_tokens": (C, {"prompt": "x", "max_tokens": 400}, "R101", None),
    "no_tokens": (C, {"prompt": "x", "max_tokens": 0}, "R106", "max_tokens"),
    "half_a_character": (C, b'{"prompt": "\\ud800"}', "R105", None),
    "half_a_character_in_a_word": (C, b'{"prompt": "x", "bad_words": ["\\ud800"]}', "R216", "bad_words"),
    "half_a_character_in_a_stop": (C, b'{"prompt": "x", "stop": "a\\udc00"}', "R206", "stop"),
    "half_a_character_in_a_message": (CHAT, b'{"messages": [{"role": "user", "content": "\\ud800"}]}', "R105", None),
    "half_a_character_in_a_variable": (CHAT, b'{"messages": [{"role": "user", "content": "x"}], '
                                       b'"chat_template_kwargs": {"a": ["\\ud800"]}}', "R107", None),
    "least_above_most_tokens": (C, {"prompt": "x", "min_tokens": 9, "max_tokens": 8}, "R211", "min_tokens"),
    "half_a_character_in_a_name": (C, b'{"prompt": "x", "\\ud800": 1}', "R431", None),
    "temperature": (C, {"prompt": "x", "temperature": -1}, "R201", "temperature"),
    "infinite_temperature": (C, b'{"prompt": "x", "temperature": 1e999}', "R201", "temperature"),
    "nan": (C, b'{"prompt": "x", "top_p": NaN}', "R202", "top_p"),
    "min_p": (C, {"prompt": "x", "min_p": 2}, "R203", "min_p"),
    "top_k": (C, {"prompt": "x", "top_k": -1}, "R204", "top_k"),
    "seed": (C, {"prompt": "x", "seed": -1}, "R205", "seed"),
    "seed_of_thousands_of_digits": (C, {"prompt": "x", "seed": 10**4000}, "R205", "seed"),
    "temperature_of_thousands_of_digits": (C, {"prompt": "x", "temperature": 10**4000}, "R431", "temperature"),
    "bias_of_thousands_of_digits": (C, {"prompt": "x", "logit_bias": {"5": 10**4000}}, "R431", "logit_bias.5"),
    "stop": (C, {"prompt": "x", "stop": [""]}, "R206", "stop"),
    "stop_ids": (C, {"prompt": "x", "stop_token_ids": [999]}, "R207", "stop_token_ids"),
    "drafts": (C, {"prompt": "x", "drafts": "perhaps"}, "R431", "drafts"),
    "num_drafts": (C, {"prompt": "x", "num_drafts": 8}, "R208", None),
    "n": (C, {"prompt": "x", "n": 0}, "R209", "n"),
    "n_of_millions": (C, {"prompt": "x", "n": 10**9}, "R431", "n"),
    "prompts_beyond_the_limit": (C, {"prompt": ["x"] * (MAX_ANSWERS + 1)}, "R431", "n"),
    "repetition": (C, {"prompt": "x", "repetition_penalty": 0}, "R212", "repetition_penalty"),
    "bias_key": (C, {"prompt": "x", "logit_bias": {"a": 1}}, "R215", "logit_bias"),
    "bias_token": (C, {"prompt": "x", "logit_bias": {"300": 1}}, "R215", "logit_bias"),
    "logprobs": (C, {"prompt": "x", "logprobs": 21}, "R217", "logprobs"),
    "echo_with_logprobs": (C, {"prompt": "x", "echo": True, "logprobs": 1}, "R431", "echo"),
    "best_of": (C, {"prompt": "x", "best_of": 3}, "R431", "best_of"),
    "suffix": (C, {"prompt": "x", "suffix": "y"}, "R431", "suffix"),
    "stream_options": (C, {"prompt": "x", "stream_options": {}}, "R431", "stream_options"),
    "schema": (C, {"prompt": "x", "response_format": {"type": "json_schema", "json_schema": {"schema": {"type": 5}}}},
               "R220", None),
    "regex": (C, {"prompt": "x", "response_format": {"type": "regex", "regex": "("}}, "R220", None),
    "grammar": (C, {"prompt": "x", "response_format": {"type": "grammar", "grammar": "nothing"}}, "R220", None),
    "format": (C, {"prompt": "x", "response_format": {"type": "xml"}}, "R431", "response_format"),
    "model": (C, {"prompt": "x", "model": "gpt-7"}, "R438", None),
    "several_at_once": (C, {"prompt": "x", "temperature": -1, "top_k": -1}, "R201", "temperature"),
    "no_messages": (CHAT, {}, "R431", "messages"),
    "empty_messages": (CHAT, {"messages": []}, "R431", "messages"),
    "role": (CHAT, {"messages": [{"role": "king", "content": "x"}]}, "R431", "messages.0.role"),
    "no_content": (CHAT, {"messages": [{"role": "user"}]}, "R431", "messages.0.content"),
    "content_of_another_kind": (CHAT, {"messages": [{"role": "user", "content": 5}]}, "R431", "messages.0.content"),
    "image": (CHAT, {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]},
              "R431", "messages.0.content.0.type"),
    "arguments": (CHAT, {"messages": [{"role": "assistant", "tool_calls": [
        {"id": "1", "type": "function", "function": {"name": "f", "arguments": "{"}}]}]},
        "R431", "messages.0.tool_calls.0.function.arguments"),
    "max_tokens_twice": (CHAT, {"messages": USER, "max_tokens": 1, "max_completion_tokens": 2}, "R431",
                         "max_completion_tokens"),
    "top_logprobs": (CHAT, {"messages": USER, "top_logprobs": 2}, "R431", "top_logprobs"),
    "tool_choice_alone": (CHAT, {"messages": USER, "tool_choice": "required"}, "R442", "tool_choice"),
    "tool_choice_of_none": (CHAT, {"messages": USER, "tools": [TOOL], "tool_choice":
                            {"type": "function", "function": {"name": "g"}}}, "R442", "tool_choice"),
    "tool_and_format": (CHAT, {"messages": USER, "tools": [TOOL], "tool_choice": "required",
                               "response_format": {"type": "json_object"}}, "R442", "tool_choice"),
    "tool_name": (CHAT, {"messages": USER, "tools": [{"type": "function", "function": {"name": "a b"}}]}, "R431",
                  "tools.0.function.name"),
    "functions": (CHAT, {"messages": USER, "functions": []}, "R431", "functions"),
    "audio": (CHAT, {"messages": USER, "modalities": ["audio"]}, "R431", "modalities"),
}  # fmt: skip


def check_shape(reply: Reply, status: int, code: str) -> dict[str, Any]:
    assert reply.status == status, reply.body
    assert set(reply.json) == {"error"}
    error = reply.json["error"]
    assert error["code"] == code, error
    assert set(error) == {"message", "type", "param", "code", "errors"}
    assert error["message"]
    assert "Traceback" not in error["message"]
    return error


STREAMS = [name for name, (_, body, *_) in BODIES.items() if isinstance(body, dict) and "stream_options" not in body]
"""Bodies that could ask for a stream."""


@pytest.mark.parametrize(("name", "stream"), [*((name, False) for name in BODIES), *((name, True) for name in STREAMS)])
def test_a_body_that_cannot_be_served(name: str, stream: bool, server: Server) -> None:
    path, body, code, param = BODIES[name]
    if stream:
        body = body | {"stream": True}
    error = check_shape(server.post(path, body), 404 if code == "R438" else 400, code)
    assert param is None or error["param"] == param
    assert error["type"] == ("not_found_error" if code == "R438" else "invalid_request_error")


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b'{"prompt": "\xff"}', "byte 0xff at 12"),
        (b'{"prompt": "x", "seed": ' + b"9" * 5000 + b"}", "a number with too many digits"),
        (b"[" * 100_000, "nested too deeply"),
        (b"{", "the body is not JSON: "),
        ({"prompt": "x", "top_pp": 1}, "there is no such field (top_pp)"),
        ({"prompt": "x", "temperature": "1"}, "Input should be a valid number (temperature)"),
        (b'{"prompt": "a\\ud800"}', "character 1 of the prompt is half of one, U+D800; needed: Unicode text"),
    ],
)
def test_the_message_says_what_is_wrong_once(body: object, words: str, server: Server) -> None:
    message = server.post(C, body).json["error"]["message"]
    assert words in message
    assert message.count("top_pp") <= 1


def test_every_wrong_field_is_a_fault_of_its_own(server: Server) -> None:
    error = server.post(C, {"prompt": "x", "top_pp": 1, "n": "2"}).json["error"]
    assert [one["code"] for one in error["errors"]] == ["R431", "R431"]
    assert {one["message"].rpartition("(")[2] for one in error["errors"]} == {"top_pp)", "n)"}


def test_all_faults_of_a_request_are_told_together(server: Server) -> None:
    error = server.post(C, {"prompt": "x", "temperature": -1, "top_k": -1, "n": 0}).json["error"]
    assert [one["code"] for one in error["errors"]] == ["R201", "R204", "R209"]


def test_the_largest_allowed_value_is_told_and_true(server: Server) -> None:
    message = server.post(C, {"prompt": "hello", "max_tokens": 500}).json["error"]["message"]
    most = int(message.rsplit(" ", 1)[1])
    assert server.post(C, {"prompt": "hello", "max_tokens": most + 1}).status == 400
    body = {"prompt": "hello", "max_tokens": most, "ignore_eos": True}
    assert server.post(C, body).json["usage"]["total_tokens"] == 400


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/", 404, "R436"),
        ("GET", "/v1", 404, "R436"),
        ("POST", "/v1/embeddings", 404, "R436"),
        ("GET", C, 405, "R437"),
        ("PUT", CHAT, 405, "R437"),
        ("DELETE", "/health", 405, "R437"),
        ("POST", "/metrics", 405, "R437"),
        ("GET", "/v1/models/nobody", 404, "R438"),
    ],
)
def test_paths_and_methods(method: str, path: str, status: int, code: str, server: Server) -> None:
    reply = server.ask(method, path, {} if method == "POST" else None)
    check_shape(reply, status, code)
    assert status != 405 or reply.headers["allow"]


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""])
def test_content_types(kind: str, server: Server) -> None:
    """A page in a browser cannot send application/json here without asking first, and it is never told it may."""
    check_shape(server.post(C, GOOD, headers={"content-type": kind}), 415, "R432")
    asked = {"origin": "http://evil.example", "access-control-request-method": "POST"}
    reply = server.ask("OPTIONS", C, headers=asked)
    assert reply.status == 405
    assert "access-control-allow-origin" not in reply.headers
    assert server.post(C, GOOD, headers={"content-type": "application/json; charset=utf-8"}).status == 200


def test_clients_raise_their_own_errors(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        client.completions.create(model="tiny", prompt="x", temperature=-1)
    assert (caught.value.code, caught.value.param) == ("R201", "temperature")
    with pytest.raises(openai.NotFoundError):
        client.completions.create(model="other", prompt="x")


def test_a_request_keeps_its_id(server: Server) -> None:
    assert server.post(C, GOOD, headers={"x-request-id": "abc-1"}).headers["x-request-id"] == "abc-1"
    for bad in ("a b", "x" * 200, "ä"):
        given = server.post(C, GOOD, headers={"x-request-id": bad.encode("utf-8").decode("latin-1")})
        assert len(given.headers["x-request-id"]) == 24


def test_bad_requests_do_not_touch_good_ones(server: Server, reference: LLM) -> None:
    """Case A20: good requests run while bad ones come in, and after them."""
    from concurrent.futures import ThreadPoolExecutor

    want = reference.generate("hello", SamplingParams(temperature=1.0, seed=1, max_tokens=60, ignore_eos=True))
    body = GOOD | {"max_tokens": 60, "ignore_eos": True}
    with ThreadPoolExecutor(12) as pool:
        good = [pool.submit(server.post, C, body) for _ in range(6)]
        bad = [pool.submit(server.post, path, body) for path, body, _, _ in BODIES.values()]
        assert {job.result().status for job in bad} == {400, 404}
        assert {job.result().json["choices"][0]["text"] for job in good} == {want.outputs[0].text}


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=6,
)
FIELDS = st.sampled_from(sorted((CompletionRequest.model_fields | ChatRequest.model_fields).keys()))


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(path=st.sampled_from([C, CHAT]), changes=st.dictionaries(FIELDS, ANYTHING, min_size=1, max_size=3))
def test_whatever_fields_hold_the_server_answers_in_form(path: str, changes: dict[str, Any], server: Server) -> None:
    base = {"max_tokens": 2, **({"prompt": "x"} if path == C else {"messages": USER})}
    reply = server.post(path, json.dumps(base | changes).encode())
    if reply.status == 200:
        assert reply.events if changes.get("stream") is True else reply.json["choices"]
    else:
        assert reply.status in (400, 404), reply.body
        check_shape(reply, reply.status, reply.code)
        assert reply.code.startswith("R")


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.binary(max_size=80))
def test_whatever_bytes_a_body_holds_it_is_refused_in_form(data: bytes, server: Server) -> None:
    reply = server.post(C, data)
    assert check_shape(reply, 400, reply.code)["code"] in ("R430", "R431")

# SPDX-License-Identifier: Apache-2.0
"""The server and ``curl``: replies, streams, tools, keys of errors, files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from hspec_trt import LLM, SamplingParams
from tests.openai.test_chat import MESSAGES, PLAIN, SEEDED, TOOLS
from tests.support.curl import curl, events_of, reply_of
from tests.support.openai_server import Server

CHAT: dict[str, Any] = {"messages": MESSAGES, **SEEDED}


def test_a_completion(server: Server, reference: LLM) -> None:
    want = reference.generate("hello", SamplingParams(seed=1, max_tokens=12)).outputs[0].text
    made = reply_of(curl(f"{server.url}/v1/completions", {"prompt": "hello", "seed": 1, "max_tokens": 12}))
    assert made["choices"][0]["text"] == want


def test_a_body_from_a_file(server: Server, reference: LLM, tmp_path: Path) -> None:
    path = tmp_path / "body.json"
    path.write_text(json.dumps(CHAT), encoding="utf-8")
    made = reply_of(curl(f"{server.url}/v1/chat/completions", f"@{path}"))
    assert made["choices"][0]["message"]["content"] == reference.chat(MESSAGES, PLAIN).outputs[0].text


def test_a_stream(server: Server, reference: LLM) -> None:
    events = events_of(curl(f"{server.url}/v1/chat/completions", CHAT | {"stream": True}))
    text = "".join(event["choices"][0]["delta"].get("content") or "" for event in events)
    assert text == reference.chat(MESSAGES, PLAIN).outputs[0].text
    assert events[-1]["choices"][0]["finish_reason"] in ("stop", "length")


def test_a_call_of_a_tool(server: Server) -> None:
    """Whole and streamed: the same call of the tool that was demanded."""
    choice = {"type": "function", "function": {"name": "weather"}}
    body = CHAT | {"tools": TOOLS, "tool_choice": choice, "max_completion_tokens": 200}
    call = reply_of(curl(f"{server.url}/v1/chat/completions", body))["choices"][0]["message"]["tool_calls"][0]
    assert call["function"]["name"] == "weather"
    assert json.loads(call["function"]["arguments"])["unit"] in ("C", "F")
    events = events_of(curl(f"{server.url}/v1/chat/completions", body | {"stream": True}))
    pieces = [piece for event in events for piece in event["choices"][0]["delta"].get("tool_calls") or []]
    arguments = "".join(piece["function"].get("arguments") or "" for piece in pieces)
    assert pieces[0]["function"]["name"] == "weather"
    assert arguments == call["function"]["arguments"]


def test_what_is_read_without_a_body(server: Server) -> None:
    assert {model["id"] for model in reply_of(curl(f"{server.url}/v1/models"))["data"]} == {"tiny", "alias"}
    assert curl(f"{server.url}/health").returncode == 0
    assert "hspec_num_requests_running" in curl(f"{server.url}/metrics").stdout


def test_refusals_end_with_an_error_of_curl_and_the_reason(server: Server) -> None:
    """Malformed JSON, a wrong type, and a body that is not called JSON."""
    url = f"{server.url}/v1/completions"
    plain = curl(url, None, "--data-binary", "{}", "--header", "Content-Type: text/plain")
    for result, code in (
        (curl(url, '{"prompt": '), "R430"),
        (curl(url, {"prompt": "x", "n": "2"}), "R431"),
        (plain, "R432"),
        (curl(f"{server.url}/v1/nothing"), "R436"),
    ):
        assert result.returncode == 22
        assert json.loads(result.stdout)["error"]["code"] == code

# SPDX-License-Identifier: Apache-2.0
"""Chat completions through OpenAI's own client: text, streams, tools, and formats that the answer must have."""

from __future__ import annotations

import json
from typing import Any

import openai
import pytest

from hspec_trt import LLM, SamplingParams
from tests.support.openai_server import Server

MESSAGES: list[Any] = [{"role": "system", "content": "be brief"}, {"role": "user", "content": "hi"}]
SEEDED: dict[str, Any] = {"temperature": 1.0, "seed": 1, "max_completion_tokens": 20}
PLAIN = SamplingParams(temperature=1.0, seed=1, max_tokens=20)
TOOLS: list[Any] = [
    {
        "type": "function",
        "function": {
            "name": name,
            "description": "a tool",
            "parameters": {
                "type": "object",
                "properties": {"unit": {"enum": ["C", "F"]}},
                "required": ["unit"],
                "additionalProperties": False,
            },
        },
    }
    for name in ("weather", "time")
]


def test_text_is_that_of_python(client: openai.OpenAI, reference: LLM) -> None:
    want = reference.chat(MESSAGES, PLAIN).outputs[0]
    made = client.chat.completions.create(model="tiny", messages=MESSAGES, **SEEDED)
    choice = made.choices[0]
    assert (choice.message.role, choice.message.content) == ("assistant", want.text)
    assert choice.finish_reason == ("length" if want.finish_reason == "length" else "stop")
    assert made.usage is not None
    assert made.usage.completion_tokens == len(want.token_ids)
    assert made.usage.prompt_tokens == len(reference.chat_ids(MESSAGES))


def test_stream_is_the_text(client: openai.OpenAI, reference: LLM) -> None:
    want = reference.chat(MESSAGES, PLAIN).outputs[0]
    chunks = list(
        client.chat.completions.create(
            model="tiny", messages=MESSAGES, stream=True, stream_options={"include_usage": True}, **SEEDED
        )
    )
    assert chunks[0].choices[0].delta.role == "assistant"
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices) == want.text
    assert [chunk.choices[0].finish_reason for chunk in chunks[:-1]].count(None) == len(chunks) - 2
    assert chunks[-1].choices == []
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.completion_tokens == len(want.token_ids)


async def _gather(client: openai.AsyncOpenAI, count: int) -> list[str]:
    import asyncio

    async def one(seed: int) -> str:
        stream = await client.chat.completions.create(
            model="tiny", messages=MESSAGES, stream=True, temperature=1.0, seed=seed, max_tokens=20
        )
        return "".join([chunk.choices[0].delta.content or "" async for chunk in stream])

    return await asyncio.gather(*(one(seed) for seed in range(count)))


def test_many_streams_at_once_do_not_mix(server: Server, reference: LLM) -> None:
    """Case E2 over HTTP: more streams than rows; each gives its own text."""
    import asyncio

    async def run() -> list[str]:
        async with openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key="x", max_retries=0) as client:
            return await _gather(client, 20)

    texts = asyncio.run(run())
    params = [SamplingParams(temperature=1.0, seed=seed, max_tokens=20) for seed in range(20)]
    assert texts == [output.outputs[0].text for output in reference.chat([MESSAGES] * 20, params)]


def test_parts_and_developer_messages_are_plain_text(client: openai.OpenAI, reference: LLM) -> None:
    parts: list[Any] = [
        {"role": "developer", "content": "be brief"},
        {"role": "user", "content": [{"type": "text", "text": "h"}, {"type": "text", "text": "i"}]},
    ]
    made = client.chat.completions.create(model="tiny", messages=parts, **SEEDED)
    assert made.choices[0].message.content == reference.chat(MESSAGES, PLAIN).outputs[0].text


def test_log_probabilities(client: openai.OpenAI, reference: LLM) -> None:
    want = reference.chat(MESSAGES, SamplingParams(temperature=0.0, max_tokens=8, logprobs=2)).outputs[0]
    made = client.chat.completions.create(
        model="tiny", messages=MESSAGES, temperature=0, max_tokens=8, logprobs=True, top_logprobs=2
    )
    content = made.choices[0].logprobs.content  # type: ignore[union-attr]
    assert content is not None
    assert [one.logprob for one in content] == pytest.approx(want.logprobs, abs=1e-6)
    assert reference.tokenizer is not None
    assert [bytes(one.bytes or []) for one in content] == [reference.tokenizer.token_bytes(i) for i in want.token_ids]
    for one, tops in zip(content, want.top_logprobs, strict=True):
        assert [top.logprob for top in one.top_logprobs] == pytest.approx([value for _, value in tops], abs=1e-6)
    bare = client.chat.completions.create(model="tiny", messages=MESSAGES, max_tokens=3, logprobs=True)
    assert all(one.top_logprobs == [] for one in bare.choices[0].logprobs.content or [])  # type: ignore[union-attr]


@pytest.mark.parametrize("drafts", ["on", "off"])
def test_json_of_a_schema(client: openai.OpenAI, drafts: str) -> None:
    """Case F14 over HTTP: whatever the model and its drafts want, the text fits the schema."""
    schema = {
        "type": "object",
        "properties": {"ok": {"type": "boolean"}, "n": {"enum": [1, 22, 333]}},
        "required": ["ok", "n"],
        "additionalProperties": False,
        "x-guidance": {"whitespace_flexible": False},
    }
    made = client.chat.completions.create(
        model="tiny",
        messages=MESSAGES,
        seed=4,
        max_tokens=60,
        response_format={"type": "json_schema", "json_schema": {"name": "x", "schema": schema, "strict": True}},
        extra_body={"drafts": drafts},
    )
    told = json.loads(made.choices[0].message.content or "")
    assert set(told) == {"ok", "n"}
    assert made.choices[0].finish_reason == "stop"


@pytest.mark.parametrize("choice", ["required", {"type": "function", "function": {"name": "time"}}])
def test_a_call_that_is_demanded(choice: Any, client: openai.OpenAI) -> None:
    made = client.chat.completions.create(
        model="tiny", messages=MESSAGES, tools=TOOLS, tool_choice=choice, seed=3, max_tokens=120
    )
    assert made.choices[0].finish_reason == "tool_calls"
    message = made.choices[0].message
    assert message.content is None
    (call,) = message.tool_calls or []
    assert call.type == "function"
    assert call.function.name in ({"weather", "time"} if choice == "required" else {"time"})
    assert json.loads(call.function.arguments)["unit"] in ("C", "F")
    following = [*MESSAGES, message, {"role": "tool", "tool_call_id": call.id, "content": "7 C"}]
    again = client.chat.completions.create(model="tiny", messages=following, tools=TOOLS, max_tokens=4)
    assert again.usage is not None
    assert again.usage.prompt_tokens > (made.usage.prompt_tokens if made.usage else 0)


def test_a_call_in_a_stream(client: openai.OpenAI) -> None:
    stream = client.chat.completions.create(
        model="tiny", messages=MESSAGES, tools=TOOLS, tool_choice="required", seed=3, max_tokens=120, stream=True
    )
    deltas = [chunk.choices[0] for chunk in stream]
    calls = [call for one in deltas for call in one.delta.tool_calls or []]
    assert "".join(one.delta.content or "" for one in deltas) == ""
    assert [call.index for call in calls] == [0]
    assert calls[0].id
    assert json.loads(calls[0].function.arguments)["unit"] in ("C", "F")  # type: ignore[union-attr, arg-type]
    assert deltas[-1].finish_reason == "tool_calls"


def test_tools_are_shown_to_the_model_unless_the_request_says_none(server: Server) -> None:
    body = {"messages": MESSAGES, "max_tokens": 1}
    counts = [
        server.post("/v1/chat/completions", body | more).json["usage"]["prompt_tokens"]
        for more in ({}, {"tools": TOOLS, "tool_choice": "none"}, {"tools": TOOLS}, {"tools": TOOLS[:1]})
    ]
    assert counts[0] == counts[1] < counts[3] < counts[2]


def test_several_answers(client: openai.OpenAI, reference: LLM) -> None:
    params = SamplingParams(temperature=1.0, seed=1, max_tokens=20, n=3)
    want = [answer.text for answer in reference.generate(reference.chat_ids(MESSAGES), params).outputs]
    made = client.chat.completions.create(model="tiny", messages=MESSAGES, n=3, **SEEDED)
    assert [choice.message.content for choice in made.choices] == want
    texts = ["", "", ""]
    for chunk in client.chat.completions.create(model="tiny", messages=MESSAGES, n=3, stream=True, **SEEDED):
        texts[chunk.choices[0].index] += chunk.choices[0].delta.content or ""
    assert texts == want

# SPDX-License-Identifier: Apache-2.0
"""SmolLM2-135M-Instruct with its trained drafter behind the server: OpenAI's client and ``curl``, streams and tools."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest

from hspec_trt import LLM, RuntimeOptions, SamplingParams
from hspec_trt.config.build import BuildConfig
from hspec_trt.pipeline import build
from hspec_trt.runtime.chat import ChatTemplate
from tests.openai.test_chat import TOOLS
from tests.support.curl import curl, events_of, reply_of
from tests.support.openai_server import Server, serving
from tests.support.smollm2 import smollm2_gguf

pytestmark = pytest.mark.slow

DRAFTER = Path(__file__).parents[2] / "examples" / "smollm2_hspec"
CHATML = (
    "{% if tools %}<|im_start|>system\nAnswer with <tool_call>\n{"
    '"name": .., "arguments": {..}}\n</tool_call> to call one of:\n'
    "{% for tool in tools %}{{ tool.function | tojson }}\n{% endfor %}<|im_end|>\n{% endif %}"
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
"""The model's layout, with tools, which its own template does not know."""
MESSAGES: list[Any] = [{"role": "user", "content": "Name three colours of the rainbow."}]
GREEDY = SamplingParams(temperature=0.0, max_tokens=40, drafts="off")
SAMPLED = SamplingParams(temperature=0.8, top_p=0.9, seed=5, max_tokens=40, drafts="off")
ASKED: list[tuple[SamplingParams, dict[str, Any]]] = [
    (GREEDY, {"temperature": 0.0, "max_tokens": 40}),
    (SAMPLED, {"temperature": 0.8, "top_p": 0.9, "seed": 5, "max_tokens": 40}),
]


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("smollm2") / "smollm2"
    build(smollm2_gguf(), DRAFTER, folder, BuildConfig(max_batch_size=8, max_seq_len=1024, max_num_tokens=256))
    return folder


@pytest.fixture(scope="module")
def reference(engine: Path) -> Iterator[LLM]:
    """The same engine without a server, drafts off."""
    with LLM(engine, RuntimeOptions(num_threads=1, kv_cache_memory=1 << 28)) as llm:
        assert llm.chat_template is not None
        llm.chat_template = ChatTemplate({"default": CHATML}, llm.chat_template.special_tokens)
        yield llm


@pytest.fixture(scope="module")
def server(engine: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("served")
    (folder / "chatml.jinja").write_text(CHATML, encoding="utf-8")
    options = ["--kv-cache-memory", "256MiB", "--chat-template", str(folder / "chatml.jinja")]
    with serving(engine, folder / "log", *options) as running:
        yield running


@pytest.fixture(scope="module")
def client(server: Server) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0, timeout=300) as made:
        yield made


@pytest.mark.parametrize("drafts", ["off", "on", "auto"])
@pytest.mark.parametrize(("params", "fields"), ASKED, ids=["greedy", "sampled"])
def test_the_client_gets_the_text_of_python(
    params: SamplingParams, fields: dict[str, Any], drafts: str, client: openai.OpenAI, reference: LLM
) -> None:
    want, body = reference.chat(MESSAGES, params).outputs[0], {"drafts": drafts}
    made = client.chat.completions.create(model="smollm2", messages=MESSAGES, extra_body=body, **fields)
    assert made.choices[0].message.content == want.text
    stream = client.chat.completions.create(model="smollm2", messages=MESSAGES, stream=True, extra_body=body, **fields)
    assert "".join(chunk.choices[0].delta.content or "" for chunk in stream) == want.text


@pytest.mark.parametrize(("params", "fields"), ASKED, ids=["greedy", "sampled"])
def test_curl_gets_the_text_of_python(
    params: SamplingParams, fields: dict[str, Any], server: Server, reference: LLM
) -> None:
    want, body = reference.chat(MESSAGES, params).outputs[0].text, {"messages": MESSAGES, "drafts": "on", **fields}
    url = f"{server.url}/v1/chat/completions"
    assert reply_of(curl(url, body))["choices"][0]["message"]["content"] == want
    events = events_of(curl(url, body | {"stream": True}))
    assert "".join(event["choices"][0]["delta"].get("content") or "" for event in events) == want


def test_a_tool_by_the_client_and_by_curl(client: openai.OpenAI, server: Server) -> None:
    """A call that is demanded is the same whole and in pieces, with drafts and without, whoever asks."""
    fields: dict[str, Any] = {"temperature": 0.0, "max_tokens": 80, "tools": TOOLS, "tool_choice": "required"}
    question: list[Any] = [{"role": "user", "content": "How warm is it in Paris?"}]
    made = client.chat.completions.create(model="smollm2", messages=question, extra_body={"drafts": "off"}, **fields)
    call = made.choices[0].message.tool_calls[0].function  # type: ignore[index, union-attr]
    assert call.name in ("weather", "time")
    assert json.loads(call.arguments)["unit"] in ("C", "F")
    body = {"messages": question, "drafts": "on", **fields}
    url = f"{server.url}/v1/chat/completions"
    message = reply_of(curl(url, body))["choices"][0]["message"]
    assert message["tool_calls"][0]["function"] == {"name": call.name, "arguments": call.arguments}
    pieces = [
        piece["function"]
        for event in events_of(curl(url, body | {"stream": True}))
        for piece in event["choices"][0]["delta"].get("tool_calls") or []
    ]
    assert pieces[0]["name"] == call.name
    assert "".join(piece.get("arguments") or "" for piece in pieces) == call.arguments


def test_drafts_are_accepted(server: Server) -> None:
    body = {"messages": MESSAGES, "drafts": "on", "temperature": 0.0, "max_tokens": 40}
    reply_of(curl(f"{server.url}/v1/chat/completions", body))
    assert server.metric("hspec_spec_decode_num_accepted_tokens_total") > 0

# SPDX-License-Identifier: Apache-2.0
"""Chat templates render as transformers renders them, inside a sandbox."""

from __future__ import annotations

import json
from datetime import datetime

import pytest

from hspec_trt.errors import LoadError, RequestError
from hspec_trt.runtime.chat import ChatTemplate, Message

CHATML = """{% for message in messages %}
<|im_start|>{{ message['role'] }}
{{ message['content'] }}<|im_end|>
{% endfor %}
{% if add_generation_prompt %}
<|im_start|>assistant
{% endif %}"""
MESSAGES: list[Message] = [{"role": "system", "content": "be brief"}, {"role": "user", "content": "hé <b>"}]
TOOLS: list[Message] = [{"type": "function", "function": {"name": "f", "parameters": {"z": 1, "a": "é"}}}]


def template(source: str, **config: object) -> ChatTemplate:
    files = {"tokenizer_config.json": json.dumps({"chat_template": source, **config}).encode()}
    found = ChatTemplate.from_files(files)
    assert found is not None
    return found


def test_blocks_are_trimmed() -> None:
    expected = "<|im_start|>system\nbe brief<|im_end|>\n<|im_start|>user\nhé <b><|im_end|>\n<|im_start|>assistant\n"
    assert template(CHATML).render(MESSAGES) == expected
    assert template(CHATML).render(MESSAGES, add_generation_prompt=False) == expected[: -len("<|im_start|>assistant\n")]


def test_helpers_that_templates_use() -> None:
    assert template("{{ tools | tojson }}").render(MESSAGES, tools=TOOLS) == json.dumps(TOOLS, ensure_ascii=False)
    assert template("{{ strftime_now('%Y') }}").render(MESSAGES) == str(datetime.now().year)
    assert template("{{ tools is none }}").render(MESSAGES) == "True"
    loop = "{% for m in messages %}{% if loop.index == 2 %}{% break %}{% endif %}{{ m.role }}{% endfor %}"
    assert template(loop).render(MESSAGES) == "system"
    assert template("a{% generation %}b{% endgeneration %}c").render(MESSAGES) == "abc"
    with pytest.raises(RequestError, match=r"R107.*only user roles"):
        template("{{ raise_exception('only user roles') }}").render(MESSAGES)


def test_special_tokens_are_strings_or_entries() -> None:
    made = template("{{ bos_token }}|{{ eos_token }}", bos_token="<s>", eos_token={"content": "</s>", "special": True})
    assert made.render(MESSAGES) == "<s>|</s>"


def test_named_templates_and_the_file_that_goes_first() -> None:
    named = [{"name": "default", "template": "D"}, {"name": "tool_use", "template": "T"}]
    made = template(named)  # type: ignore[arg-type]
    assert made.render(MESSAGES) == "D"
    assert made.render(MESSAGES, tools=TOOLS) == "T"
    files = {"tokenizer_config.json": b'{"chat_template": "old"}', "chat_template.jinja": b"new"}
    newer = ChatTemplate.from_files(files)
    assert newer is not None
    assert newer.render(MESSAGES) == "new"


def test_no_template() -> None:
    assert ChatTemplate.from_files({}) is None
    assert ChatTemplate.from_files({"tokenizer_config.json": b"{}"}) is None


@pytest.mark.parametrize("source", ["{{ messages.__class__.__mro__ }}", "{{ messages.append(1) }}", "{{ 'a' + 1 }}"])
def test_sandbox_and_faults_end_one_request(source: str) -> None:
    with pytest.raises(RequestError) as caught:
        template(source + "{{ x.y.z }}").render(MESSAGES)
    assert caught.value.code == "R107"


def test_broken_files_are_load_faults() -> None:
    with pytest.raises(LoadError, match="L021"):
        ChatTemplate.from_files({"tokenizer_config.json": b"{"})
    with pytest.raises(LoadError, match="L021"):
        template("{% for %}")


def test_same_text_as_transformers() -> None:
    render_jinja_template = pytest.importorskip("transformers.utils.chat_template_utils").render_jinja_template
    source = CHATML + "{{ tools | tojson(indent=2) }}{{ bos_token }}"
    theirs, _ = render_jinja_template(
        [MESSAGES], tools=TOOLS, chat_template=source, add_generation_prompt=True, bos_token="<s>"
    )
    assert template(source, bos_token="<s>").render(MESSAGES, tools=TOOLS) == theirs[0]

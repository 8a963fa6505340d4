# SPDX-License-Identifier: Apache-2.0
"""Tool calls in texts: read the same however the text is cut, and never lost or invented."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hspec_trt.errors import RequestError
from hspec_trt.runtime.chat import ChatTemplate
from hspec_trt.serving.openai.schema import Function
from hspec_trt.serving.openai.tools import FORMATS, ParsedCall, find_format

llguidance = pytest.importorskip("llguidance")
ONE = '<tool_call>\n{"name": "f", "arguments": {"x": 1}}\n</tool_call>'
TWO = '{"name": "f", "parameters": {"x": 1}}; {"name": "g", "parameters": {}}'

HERMES = {
    "nothing": ("just text", "just text", []),
    "one": (ONE, "", [("f", {"x": 1})]),
    "text_before": ("Let me see.\n\n" + ONE, "Let me see.", [("f", {"x": 1})]),
    "text_after": (ONE + "\nDone.", "\nDone.", [("f", {"x": 1})]),
    "two": (ONE + "\n" + ONE.replace('"f"', '"g"'), "", [("f", {"x": 1}), ("g", {"x": 1})]),
    "list": ('<tool_call>[{"name": "f", "arguments": {}}, {"name": "g", "arguments": {}}]</tool_call>', "",
             [("f", {}), ("g", {})]),
    "no_arguments": ('<tool_call>{"name": "f"}</tool_call>', "", [("f", {})]),
    "arguments_as_text": ('<tool_call>{"name": "f", "arguments": "{\\"x\\": 2}"}</tool_call>', "", [("f", {"x": 2})]),
    "cut_after_the_call": ('<tool_call>{"name": "f", "arguments": {}}', "", [("f", {})]),
    "cut_inside": ('<tool_call>{"name": "f", "argu', '<tool_call>{"name": "f", "argu', []),
    "not_json": ("<tool_call>f(1)</tool_call>.", "<tool_call>f(1)</tool_call>.", []),
    "not_a_call": ("<tool_call>[1, 2]</tool_call>", "<tool_call>[1, 2]</tool_call>", []),
    "deep": ("<tool_call>" + "[" * 5000 + "</tool_call>", "<tool_call>" + "[" * 5000 + "</tool_call>", []),
    "almost_a_mark": ("a <tool_cal b", "a <tool_cal b", []),
    "spaces_at_the_end": ("a \n ", "a \n ", []),
    "umlauts": ('<tool_call>{"name": "f", "arguments": {"ort": "Köln"}}</tool_call>', "", [("f", {"ort": "Köln"})]),
}  # fmt: skip
LLAMA = {
    "text": ("It is 7 degrees.", "It is 7 degrees.", []),
    "one": ('{"name": "f", "parameters": {"x": 1}}', "", [("f", {"x": 1})]),
    "two": (TWO, "", [("f", {"x": 1}), ("g", {})]),
    "spaces": ('\n {"name": "f", "parameters": {}} ', "", [("f", {})]),
    "json_that_is_no_call": ('{"a": 1}', '{"a": 1}', []),
    "text_after": ('{"name": "f", "parameters": {}} ok', '{"name": "f", "parameters": {}} ok', []),
    "cut": ('{"name": "f", "par', '{"name": "f", "par', []),
}


def read(name: str, text: str, cuts: list[int]) -> tuple[str, list[tuple[str, object]]]:
    reader = FORMATS[name].reader()
    places = [0, *sorted(cut % (len(text) + 1) for cut in cuts), len(text)]
    found = [one for start, end in zip(places, places[1:]) for one in reader.push(text[start:end])]  # noqa: B905, RUF007
    found += reader.flush()
    calls = [one for one in found if isinstance(one, ParsedCall)]
    assert len({call.id for call in calls}) == len(calls)
    said = "".join(one for one in found if isinstance(one, str))
    return said, [(call.name, json.loads(call.arguments)) for call in calls]


@given(cuts=st.lists(st.integers(0, 200), max_size=12), case=st.sampled_from(sorted(HERMES)))
def test_hermes_calls_however_the_text_is_cut(cuts: list[int], case: str) -> None:
    text, said, calls = HERMES[case]
    assert read("hermes", text, cuts) == (said, calls)


@given(cuts=st.lists(st.integers(0, 200), max_size=12), case=st.sampled_from(sorted(LLAMA)))
def test_llama_calls_however_the_text_is_cut(cuts: list[int], case: str) -> None:
    text, said, calls = LLAMA[case]
    assert read("llama3_json", text, cuts) == (said, calls)


@given(text=st.text(alphabet='<tool_cal>/{}" \n:a,', max_size=60), cuts=st.lists(st.integers(0, 60), max_size=6))
def test_any_text_is_read_the_same_however_it_is_cut(text: str, cuts: list[int]) -> None:
    for name in FORMATS:
        assert read(name, text, cuts) == read(name, text, [])


def test_text_is_not_held_back_longer_than_it_must() -> None:
    reader = FORMATS["hermes"].reader()
    assert reader.push("Hello, wor") == ["Hello, wor"]
    assert reader.push("ld <") == ["ld"]
    assert reader.push("3") == [" <3"]


def test_formats_by_what_the_template_asks_for() -> None:
    def template(**sources: str) -> ChatTemplate:
        return ChatTemplate(sources, {})

    hermes = "{% if tools %}within <tool_call></tool_call>{% endif %}"
    llama = '{% if tools %}Respond in the format {"name": n, "parameters": p}{% endif %}'
    assert find_format("auto", template(default=hermes)) is FORMATS["hermes"]
    assert find_format("auto", template(default=llama)) is FORMATS["llama3_json"]
    assert find_format("auto", template(default="{{ messages }}")) is None
    assert find_format("auto", template(default="{{ messages }}", tool_use=hermes)) is FORMATS["hermes"]
    assert find_format("auto", None) is None
    assert find_format("none", template(default=hermes)) is None
    assert find_format("llama3_json", template(default=hermes)) is FORMATS["llama3_json"]


def functions(**parameters: object) -> list[Function]:
    return [Function(name=name, parameters=schema) for name, schema in parameters.items()]  # type: ignore[arg-type]


OBJECT = {
    "type": "object",
    "properties": {"x": {"$ref": "#/$defs/n"}},
    "required": ["x"],
    "$defs": {"n": {"enum": [1]}},
}


@pytest.mark.parametrize("name", FORMATS)
def test_a_text_of_the_grammar_is_a_call(name: str) -> None:
    """Definitions that a function's schema refers to are found where the grammar looks for them."""
    grammar = FORMATS[name].grammar(functions(f=OBJECT, g={"type": "object"}))
    assert not llguidance.LLMatcher.validate_grammar(grammar, None)
    text = '<tool_call>\n{"name": "f", "arguments": {"x": 1}}\n</tool_call>' if name == "hermes" else (
        '{"name": "f", "parameters": {"x": 1}}'
    )  # fmt: skip
    assert read(name, text, []) == ("", [("f", {"x": 1})])


def test_definitions_that_differ_are_refused() -> None:
    other = OBJECT | {"$defs": {"n": {"enum": [2]}}}
    assert FORMATS["hermes"].grammar(functions(f=OBJECT, g=OBJECT))
    with pytest.raises(RequestError, match="R442"):
        FORMATS["hermes"].grammar(functions(f=OBJECT, g=other))

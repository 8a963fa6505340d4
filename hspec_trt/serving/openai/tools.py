# SPDX-License-Identifier: Apache-2.0
"""How models write tool calls in their text, and how to make one write a call: one class a format.

A format is recognised by what the chat template asks of the model; readers take text as it streams and hold back what
may become a call. Templates and requests are elsewhere.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from hspec_trt.errors import RequestError
from hspec_trt.runtime.chat import ChatTemplate, Json
from hspec_trt.serving.openai.options import ToolFormatName
from hspec_trt.serving.openai.schema import Function


def _new_id() -> str:
    return f"call_{secrets.token_hex(12)}"


@dataclass(frozen=True)
class ParsedCall:
    """A call in a text; `arguments` is JSON text."""

    name: str
    arguments: str
    id: str = field(default_factory=_new_id)


_LAYOUT: Final[dict[str, Json]] = {"whitespace_flexible": False, "key_separator": ": ", "item_separator": ", "}
"""A grammar that lets a model write as much white space as it likes lets a weak one write nothing else."""

Found = str | ParsedCall


class ToolReader(Protocol):
    """Takes one answer's text apart."""

    def push(self, text: str) -> list[Found]:
        """Add text; returns plain text and calls in order, as far as they are certain."""

    def flush(self) -> list[Found]:
        """What was held back, once no text follows."""


class ToolFormat(Protocol):
    """One way to write calls."""

    def reader(self) -> ToolReader:
        """A reader for one answer."""

    def grammar(self, functions: Sequence[Function]) -> str:
        """Grammar (Lark) of a text that is one call of one of the functions."""


class Hermes:
    """``<tool_call>{"name": .., "arguments": {..}}</tool_call>`` anywhere in the text: Hermes, Qwen, SmolLM.

    A list of calls between the marks is taken as several.
    """

    OPEN: Final = "<tool_call>"
    CLOSE: Final = "</tool_call>"

    def reader(self) -> ToolReader:
        """A reader for one answer."""
        return _MarkedReader(self.OPEN, self.CLOSE)

    def grammar(self, functions: Sequence[Function]) -> str:
        """One call between the marks."""
        schema = json.dumps(_call_schema(functions, "arguments"))
        return f'start: "{self.OPEN}\\n" call "\\n{self.CLOSE}"\ncall: %json {schema}\n'


class Llama3Json:
    """The whole text is ``{"name": .., "parameters": {..}}``, or several of them with ``;`` between: Llama 3."""

    def reader(self) -> ToolReader:
        """A reader for one answer."""
        return _WholeReader()

    def grammar(self, functions: Sequence[Function]) -> str:
        """One call."""
        return f"start: %json {json.dumps(_call_schema(functions, 'parameters'))}\n"


FORMATS: Final[Mapping[str, ToolFormat]] = {"hermes": Hermes(), "llama3_json": Llama3Json()}


def find_format(name: ToolFormatName, template: ChatTemplate | None) -> ToolFormat | None:
    """The format by its name; "auto" takes what the template asks the model for, None where it knows no tools."""
    if name != "auto":
        return FORMATS.get(name)
    text = "" if template is None else template.sources.get("tool_use", template.sources["default"])
    if "tools" not in text:
        return None
    if Hermes.OPEN in text:
        return FORMATS["hermes"]
    return FORMATS["llama3_json"] if "parameters" in text else None


class _MarkedReader:
    def __init__(self, opening: str, closing: str) -> None:
        self._open, self._close = opening, closing
        self._held = ""
        self._inside = False

    def push(self, text: str) -> list[Found]:
        self._held += text
        found: list[Found] = []
        while True:
            mark = self._close if self._inside else self._open
            at = self._held.find(mark)
            if at < 0:
                break
            before, self._held = self._held[:at], self._held[at + len(mark) :]
            if self._inside:
                found += self._read(before, self._close)
            elif before.strip():
                found.append(before.rstrip())
            self._inside = not self._inside
        if not self._inside:
            found += self._let_go()
        return found

    def flush(self) -> list[Found]:
        rest, self._held = self._held, ""
        if self._inside:
            return self._read(rest, "")
        return [rest] if rest else []

    def _read(self, inside: str, end: str) -> list[Found]:
        """The calls between two marks; the text as it is where there are none."""
        return list(_calls(inside)) or [self._open + inside + end]

    def _let_go(self) -> list[Found]:
        """Text that cannot belong to a mark; white space before one is not part of the text either."""
        body = self._held.rstrip()
        sizes = range(min(len(self._open) - 1, len(self._held)), 0, -1)
        partial = next((size for size in sizes if self._open.startswith(self._held[-size:])), 0)
        cut = len(self._held[: len(self._held) - partial].rstrip()) if partial else len(body)
        out, self._held = self._held[:cut], self._held[cut:]
        return [out] if out else []


class _WholeReader:
    def __init__(self) -> None:
        self._held = ""
        self._is_text = False

    def push(self, text: str) -> list[Found]:
        self._held += text
        start = self._held.lstrip()
        self._is_text = self._is_text or (bool(start) and not start.startswith("{"))
        return self._release() if self._is_text else []

    def flush(self) -> list[Found]:
        return list(_call_line(self._held)) or self._release()

    def _release(self) -> list[Found]:
        text, self._held = self._held, ""
        return [text] if text else []


def _calls(text: str) -> list[ParsedCall]:
    """The call or calls that a JSON text holds; none where it is something else."""
    try:
        return _calls_of(json.loads(text))
    except (ValueError, RecursionError):
        return []


def _call_line(text: str) -> list[ParsedCall]:
    """Calls with ``;`` between; none where anything else is there."""
    decoder, calls, rest = json.JSONDecoder(), [], text.strip()
    while rest:
        try:
            entry, end = decoder.raw_decode(rest)
        except (ValueError, RecursionError):
            return []
        found = _calls_of(entry)
        rest = rest[end:].lstrip()
        if not found or (rest and not rest.startswith(";")):
            return []
        calls += found
        rest = rest[1:].lstrip()
    return calls


def _calls_of(entry: object) -> list[ParsedCall]:
    calls = []
    for one in entry if isinstance(entry, list) else [entry]:
        if not isinstance(one, dict) or not isinstance(one.get("name"), str):
            return []
        arguments = one.get("arguments", one.get("parameters", {}))
        text = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
        calls.append(ParsedCall(one["name"], text))
    return calls


def _call_schema(functions: Sequence[Function], arguments: str) -> dict[str, Json]:
    """JSON schema of a call of one of the functions.

    Raises:
        RequestError: R442, two functions have definitions of one name.
    """
    definitions: dict[str, Json] = {}
    choices: list[Json] = []
    for function in functions:
        schema = dict(function.parameters or {"type": "object"})
        for name, definition in _definitions(schema.pop("$defs", None)).items():
            if definitions.setdefault(name, definition) != definition:
                found = f"two tools have a definition {name!r} in $defs, and they differ"
                raise RequestError("R442", found, where="tools", fix="Give them two names")
        choices.append(
            {
                "type": "object",
                "properties": {"name": {"const": function.name}, arguments: schema},
                "required": ["name", arguments],
                "additionalProperties": False,
            }
        )
    made: dict[str, Json] = {"anyOf": choices, "x-guidance": _LAYOUT}
    if definitions:
        made["$defs"] = definitions
    return made


def _definitions(entry: object) -> dict[str, Json]:
    return {str(name): value for name, value in entry.items()} if isinstance(entry, dict) else {}

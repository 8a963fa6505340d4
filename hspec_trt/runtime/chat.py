# SPDX-License-Identifier: Apache-2.0
"""Chat messages to prompt text through the model's own Jinja template, sandboxed, with what transformers offers it.

Owns the template's environment; where the files lie and how the text is tokenised is not its business.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

import jinja2
import jinja2.nodes
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from hspec_trt.errors import LoadError, RequestError

Json = None | bool | int | float | str | Sequence["Json"] | Mapping[str, "Json"]
Message = Mapping[str, Json]

_SPECIAL_TOKENS: Final = ("bos_token", "eos_token", "unk_token", "pad_token", "sep_token", "cls_token", "mask_token")


class _GenerationBlock(Extension):
    """``{% generation %} .. {% endgeneration %}`` marks assistant text for training; here it is plain text."""

    tags = {"generation"}  # noqa: RUF012  (the name that Jinja reads)

    def parse(self, parser: Parser) -> list[jinja2.nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _tojson(value: Json, ensure_ascii: bool = False, indent: int | None = None, sort_keys: bool = False) -> str:
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, sort_keys=sort_keys)


def _raise(message: str) -> str:
    raise jinja2.TemplateError(message)


def _strftime_now(layout: str) -> str:
    return datetime.now().strftime(layout)


def _environment() -> ImmutableSandboxedEnvironment:
    extensions = [_GenerationBlock, "jinja2.ext.loopcontrols"]
    env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=extensions)
    env.filters["tojson"] = _tojson
    env.globals["raise_exception"] = _raise
    env.globals["strftime_now"] = _strftime_now
    return env


@dataclass
class ChatTemplate:
    """The chat templates of a model.

    Attributes:
        sources: Jinja text by name; "default" always, "tool_use" where the model has one for tools.
        special_tokens: bos_token, eos_token and their like, as the template sees them.
    """

    sources: Mapping[str, str]
    special_tokens: Mapping[str, str]
    _compiled: dict[str, jinja2.Template] = field(default_factory=dict, repr=False)

    @classmethod
    def from_files(cls, files: Mapping[str, bytes]) -> ChatTemplate | None:
        """The template of an engine folder; None where it has none.

        Args:
            files: content by file name; chat_template.jinja goes before the key in tokenizer_config.json.

        Raises:
            LoadError: L021 for a tokenizer_config.json or template that cannot be read.
        """
        try:
            config = json.loads(files.get("tokenizer_config.json", b"{}"))
        except ValueError as error:
            raise LoadError("L021", f"tokenizer_config.json is not JSON: {error}") from error
        sources = _named_templates(config.get("chat_template"))
        if "chat_template.jinja" in files:
            sources["default"] = files["chat_template.jinja"].decode()
        if "default" not in sources:
            return None
        tokens = {name: _token_text(config[name]) for name in _SPECIAL_TOKENS if config.get(name)}
        template = cls(sources, tokens)
        for name in sources:
            template._compile(name)
        return template

    def render(
        self,
        messages: Sequence[Message],
        *,
        tools: Sequence[Message] = (),
        add_generation_prompt: bool = True,
        variables: Mapping[str, Json] | None = None,
    ) -> str:
        """The prompt text of a conversation.

        Args:
            variables: what the model's template knows beyond what all templates do.

        Raises:
            RequestError: R107 where the template refuses the messages.
        """
        _check_unicode(variables or {})
        name = "tool_use" if tools and "tool_use" in self.sources else "default"
        try:
            return self._compile(name).render(
                {
                    **(variables or {}),
                    "messages": messages,
                    "tools": list(tools) or None,
                    "documents": None,
                    "add_generation_prompt": add_generation_prompt,
                    **self.special_tokens,
                }
            )
        except (jinja2.TemplateError, TypeError, ValueError, KeyError, AttributeError) as error:
            raise RequestError("R107", f"the chat template refuses the messages: {error}") from error

    def _compile(self, name: str) -> jinja2.Template:
        if name not in self._compiled:
            try:
                self._compiled[name] = _environment().from_string(self.sources[name])
            except jinja2.TemplateSyntaxError as error:
                raise LoadError("L021", f"chat template {name!r}: {error}") from error
        return self._compiled[name]


def _check_unicode(variables: Mapping[str, Json]) -> None:
    """Variables are refused where they hold half characters, whether the template would use them or not."""
    try:
        json.dumps(dict(variables), ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        raise RequestError("R107", "chat_template_kwargs hold half of a character", needed="Unicode text") from error


def _named_templates(entry: object) -> dict[str, str]:
    """A template is a string, or a list of ``{"name": .., "template": ..}``."""
    if isinstance(entry, str):
        return {"default": entry}
    if isinstance(entry, list):
        return {str(item["name"]): str(item["template"]) for item in entry if isinstance(item, dict)}
    return {}


def _token_text(entry: object) -> str:
    """A special token is a string, or an added-token entry with its text under ``content``."""
    return str(entry["content"]) if isinstance(entry, dict) else str(entry)

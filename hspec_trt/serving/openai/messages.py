# SPDX-License-Identifier: Apache-2.0
"""Messages and tools of a body as chat templates expect them: plain text, and arguments of calls as objects."""

from __future__ import annotations

import json

from hspec_trt.errors import RequestError
from hspec_trt.runtime.chat import Json, Message
from hspec_trt.serving.openai.schema import ChatMessage, Tool, ToolCall


def template_messages(messages: list[ChatMessage]) -> list[Message]:
    """Messages for a template.

    Raises:
        RequestError: R431, a message without content or a call whose arguments are no JSON object.
    """
    return [_message(message, index) for index, message in enumerate(messages)]


def template_tools(tools: list[Tool]) -> list[Message]:
    """Tools for a template, as they came."""
    return [tool.model_dump(exclude_none=True) for tool in tools]


def _message(message: ChatMessage, index: int) -> Message:
    if message.content is None and not message.tool_calls:
        where = f"messages.{index}.content"
        raise RequestError("R431", f"message {index} has no content", needed="a text", where=where)
    if isinstance(message.content, list):
        content = "".join(part.text for part in message.content)
    else:
        content = message.content or ""
    role = "system" if message.role == "developer" else message.role
    made: dict[str, Json] = {"role": role, "content": content}
    if message.name is not None:
        made["name"] = message.name
    if message.tool_call_id is not None:
        made["tool_call_id"] = message.tool_call_id
    if message.tool_calls:
        calls = enumerate(message.tool_calls)
        made["tool_calls"] = [_call(call, f"messages.{index}.tool_calls.{place}") for place, call in calls]
    return made


def _call(call: ToolCall, where: str) -> dict[str, Json]:
    try:
        arguments = json.loads(call.function.arguments or "{}")
    except (ValueError, RecursionError):
        arguments = None
    if not isinstance(arguments, dict):
        found = f"the arguments of {call.function.name!r} are no JSON object"
        raise RequestError("R431", found, where=f"{where}.function.arguments")
    made: dict[str, Json] = {"type": "function", "function": {"name": call.function.name, "arguments": arguments}}
    return made if call.id is None else {"id": call.id, **made}

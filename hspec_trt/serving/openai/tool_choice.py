# SPDX-License-Identifier: Apache-2.0
"""What a chat request wants of its tools: which ones the model sees, and whether it must call one."""

from __future__ import annotations

from dataclasses import dataclass, replace

from hspec_trt.config.sampling import GuidedDecodingParams, SamplingParams
from hspec_trt.errors import RequestError
from hspec_trt.serving.openai.schema import ChatRequest, NamedTool, Tool
from hspec_trt.serving.openai.tools import ToolFormat


@dataclass(frozen=True)
class ToolUse:
    """Tools of one request.

    Attributes:
        shown: tools that the prompt tells of.
        format: how calls are read from the text; None reads none.
        one_call: only the first call counts.
    """

    shown: tuple[Tool, ...] = ()
    format: ToolFormat | None = None
    one_call: bool = False


def use_tools(
    body: ChatRequest, params: SamplingParams, tool_format: ToolFormat | None
) -> tuple[ToolUse, SamplingParams]:
    """The tools of a request, and its options with the grammar of a call where it must make one.

    Raises:
        RequestError: R442, tools that this model or this request cannot use.
    """
    tools, choice = tuple(body.tools or ()), body.tool_choice
    if not tools:
        if choice not in (None, "none", "auto"):
            raise RequestError("R442", "tool_choice without tools", needed="tools", where="tool_choice")
        return ToolUse(), params
    if choice == "none":
        return ToolUse(), params
    if tool_format is None:
        found = "the model's chat template tells it nothing of tools in a form that is known here"
        fix = "Start the server with --tool-parser, and --chat-template where the template lacks tools"
        raise RequestError("R442", found, where="tools", fix=fix)
    use = ToolUse(tools, tool_format, body.parallel_tool_calls is False)
    if choice in (None, "auto"):
        return use, params
    wanted = [tool.function for tool in tools]
    if isinstance(choice, NamedTool):
        wanted = [one for one in wanted if one.name == choice.function.name]
        if not wanted:
            found = f"tool_choice names {choice.function.name!r}"
            raise RequestError("R442", found, needed="one of tools", where="tool_choice")
    if params.guided_decoding is not None:
        found = "response_format and a tool_choice that demands a call"
        raise RequestError("R442", found, needed="one of them", where="tool_choice")
    grammar = GuidedDecodingParams(grammar=tool_format.grammar(wanted))
    return use, replace(params, guided_decoding=grammar)

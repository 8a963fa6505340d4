# SPDX-License-Identifier: Apache-2.0
"""Bodies of requests: OpenAI's fields, and ours under the names of `SamplingParams`.

Every field may be null, which is the same as leaving it out; a field that is not here is refused by name, so that no
option is ever ignored. Values are checked by the runtime; here only types are.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue

from hspec_trt.config.sampling import Drafting, DraftSource


class Body(BaseModel):
    """What all bodies share: exact types, no unknown fields."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class TextFormat(Body):
    """Any text."""

    type: Literal["text"]


class JsonObjectFormat(Body):
    """Any JSON object."""

    type: Literal["json_object"]


class JsonSchema(Body):
    """A JSON schema with a name."""

    name: str = ""
    description: str | None = None
    schema_: dict[str, JsonValue] | None = Field(default=None, alias="schema")
    strict: bool | None = None


class JsonSchemaFormat(Body):
    """JSON of a schema, always strictly."""

    type: Literal["json_schema"]
    json_schema: JsonSchema


class RegexFormat(Body):
    """Text that a regular expression matches as a whole."""

    type: Literal["regex"]
    regex: str


class GrammarFormat(Body):
    """Text of a grammar in Lark's syntax, with the rule ``start``."""

    type: Literal["grammar"]
    grammar: str


class ChoiceFormat(Body):
    """One of some texts."""

    type: Literal["choice"]
    choice: list[str]


ResponseFormat = Annotated[
    TextFormat | JsonObjectFormat | JsonSchemaFormat | RegexFormat | GrammarFormat | ChoiceFormat,
    Field(discriminator="type"),
]


class StreamOptions(Body):
    """What a stream holds besides the answer."""

    include_usage: bool | None = None


class Request(Body):
    """Fields that completions and chat completions share."""

    model: str | None = None
    n: int | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    max_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    seed: int | None = None
    stop: str | list[str] | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    logit_bias: dict[str, float] | None = None
    response_format: ResponseFormat | None = None
    user: str | None = None
    metadata: dict[str, JsonValue] | None = None

    top_k: int | None = None
    min_p: float | None = None
    min_tokens: int | None = None
    repetition_penalty: float | None = None
    stop_token_ids: list[int] | None = None
    ignore_eos: bool | None = None
    bad_words: list[str] | None = None
    drafts: Drafting | None = None
    num_drafts: int | None = None
    draft_source: DraftSource | None = None
    priority: int | None = None
    return_token_ids: bool | None = None


class CompletionRequest(Request):
    """Body of ``/v1/completions``."""

    prompt: str | list[str] | list[int] | list[list[int]]
    logprobs: int | None = None
    echo: bool | None = None
    best_of: int | None = None
    suffix: None = None


class TextPart(Body):
    """A piece of a message."""

    type: Literal["text"]
    text: str


class FunctionCall(Body):
    """A function and its arguments, as JSON text."""

    name: str
    arguments: str


class ToolCall(Body):
    """A call that the assistant made."""

    id: str | None = None
    index: int | None = None
    type: Literal["function"] = "function"
    function: FunctionCall


class ChatMessage(Body):
    """One message of a conversation; an answer of ours can be sent back as it came."""

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | list[TextPart] | None = None
    name: str | None = None
    tool_calls: list[ToolCall] | None = None
    tool_call_id: str | None = None
    refusal: None = None
    annotations: list[JsonValue] | None = None
    audio: None = None
    function_call: None = None


class Function(Body):
    """A function that the model may call."""

    name: Annotated[str, Field(pattern=r"^[a-zA-Z0-9_.-]{1,64}$")]
    description: str | None = None
    parameters: dict[str, JsonValue] | None = None
    strict: bool | None = None


class Tool(Body):
    """A tool; functions are the only kind."""

    type: Literal["function"]
    function: Function


class NamedFunction(Body):
    """The name of a function."""

    name: str


class NamedTool(Body):
    """The tool that the model must call."""

    type: Literal["function"]
    function: NamedFunction


class ChatRequest(Request):
    """Body of ``/v1/chat/completions``."""

    messages: Annotated[list[ChatMessage], Field(min_length=1)]
    max_completion_tokens: int | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = None
    tools: list[Tool] | None = None
    tool_choice: Literal["none", "auto", "required"] | NamedTool | None = None
    parallel_tool_calls: bool | None = None
    chat_template_kwargs: dict[str, JsonValue] | None = None
    store: bool | None = None
    service_tier: str | None = None
    safety_identifier: str | None = None
    prompt_cache_key: str | None = None

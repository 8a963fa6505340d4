# SPDX-License-Identifier: Apache-2.0
"""`LLM`: the door to an engine folder from Python, under the names that TensorRT-LLM and vLLM use."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import cast, overload

import numpy as np

from hspec_trt.bundle import EngineFolder
from hspec_trt.config.sampling import SamplingParams
from hspec_trt.errors import HspecError, RequestError
from hspec_trt.runtime.chat import Json, Message
from hspec_trt.runtime.checks import check_params
from hspec_trt.runtime.core import EngineCore
from hspec_trt.runtime.engine import load_engine
from hspec_trt.runtime.generation import Generation
from hspec_trt.runtime.loading import MemoryTable
from hspec_trt.runtime.options import RuntimeOptions
from hspec_trt.runtime.results import AnswerBuilder, CompletionOutput, RequestOutput
from hspec_trt.runtime.stats import RuntimeStats
from hspec_trt.runtime.worker import EngineWorker

Prompt = str | Sequence[int]


class LLM:
    """A loaded engine that serves requests from any number of threads.

    Example::

        with LLM("engine") as llm:
            print(llm.generate("The capital of France is", SamplingParams(max_tokens=16)).outputs[0].text)

    Args:
        engine_dir: a folder that ``hspec-trt build`` made.
        options: threads, memory, scheduling.

    Raises:
        LoadError: the folder cannot be loaded here.
    """

    def __init__(self, engine_dir: str | Path, options: RuntimeOptions | None = None) -> None:
        engine = load_engine(Path(engine_dir), options)
        self.folder: EngineFolder = engine.folder
        self.tokenizer, self.chat_template = engine.tokenizer, engine.chat_template
        self.memory: MemoryTable = engine.memory
        self._core = engine.core
        self._worker = EngineWorker(self._core)
        self._numbers = itertools.count(1)

    @property
    def stats(self) -> RuntimeStats:
        """Counters since loading; they go on counting."""
        return self._core.stats

    @property
    def core(self) -> EngineCore:
        """The step loop, for those who watch it; only its own thread changes it."""
        return self._core

    @property
    def fault(self) -> HspecError | None:
        """Why nothing can be served any more; None while all is well."""
        return self._worker.fault

    @overload
    def generate(  # type: ignore[overload-overlap] # a str is a sequence of str, too
        self, prompts: str, sampling_params: SamplingParams | None = None
    ) -> RequestOutput: ...
    @overload
    def generate(self, prompts: Sequence[int], sampling_params: SamplingParams | None = None) -> RequestOutput: ...
    @overload
    def generate(
        self,
        prompts: Sequence[str] | Sequence[Sequence[int]],
        sampling_params: SamplingParams | Sequence[SamplingParams] | None = None,
    ) -> list[RequestOutput]: ...

    def generate(
        self,
        prompts: Prompt | Sequence[str] | Sequence[Sequence[int]],
        sampling_params: SamplingParams | Sequence[SamplingParams] | None = None,
    ) -> RequestOutput | list[RequestOutput]:
        """Answer one prompt or many.

        Args:
            prompts: a text or a list of token ids, or a list of such prompts.
            sampling_params: one for all prompts, or one each.

        Returns:
            One output for one prompt, a list for a list, in its order.

        Raises:
            RequestError: a request that cannot be served, before any of them runs; or one that failed on the way.
        """
        many = _is_batch(prompts)
        batch = cast(list[Prompt], list(prompts) if many else [prompts])
        if isinstance(sampling_params, SamplingParams) or sampling_params is None:
            params = [sampling_params or SamplingParams()] * len(batch)
        else:
            params = list(sampling_params)
        if len(params) != len(batch):
            raise RequestError("R108", f"{len(params)} sampling_params", needed=f"one, or one for each of {len(batch)}")
        made = [self.prepare(prompt, one, streaming=False) for prompt, one in zip(batch, params, strict=True)]
        for generation in made:
            generation.start()
        results = [generation.result() for generation in made]
        for output in (answer for result in results for answer in result.outputs):
            if output.error is not None:
                raise output.error
        return results if many else results[0]

    def generate_async(
        self,
        prompt: Prompt,
        sampling_params: SamplingParams | None = None,
        *,
        streaming: bool = True,
        priority: int = 0,
    ) -> Generation:
        """Start one request and return at once.

        Args:
            streaming: updates come with every step, not only at the end.
            priority: a unit overtakes 64 earlier arrivals.

        Raises:
            RequestError: the request cannot be served.
        """
        return self.prepare(prompt, sampling_params, streaming=streaming, priority=priority).start()

    def prepare(
        self,
        prompt: Prompt,
        sampling_params: SamplingParams | None = None,
        *,
        streaming: bool = True,
        priority: int = 0,
    ) -> Generation:
        """Encode and check one request, as `generate_async` does, and leave it to `Generation.start` to run it.

        For callers with several prompts, of which none should run where one is refused, and for event loops, which
        should not encode a long prompt themselves.

        Raises:
            RequestError: the request cannot be served.
        """
        params = sampling_params or SamplingParams()
        check_params(params, self._core.session.limits)
        ids = self.encode(prompt)
        outputs = [CompletionOutput(index) for index in range(params.n)]
        request = RequestOutput(next(self._numbers), prompt if isinstance(prompt, str) else None, ids, outputs)
        answers = [AnswerBuilder(output, self.tokenizer, params.stop) for output in outputs]
        generation = Generation(self._worker, request, answers)
        make = self._core.make
        generation.hold(
            [
                make(ids, params, generation.sink(index), streaming=streaming, priority=priority, index=index)
                for index in range(len(outputs))
            ]
        )
        return generation

    @overload
    def chat(
        self,
        messages: Sequence[Message],
        sampling_params: SamplingParams | None = None,
        *,
        tools: Sequence[Message] = (),
        chat_template_kwargs: Mapping[str, Json] | None = None,
    ) -> RequestOutput: ...
    @overload
    def chat(
        self,
        messages: Sequence[Sequence[Message]],
        sampling_params: SamplingParams | Sequence[SamplingParams] | None = None,
        *,
        tools: Sequence[Message] = (),
        chat_template_kwargs: Mapping[str, Json] | None = None,
    ) -> list[RequestOutput]: ...

    def chat(
        self,
        messages: Sequence[Message] | Sequence[Sequence[Message]],
        sampling_params: SamplingParams | Sequence[SamplingParams] | None = None,
        *,
        tools: Sequence[Message] = (),
        chat_template_kwargs: Mapping[str, Json] | None = None,
    ) -> RequestOutput | list[RequestOutput]:
        """Answer a conversation or several, laid out by the model's own template.

        Args:
            messages: ``{"role": .., "content": ..}`` in order, or a list of such lists.
            tools: JSON schemas of functions, as OpenAI's API has them, for templates that know tools.
            chat_template_kwargs: further variables of the template, such as ``enable_thinking``.

        Raises:
            RequestError: R107 the engine has no template, or the template refuses the messages; else as `generate`.
        """
        many = bool(messages) and not isinstance(messages[0], Mapping)
        conversations = cast(list[Sequence[Message]], list(messages) if many else [messages])
        variables = chat_template_kwargs or {}
        prompts = [self.chat_ids(one, tools=tools, chat_template_kwargs=variables) for one in conversations]
        outputs = self.generate(prompts, sampling_params)
        return outputs if many else outputs[0]

    def chat_ids(
        self,
        messages: Sequence[Message],
        *,
        tools: Sequence[Message] = (),
        chat_template_kwargs: Mapping[str, Json] | None = None,
    ) -> list[int]:
        """Prompt ids of a conversation, the opening of the answer included; for `generate_async`."""
        if self.tokenizer is None or self.chat_template is None:
            raise RequestError("R107", "the engine has no chat template", fix="Give the prompt as text or token ids")
        text = self.chat_template.render(messages, tools=tools, variables=chat_template_kwargs or {})
        return self.tokenizer.encode_prompt(text, self._core.scheduler.longest, special=False)

    def encode(self, prompt: Prompt) -> list[int]:
        """Token ids of a prompt; ids pass as they are.

        Raises:
            RequestError: R105 a text, where the engine has no tokenizer.
        """
        if not isinstance(prompt, str):
            return list(prompt)
        if self.tokenizer is None:
            raise RequestError("R105", "the prompt is text, and the engine has no tokenizer", fix="Give token ids")
        return self.tokenizer.encode_prompt(prompt, self._core.scheduler.longest)

    def close(self, *, drain: bool = False) -> None:
        """Stop the engine; what runs is finished first (`drain`) or ends with R303."""
        self._worker.close(drain=drain)

    def __enter__(self) -> LLM:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _is_batch(prompts: Prompt | Sequence[str] | Sequence[Sequence[int]]) -> bool:
    """A list of texts or of lists is a batch; a text or a list of numbers is one prompt."""
    if isinstance(prompts, (str, np.ndarray)) or not prompts:
        return False
    return isinstance(prompts[0], (str, Sequence, np.ndarray))

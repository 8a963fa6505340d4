# SPDX-License-Identifier: Apache-2.0
"""The engine behind a served model: loaded once in an instance's process, with its step loop in a thread.

It knows asks and sinks, not tensors or Triton. Says when it can no longer serve.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from hspec_trt.bundle import EngineFolder, open_engine
from hspec_trt.config.sampling import SamplingParams
from hspec_trt.errors import HspecError, LoadError, RequestError
from hspec_trt.runtime.engine import make_engine
from hspec_trt.runtime.options import RuntimeOptions, SchedulerOptions
from hspec_trt.runtime.request import Sequence as RunningSequence
from hspec_trt.runtime.request import Sink
from hspec_trt.runtime.results import AnswerBuilder, CompletionOutput
from hspec_trt.runtime.session import Limits, Session, StepInputs, StepOutputs
from hspec_trt.runtime.tokenizer import Tokenizer
from hspec_trt.runtime.worker import EngineWorker
from hspec_trt.serving.triton.parameters import ServedParameters
from hspec_trt.serving.triton.requests import Ask
from hspec_trt.serving.triton.tensors import Array

MAX_FAILED_STEPS: Final = 3
"""Steps that may fail one after the other before the session counts as dead: a GPU in a fault stays in it."""
_TOKENIZER: Final = "tokenizer.json"


class WatchedSession:
    """A session that remembers whether it still works. Used by one thread, looked at by others."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self.failed_in_a_row = 0
        self.failure: HspecError | None = None

    @property
    def limits(self) -> Limits:
        """What the engine can take."""
        return self._session.limits

    @property
    def num_pages(self) -> int:
        """Pages of the pool."""
        return self._session.num_pages

    def allocate(self, num_pages: int) -> None:
        """Make the pools."""
        self._session.allocate(num_pages)

    def scrub(self, pages: Array) -> None:
        """Zero pages."""
        self._session.scrub(pages)  # type: ignore[arg-type]

    def step(self, inputs: StepInputs) -> StepOutputs:
        """Run one step; any exception but `HspecError` is the end of the session."""
        try:
            outputs = self._session.step(inputs)
        except HspecError as error:
            self.failed_in_a_row += 1
            if self.failed_in_a_row >= MAX_FAILED_STEPS:
                self.failure = error
            raise
        except BaseException as error:
            self.failure = RequestError("R304", f"the session died: {type(error).__name__}: {error}")
            raise
        self.failed_in_a_row = 0
        return outputs


def open_served(path: Path) -> EngineFolder:
    """Open the engine folder of a served model.

    Raises:
        LoadError: as `open_engine`; L052 the folder cannot be reached from here.
    """
    if not path.exists():
        fix = "Export again with --engine-path, or with --copy-engine"
        raise LoadError("L052", f"{path} does not exist on this machine", where="gpt_model_path", fix=fix)
    return open_engine(path)


def load_tokenizer(folder: EngineFolder) -> Tokenizer:
    """The engine's tokenizer.

    Raises:
        LoadError: L006 the engine has none, L020 it cannot be read.
    """
    return Tokenizer(folder.file(_TOKENIZER).read_bytes())


def place_on_device(parameters: ServedParameters, instance: int) -> None:
    """Make this process see one GPU only; before anything of CUDA is loaded."""
    if parameters.devices:
        os.environ["CUDA_VISIBLE_DEVICES"] = str(parameters.devices[instance % len(parameters.devices)])


def runtime_options(parameters: ServedParameters) -> RuntimeOptions:
    """What this instance may take of the machine."""
    cores = len(os.sched_getaffinity(0))
    return RuntimeOptions(
        num_threads=parameters.num_threads or max(cores // parameters.engines, 1),
        kv_cache_memory=parameters.kv_cache_memory or None,
        kv_cache_fraction=parameters.kv_cache_fraction / parameters.engines,
        scheduler=SchedulerOptions(prefix_cache=parameters.prefix_cache),
    )


@dataclass(frozen=True)
class Prompt:
    """A prompt in both forms."""

    text: str
    ids: tuple[int, ...]


class ServedEngine:
    """A loaded engine.

    Raises:
        LoadError: it cannot be loaded here.
    """

    def __init__(self, folder: EngineFolder, parameters: ServedParameters) -> None:
        self.folder = folder
        folder.file(_TOKENIZER)  # refused before the weights are read
        engine = make_engine(folder, runtime_options(parameters), around=self._watched)
        assert engine.tokenizer is not None
        self.tokenizer: Tokenizer = engine.tokenizer
        self._chat_template, self.memory, self.core = engine.chat_template, engine.memory, engine.core
        self._worker = EngineWorker(self.core)
        self._probe: RunningSequence | None = None
        self.limits = self._session.limits

    def _watched(self, session: Session) -> Session:
        self._session = WatchedSession(session)
        return self._session

    @property
    def failure(self) -> HspecError | None:
        """Why the engine can no longer serve; None while it can."""
        return self._session.failure or self._worker.fault

    def prompt(self, ask: Ask) -> Prompt:
        """A prompt as text and ids; a conversation is laid out by the model's own template.

        Raises:
            RequestError: R101 the text is far too long, R105 it is not Unicode, R107 no template, or one that refuses
                the messages.
        """
        longest = self.core.scheduler.longest
        if ask.messages:
            if self._chat_template is None:
                raise RequestError("R107", "the engine has no chat template", fix="Send the prompt as text_input")
            text = self._chat_template.render(ask.messages, tools=ask.tools)
            return Prompt(text, tuple(self.tokenizer.encode_prompt(text, longest, special=False)))
        if ask.text is not None:
            return Prompt(ask.text, tuple(self.tokenizer.encode_prompt(ask.text, longest)))
        return Prompt(self.tokenizer.decode(ask.token_ids), ask.token_ids)

    def builders(self, ask: Ask) -> Iterator[AnswerBuilder]:
        """One for each answer that is asked for, made when it is taken: the number was not checked yet."""
        for index in range(max(ask.params.n, 1)):
            yield AnswerBuilder(CompletionOutput(index), self.tokenizer, ask.params.stop)

    def make(self, ask: Ask, prompt_ids: Sequence[int], sink: Sink, *, index: int) -> RunningSequence:
        """Check one answer's request.

        Raises:
            RequestError: R1xx, R2xx.
        """
        return self.core.make(prompt_ids, ask.params, sink, streaming=ask.response.stream, index=index)

    def probe(self) -> None:
        """Where the last step failed and nobody asks for another: run one, to learn whether the session is dead."""
        if self._probe is not None and self._probe.finish is None:
            return
        if self._session.failed_in_a_row and self.failure is None:
            params = SamplingParams(max_tokens=1, temperature=0.0, drafts="off")
            self._probe = self.core.make([0], params, lambda update: None)
            with suppress(RequestError):  # the step loop died meanwhile: `failure` says so
                self.start([self._probe])

    def start(self, sequences: Sequence[RunningSequence]) -> None:
        """Put sequences in the line.

        Raises:
            RequestError: R303 the engine is closed, R304 its step loop died.
        """
        self._worker.add(sequences)

    def cancel(self, sequences: Sequence[RunningSequence]) -> None:
        """End sequences before the next step."""
        self._worker.cancel(sequences)

    def close(self) -> None:
        """End everything that runs, and the step loop."""
        self._worker.close()

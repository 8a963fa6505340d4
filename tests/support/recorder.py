# SPDX-License-Identifier: Apache-2.0
"""Records what the runtime asks of a session and what comes of it, so that another runtime can be held to it.

A trace is one safetensors file. Its tensors hold the inputs and outputs of every step, one step after the other, with
the sizes of each; its metadata is a JSON text with the engine's limits, the script of events and every answer. The
times that the draft policy sees come from a cost model, so recording again gives the same trace.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save_file

from hspec_trt.config.build import FEEDBACK
from hspec_trt.config.sampling import SamplingParams
from hspec_trt.errors import RequestError
from hspec_trt.runtime.core import EngineCore
from hspec_trt.runtime.drafting import DraftPolicy
from hspec_trt.runtime.lookup import ScriptedDrafts
from hspec_trt.runtime.options import SchedulerOptions
from hspec_trt.runtime.request import Sequence, Update
from hspec_trt.runtime.session import Limits, Session, StepExtras, StepInputs, StepOutputs
from hspec_trt.runtime.step_costs import StepSize
from tests.support.table_codec import ParityGuide, TableCodec

Cost = Callable[[int, int, int], float]


def step_cost(rows: int, tokens: int, drafted: int) -> float:
    """Seconds of a step where a further token costs a fifth of a step, and drafting half of one."""
    return 1e-3 * (1.0 + 0.2 * tokens / rows + (0.5 if drafted else 0.0))


def dear_drafts(rows: int, tokens: int, drafted: int) -> float:
    """Seconds of a step on which drafts never pay off."""
    return 1e-3 * (tokens / rows + (3.0 if drafted else 0.0))


def close_call(rows: int, tokens: int, drafted: int) -> float:
    """Seconds of a step on which drafts that are right two times in three just about pay off."""
    return 1e-3 * (2.0 + 0.35 * tokens + (0.4 * rows if drafted else 0.0))


def uneven(rows: int, tokens: int, drafted: int) -> float:
    """Seconds of a step on a GPU with thresholds, where some steps take ten times as long as others of their size."""
    plain = 2.0 + 0.3 * tokens + (0.4 * rows if drafted else 0.0) + (2.5 if rows >= 4 else 0.0)
    return 1e-3 * plain * (10.0 if (3 * tokens + rows) % 11 == 0 else 1.0)


@dataclass(frozen=True)
class Submit:
    """A request of a script.

    Attributes:
        at: before which call of the step loop it comes.
        right: drafts of a script that are right, with `text` the prompt and all that will follow; None: no script.
        guide: tokens alternate between even and odd ids; it gives up after so many tokens (0: never).
    """

    at: int
    prompt: tuple[int, ...]
    params: SamplingParams
    priority: int = 0
    streaming: bool = True
    right: int | None = None
    text: tuple[int, ...] = ()
    guide: int | None = None


@dataclass(frozen=True)
class Cancel:
    """The end of a request of a script: `number` counts the requests from 1."""

    at: int
    number: int


@dataclass(frozen=True)
class Script:
    """What happens in one trace.

    Attributes:
        fails_at: steps that raise.
        non_finite: step and row whose logits are not finite.
        draft_max_position: in place of the engine's own.
    """

    events: tuple[Submit | Cancel, ...]
    eos_ids: tuple[int, ...] = ()
    options: SchedulerOptions = field(default_factory=SchedulerOptions)
    codec: TableCodec | None = None
    cost: Cost = step_cost
    fails_at: frozenset[int] = frozenset()
    non_finite: frozenset[tuple[int, int]] = frozenset()
    draft_max_position: int | None = None


class RecordingSession:
    """A session that notes all its steps. Faults of the script are put in here."""

    def __init__(self, session: Session, script: Script) -> None:
        self._session, self._script = session, script
        self._rng = random.Random(0)
        most = script.draft_max_position
        self.limits: Limits = session.limits if most is None else replace(session.limits, draft_max_position=most)
        self.num_pages = session.num_pages
        self.inputs: list[StepInputs] = []
        self.outputs: list[StepOutputs | None] = []
        self.seconds: list[float] = []
        self.most_context: list[NDArray[np.int32]] = []
        self.followed: list[int] = []
        self.num_read = 0
        self.scrubs: list[tuple[int, list[int]]] = []

    def allocate(self, num_pages: int) -> None:
        raise NotImplementedError("the pages are allocated before")

    def scrub(self, pages: NDArray[np.int32]) -> None:
        self.scrubs.append((len(self.inputs), pages.tolist()))
        self._session.scrub(pages)

    def step(self, inputs: StepInputs) -> StepOutputs:
        outputs = self._run(inputs, inputs.context_lens)
        self.num_read = len(self.inputs)
        return outputs

    def _run(self, inputs: StepInputs, most_context: NDArray[np.int32]) -> StepOutputs:
        number = len(self.inputs)
        self.inputs.append(inputs)
        self.most_context.append(most_context)
        rows, tokens = inputs.context_lens.size, inputs.input_ids.size
        jitter = self._rng.choice([0.97, 1.0, 1.0, 1.03])
        self.seconds.append(jitter * self._script.cost(rows, tokens, inputs.draft_rows.size))
        if number in self._script.fails_at:
            self.outputs.append(None)
            raise RequestError("R302", "the script fails this step")
        outputs = self._session.step(inputs)
        outputs = replace(outputs, **{k: v.copy() for k, v in vars(outputs).items() if v is not None})
        for row in (row for step, row in self._script.non_finite if step == number and row < rows):
            outputs.finite[row] = False
        self.outputs.append(outputs)
        return outputs


class FollowedSession(RecordingSession):
    """One that can be followed. It runs a step when it is started; the next one starts from its outputs."""

    def submit(self, inputs: StepInputs) -> Ran:
        """See `FollowingSession`."""
        return self._ran(self._run(inputs, inputs.context_lens))

    def follow(self, page_table: NDArray[np.int32], most_context: NDArray[np.int32]) -> Ran:
        """See `FollowingSession`."""
        last, outputs, width = self.inputs[-1], self.outputs[-1], self.limits.num_drafts + 1
        rows = last.context_lens.size
        assert outputs is not None and last.extras is None and np.array_equal(last.draft_rows, np.arange(rows))
        run = np.diff(last.cu_query_lens) - np.diff(last.cu_verify_lens)
        anchors = outputs.emitted_ids[np.arange(rows), outputs.emitted_lens - 1]
        starts, packed = np.arange(rows + 1, dtype=np.int32) * width, np.arange(rows * width, dtype=np.int32)
        inputs = replace(
            last,
            input_ids=np.column_stack([anchors, outputs.draft_ids]).astype(np.int32).reshape(-1),
            cu_query_lens=starts,
            context_lens=last.context_lens + run + outputs.emitted_lens,
            query_slots=packed.reshape(rows, width),
            verify_rows=packed,
            cu_verify_lens=starts,
            page_table=page_table,
            next_ids=None if last.next_ids is None else np.zeros(rows, np.int32),
        )
        self.followed.append(len(self.inputs))
        return self._ran(self._run(inputs, most_context))

    def _ran(self, outputs: StepOutputs) -> Ran:
        return Ran(self, len(self.inputs), outputs)


@dataclass
class Ran:
    """A step of a `FollowedSession`; `number` counts from 1."""

    session: FollowedSession
    number: int
    outputs: StepOutputs

    def wait(self) -> StepOutputs:
        """See `Pending`."""
        self.session.num_read = self.number
        return self.outputs


class _TimedPolicy(DraftPolicy):
    """Sees the script's times in place of measured ones."""

    def __init__(self, session: RecordingSession) -> None:
        super().__init__(session.limits.num_drafts, session.limits.has_drafter)
        self._session = session

    def observe_step(self, step: StepSize, seconds: float) -> None:
        super().observe_step(step, self._session.seconds[self._session.num_read - 1])


@dataclass
class Trace:
    """One recorded script."""

    session: RecordingSession
    script: Script
    answers: list[list[Update]] = field(default_factory=list)

    def write(self, path: Path) -> None:
        """Write the trace's file."""
        meta = json.dumps(self._meta(), separators=(",", ":"))
        save_file(self._tensors(), path, metadata={"trace": meta})

    def _meta(self) -> dict[str, object]:
        script, session = self.script, self.session
        limits = asdict(session.limits)
        return {
            "limits": limits,
            "num_pages": session.num_pages,
            "eos_ids": list(script.eos_ids),
            "options": asdict(script.options),
            "codec": script.codec.to_json() if script.codec else None,
            "events": [_event(event) for event in script.events],
            "failed_steps": sorted(script.fails_at),
            "scrubs": session.scrubs,
            "answers": [_answer(updates) for updates in self.answers],
            **({"followed_steps": session.followed} if session.followed else {}),
        }

    def _tensors(self) -> dict[str, NDArray[np.generic]]:
        extras = [inputs.extras or StepExtras.none(self.session.limits.vocab_size) for inputs in self.session.inputs]
        steps = list(zip(self.session.inputs, extras, strict=True))
        sizes = [_sizes(inputs, extra) for inputs, extra in steps]
        made: dict[str, NDArray[np.generic]] = {
            "sizes": np.array(sizes, np.int32),
            "seconds": np.array(self.session.seconds, np.float64),
        }
        for name in steps[0][0].arrays():
            if name not in vars(extras[0]):
                made[f"in.{name}"] = _joined([getattr(inputs, name) for inputs, _ in steps])
        for name in vars(extras[0]):
            made[f"in.{name}"] = _joined([getattr(extra, name) for _, extra in steps])
        if self.session.followed:
            made["in.most_context"] = _joined(self.session.most_context)
        outputs = [outputs for outputs in self.session.outputs if outputs is not None]
        for name in (one.name for one in fields(StepOutputs)):
            arrays = [array for one in outputs if (array := getattr(one, name)) is not None]
            if arrays and name != "draft_confidence":
                made[f"out.{name}"] = _joined(arrays)
        logprobs = [value for updates in self.answers for update in updates for value in update.logprobs]
        made["answers.logprobs"] = np.array(logprobs, np.float32)
        return made


def record(session: Session, script: Script, *, max_calls: int = 2000) -> Trace:
    """Run a script on a session whose pages are allocated."""
    follows = FEEDBACK in session.limits.extensions
    recording = (FollowedSession if follows else RecordingSession)(session, script)
    trace = Trace(recording, script)
    core = EngineCore(recording, eos_ids=frozenset(script.eos_ids), decoder=script.codec, options=script.options)
    core.policy = _TimedPolicy(recording)
    sequences: list[Sequence] = []
    for call in range(max_calls):
        for event in (event for event in script.events if event.at == call):
            if isinstance(event, Cancel):
                core.cancel(sequences[event.number - 1])
            else:
                sequences.append(_make(core, event, trace))
                core.add(sequences[-1])
        core.step()
        if core.is_idle and call >= max(event.at for event in script.events):
            return trace
    raise AssertionError("the script does not end")


def _make(core: EngineCore, event: Submit, trace: Trace) -> Sequence:
    updates: list[Update] = []
    trace.answers.append(updates)
    drafts = None
    if event.right is not None:
        drafts = ScriptedDrafts(np.array(event.text, np.int32), event.right, core.session.limits.vocab_size)
    made = core.make(
        event.prompt,
        event.params,
        updates.append,
        streaming=event.streaming,
        priority=event.priority,
        host_drafts=drafts,
    )
    if event.guide is not None:
        made.shaper.guide = ParityGuide(core.session.limits.vocab_size, len(event.prompt), event.guide)
    return made


def _sizes(inputs: StepInputs, extras: StepExtras) -> list[int]:
    """R, N, T, K, D, M, E, L and J of one step."""
    return [
        inputs.context_lens.size,
        inputs.input_ids.size,
        inputs.query_slots.shape[1],
        inputs.verify_rows.size,
        inputs.draft_rows.size,
        inputs.page_table.shape[1],
        extras.edit_rows.size,
        extras.mask_rows.size,
        extras.top_rows.size,
    ]


def _joined(arrays: list[NDArray[np.generic]]) -> NDArray[np.generic]:
    joined = np.concatenate([array.ravel() for array in arrays])
    return joined.astype(np.uint8) if joined.dtype == bool else joined


def _event(event: Submit | Cancel) -> dict[str, object]:
    if isinstance(event, Cancel):
        return {"at": event.at, "cancel": event.number}
    unset, values = SamplingParams(), asdict(event.params)
    params = {name: value for name, value in values.items() if value != getattr(unset, name)}
    drafts = None if event.right is None else {"text": event.text, "right": event.right}
    return {
        "at": event.at,
        "submit": {
            "prompt": event.prompt,
            "params": params,
            "priority": event.priority,
            "streaming": event.streaming,
            "host_drafts": drafts,
            "guide": event.guide,
        },
    }


def _answer(updates: list[Update]) -> dict[str, object]:
    last = updates[-1]
    assert last.drafts is not None and last.timing is not None
    stats = last.drafts
    return {
        "token_ids": [token for update in updates for token in update.token_ids],
        "updates": [len(update.token_ids) for update in updates],
        "tops": [[list(pair) for pair in tops] for update in updates for tops in update.top_logprobs],
        "finish": last.finish,
        "error": str(last.error) if last.error else None,
        "steps": stats.steps,
        "emitted": stats.emitted,
        "first_tokens": stats.first_tokens,
        "offered": stats.offered,
        "accepted": stats.accepted,
        "lengths": dict(sorted(stats.lengths.items())),
        "without": dict(sorted(stats.without.items())),
        "cached_tokens": last.timing.cached_tokens,
        "preemptions": last.timing.preemptions,
    }

# SPDX-License-Identifier: Apache-2.0
"""The TensorRT session with real numbers: golden traces, the same steps as ONNX Runtime, feedback, memory."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np
import pytest

from hspec_trt.errors import RequestError
from hspec_trt.runtime.ort_session import OrtSession
from hspec_trt.runtime.session import Session, StepExtras, StepInputs, StepOutputs
from tests.support.graph_engine import Feed, Row, commit, step_inputs
from tests.support.plain_loop import plain_decode
from tests.unit.graph.test_traces import TRACED, check, decode, make_rows

from .conftest import NUM_PAGES, PAGE_SIZE, Doubled

Reference = Callable[..., OrtSession]
CACHED_DRAFTERS = ("dflash_qwen3", "dspark_qwen3", "peagle_qwen3", "eagle3_qwen3")


class Steps:
    """A session under the interface of the graph tests' `Engine`."""

    def __init__(self, session: Session) -> None:
        self.session = session

    def step(self, rows: Sequence[Row], feeds: Sequence[Feed]) -> Mapping[str, np.ndarray]:
        return vars(self.session.step(StepInputs(**step_inputs(rows, feeds, PAGE_SIZE, {}))))


def same(got: StepOutputs, wanted: StepOutputs) -> None:
    """All outputs equal; log-probabilities to the rounding of one logarithm, which depends on how many are taken."""
    for name, values in vars(wanted).items():
        if values is not None:
            bound = 2e-6 if name.endswith("logprobs") else 0.0
            np.testing.assert_allclose(getattr(got, name), values, rtol=0, atol=bound, err_msg=name)


def decode_rows(rows: Sequence[Row]) -> list[Feed]:
    return [Feed([row.tokens[-1], *row.drafts], 1 + len(row.drafts), draft=True) for row in rows]


def started(session: Session, count: int = 3) -> list[Row]:
    """Rows whose prompts were run, with their first drafts."""
    rows = [Row(list(range(3 + 7 * i, 14 + 9 * i)), list(range(1 + 8 * i, 9 + 8 * i)), seed=i) for i in range(count)]
    for row in rows:
        row.temperature = 0.8
    feeds = [Feed(row.prompt, 1, draft=True) for row in rows]
    commit(rows, feeds, Steps(session).step(rows, feeds))
    return rows


@pytest.mark.parametrize("aliased", [True, False], ids=["in_place", "swapped"])
@pytest.mark.parametrize("case", TRACED)
def test_golden_traces(case: str, aliased: bool, doubled: Doubled) -> None:
    """All prompts of a case at once, from different steps on, on shuffled pages, in chunks of 7."""
    made = doubled(case, aliased=aliased)
    rows, traces = make_rows(case, random.Random(1))
    goals = [trace["new_tokens"] for trace in traces]
    decode(Steps(made.session), rows, goals, chunk=7, start_step=lambda row: 2 * row)
    check(rows, traces)
    assert made.session.launcher.counts.replayed > 1


@pytest.mark.parametrize("case", CACHED_DRAFTERS)
@pytest.mark.parametrize("aliased", [True, False], ids=["in_place", "swapped"])
def test_drafters_with_pages_of_their_own(case: str, aliased: bool, doubled: Doubled, reference: Reference) -> None:
    made, wanted = doubled(case, aliased=aliased).session, reference(case)
    wanted.allocate(NUM_PAGES)
    pairs = [(Steps(session), started(session)) for session in (made, wanted)]
    for _ in range(6):
        results = []
        for steps, rows in pairs:
            feeds = decode_rows(rows)
            results.append(steps.step(rows, feeds))
            commit(rows, feeds, results[-1])
        same(StepOutputs(**results[0]), StepOutputs(**results[1]))


@pytest.mark.parametrize("aliased", [True, False], ids=["in_place", "swapped"])
@pytest.mark.parametrize("case", ["hspec_qwen3", "peagle_qwen3"])
def test_following_steps_equal_those_that_the_host_packs(
    case: str, aliased: bool, doubled: Doubled, reference: Reference
) -> None:
    """Three steps in a row from the device's own outputs, then one packed by the host: nothing was lost on the way."""
    session, wanted = doubled(case, aliased=aliased).session, reference(case)
    wanted.allocate(NUM_PAGES)
    rows, expected = started(session), started(wanted)
    width = session.limits.num_drafts + 1
    feeds = decode_rows(rows)
    pending = [session.submit(StepInputs(**step_inputs(rows, feeds, PAGE_SIZE, {})))]
    ends = [row.context + width for row in rows]
    for _ in range(3):
        pages = -(-(max(ends) + width) // PAGE_SIZE)
        table = np.array([row.pages[:pages] for row in rows], np.int32)
        pending.append(session.follow(table, np.array(ends, np.int32)))
        ends = [end + width for end in ends]
        check_next(pending.pop(0).wait(), rows, expected, wanted)
    check_next(pending.pop(0).wait(), rows, expected, wanted)
    feeds = decode_rows(rows)
    same(StepOutputs(**Steps(session).step(rows, feeds)), StepOutputs(**Steps(wanted).step(expected, feeds)))


def check_next(outputs: StepOutputs, rows: list[Row], expected: list[Row], wanted: Session) -> None:
    """Outputs of a step of full decode rows equal those of the reference, and both go on."""
    feeds = decode_rows(expected)
    reference = Steps(wanted).step(expected, feeds)
    same(outputs, StepOutputs(**reference))
    commit(rows, feeds, vars(outputs))
    commit(expected, feeds, reference)


def test_steps_of_every_kind_equal_onnx_runtime(doubled: Doubled, reference: Reference) -> None:
    """Random rows: idle, chunks, decode with 0 to G drafts, drafted for or not; the launch kinds all occur."""
    made = doubled()
    session, wanted = made.session, reference()
    wanted.allocate(NUM_PAGES)
    rng = random.Random(5)
    pairs = [[Row(list(range(5 + i, 40 + 3 * i)), list(range(1 + 9 * i, 10 + 9 * i))) for i in range(5)] for _ in "ab"]
    for _ in range(60):
        count = rng.randint(1, 5)
        feeds = []
        for row in pairs[1][:count]:
            left = len(row.prompt) - row.context
            if left > 0:
                tokens = row.prompt[row.context : row.context + rng.choice([1, 3, 8, 20])]
                feeds.append(Feed(tokens, int(len(tokens) == left), draft=len(tokens) == left and rng.random() < 0.7))
            elif rng.random() < 0.2 or row.context > 100:
                feeds.append(Feed(()))
            else:
                drafts = row.drafts[: rng.randint(0, 7)]
                feeds.append(Feed([row.tokens[-1], *drafts], 1 + len(drafts), draft=rng.random() < 0.7))
        if any(feed.tokens for feed in feeds):
            got, right = (
                Steps(one).step(rows[:count], feeds) for one, rows in zip((session, wanted), pairs, strict=True)
            )
            same(StepOutputs(**got), StepOutputs(**right))
            for rows, result in zip(pairs, (got, right), strict=True):
                commit(rows[:count], feeds, result)
    counts = session.launcher.counts
    assert min(counts.bound, counts.recorded, counts.replayed) > 2 and made.session.launcher.capture_fault == ""


def test_one_copy_each_way_a_step(doubled: Doubled) -> None:
    made = doubled()
    rows = started(made.session)
    before = made.gpu.copies
    Steps(made.session).step(rows, decode_rows(rows))
    assert made.gpu.copies - before == 2


def test_extras_make_the_block_grow(doubled: Doubled, reference: Reference) -> None:
    """A step with masks needs more room than any before; recorded launches go with the memory that they knew."""
    names = ("token_masks", "top_logprobs", "feedback")
    session, wanted = doubled(extensions=names).session, reference(extensions=names)
    wanted.allocate(NUM_PAGES)
    rows, expected = started(session), started(wanted)
    for number in range(4):
        feeds = decode_rows(rows)
        count = sum(feed.num_verify for feed in feeds)
        inputs = StepInputs(**step_inputs(rows, feeds, PAGE_SIZE, {}))
        if number == 2:
            masks = np.zeros((1 << 12, session.limits.vocab_size), bool)[:count]
            masks[:, ::3] = True
            extras = replace(
                StepExtras.none(session.limits.vocab_size),
                mask_rows=np.arange(count, dtype=np.int32),
                token_masks=masks,
                top_rows=np.array([0, 3], np.int32),
            )
            inputs = replace(inputs, extras=extras)
            session._inputs.free()
            session._inputs = session._cuda.malloc(512)  # as if no step had needed more
        got, right = session.step(inputs), wanted.step(inputs)
        same(got, right)
        commit(rows, feeds, vars(got))
        commit(expected, feeds, vars(right))


def test_allocating_anew_forgets_everything(doubled: Doubled, reference: Reference) -> None:
    session, wanted = doubled().session, reference()
    for _ in range(2):
        session.allocate(40)
        wanted.allocate(40)
        assert session.num_pages == 40
        assert plain_decode(session, [5, 6, 7], 20).ids == plain_decode(wanted, [5, 6, 7], 20).ids


@pytest.mark.parametrize("aliased", [True, False], ids=["in_place", "swapped"])
def test_scrubbed_pages_are_zero(aliased: bool, doubled: Doubled) -> None:
    made = doubled(aliased=aliased)
    plain_decode(made.session, [5, 6, 7], 30)
    made.session.scrub(np.array([0, 2], np.int32))
    made.session._cuda.synchronize()
    pools = made.session._pools
    for pool, buffers in zip(pools._pools, pools._buffers, strict=True):
        data = made.gpu.bytes_at(buffers[pools.reading].address, 3 * pool.page_bytes, on_device=True)
        zero, one, two = data.reshape(3, -1).any(axis=1)
        assert (zero, one, two) == (False, True, False)


def test_page_bytes_count_every_buffer(doubled: Doubled) -> None:
    in_place, swapped = (doubled(aliased=aliased).session.limits.page_bytes for aliased in (True, False))
    assert swapped == 2 * in_place > 0


def test_a_launch_that_is_refused_is_a_request_fault(doubled: Doubled) -> None:
    made = doubled()
    rows = started(made.session)
    made.trt.enqueue_fails = True
    with pytest.raises(RequestError, match=r"R302.*cannot be started: enqueue failed"):
        Steps(made.session).step(rows, decode_rows(rows))
    with pytest.raises(RequestError, match=r"R310.*cannot be followed"):
        made.session.follow(np.zeros((3, 4), np.int32), np.zeros(3, np.int32))
    made.trt.enqueue_fails = False
    made.session.allocate(NUM_PAGES)
    assert len(started(made.session)) == 3


@pytest.mark.parametrize("drafted", [(), (0, 1), (1, 0, 2)])
def test_only_steps_that_drafted_for_all_rows_are_followed(drafted: tuple[int, ...], doubled: Doubled) -> None:
    session = doubled().session
    rows = started(session)
    inputs = StepInputs(**step_inputs(rows, decode_rows(rows), PAGE_SIZE, {}))
    session.submit(replace(inputs, draft_rows=np.array(drafted, np.int32))).wait()
    with pytest.raises(RequestError, match=r"R310.*cannot be followed"):
        session.follow(np.ones((3, 8), np.int32), np.zeros(3, np.int32))


def test_following_needs_pages_for_the_longest_text(doubled: Doubled) -> None:
    session = doubled().session
    rows = started(session)
    session.submit(StepInputs(**step_inputs(rows, decode_rows(rows), PAGE_SIZE, {})))
    with pytest.raises(RequestError, match=r"R310.*page_table has 1 pages"):
        session.follow(np.ones((3, 1), np.int32), np.full(3, 20, np.int32))


def test_a_step_must_be_read_before_two_more(doubled: Doubled) -> None:
    session = doubled().session
    rows = started(session)
    inputs = StepInputs(**step_inputs(rows, decode_rows(rows), PAGE_SIZE, {}))
    first, _, _ = (session.submit(inputs) for _ in range(3))
    with pytest.raises(ValueError, match="was not read"):
        first.wait()

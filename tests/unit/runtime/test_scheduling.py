# SPDX-License-Identifier: Apache-2.0
"""Admission, chunks, preemption, priorities, prefix reuse, cancel and faults: nobody's text is touched by others."""

from __future__ import annotations

import pytest

from hspec_trt.config.sampling import SamplingParams
from hspec_trt.errors import HspecError
from hspec_trt.runtime.options import SchedulerOptions
from tests.support.scripted import ScriptedSession, TextModel
from tests.unit.runtime.harness import check_empty, drain, make_core, solo, submit

MODEL = TextModel(61)


def params(max_tokens: int, **changes: object) -> SamplingParams:
    values: dict[str, object] = {"temperature": 0.0, "seed": 1, "drafts": "on", "max_tokens": max_tokens}
    return SamplingParams(**(values | changes))  # type: ignore[arg-type]


def test_decode_rows_run_in_every_step_beside_long_prompts() -> None:
    core = make_core(max_tokens=16, accept=lambda s, p: 0)
    first = submit(core, [1, 2], params(30))
    core.step()
    others = [submit(core, [i % 61 for i in range(100)], params(3)) for _ in range(5)]
    for _ in range(20):
        before = len(first.ids)
        core.step()
        assert len(first.ids) == before + 1
    drain(core)
    assert all(other.ids == solo(other, MODEL, 3) for other in others)


def test_prompts_are_not_starved_by_drafts() -> None:
    """Eight rows of four drafts would fill the budget; half of what is free goes to the waiting prompt."""
    core = make_core(max_tokens=40, max_rows=8, accept=lambda s, p: 0)
    for i in range(7):
        submit(core, [i + 1], params(60))
    core.step()
    late = submit(core, [3] * 100, params(3))
    steps = 0
    while not late.ids:
        core.step()
        steps += 1
    assert steps <= 100 // ((40 - 7) // 2) + 1


def test_line_is_kept_and_priority_overtakes_at_most_so_many() -> None:
    core = make_core(max_rows=1)
    order: list[int] = []
    for i in range(3):
        core.add(core.make([1], params(1), lambda update, i=i: order.append(i)))
    core.add(core.make([1], params(1), lambda update: order.append(99), priority=1))
    drain(core)
    assert order == [99, 0, 1, 2]


def test_preempted_requests_say_the_same() -> None:
    """Case E10: drafts of before a preemption are never verified after it."""
    core = make_core(num_pages=40, accept=lambda s, p: (s + p) % 5)
    answers = [submit(core, [i + 1] * 10, params(60, seed=i, temperature=0.8)) for i in range(6)]
    drain(core)
    assert core.stats.preemptions > 0
    for answer in answers:
        assert answer.ids == solo(answer, MODEL, 60)
        assert len(answer.logprobs) == 60
    assert sum(a.last.timing.preemptions for a in answers if a.last.timing) == core.stats.preemptions
    check_empty(core)


def test_a_pool_for_one_request_serves_many() -> None:
    core = make_core(num_pages=33, accept=lambda s, p: 4)
    answers = [submit(core, [i + 1] * 20, params(108)) for i in range(4)]
    drain(core)
    assert all(answer.ids == solo(answer, MODEL, 108) for answer in answers)


def test_longest_request_is_what_the_pool_holds() -> None:
    core = make_core(num_pages=11)
    with pytest.raises(HspecError, match=r"max_seq_len 40.*allowed max_tokens is 30"):
        submit(core, [1] * 10, params(31))
    answer = submit(core, [1] * 10, params(30))
    drain(core)
    assert answer.ids == solo(answer, MODEL, 30)


@pytest.mark.parametrize("cached", [True, False])
def test_shared_start_is_run_once(cached: bool) -> None:
    """Case E5: 32 of 40 prompt tokens shared, and a whole prompt again; text and acceptance as in a cold run."""
    core = make_core(accept=lambda s, p: p % 5, options=SchedulerOptions(prefix_cache=cached))
    start = [i % 61 for i in range(32)]
    first = submit(core, [*start, *[5] * 8], params(10))
    drain(core)
    second = submit(core, [*start, *[9] * 8], params(10))
    again = submit(core, [*start, *[5] * 8], params(10))
    drain(core)
    for answer, expected in ((first, 0), (second, 32), (again, 36)):
        assert answer.ids == solo(answer, MODEL, 10)
        assert answer.last.timing is not None
        assert answer.last.timing.cached_tokens == (expected if cached else 0)
    assert again.ids == first.ids
    assert again.last.drafts is not None
    assert first.last.drafts is not None
    assert again.last.drafts.accepted == first.last.drafts.accepted
    check_empty(core)


def test_next_turn_of_a_chat_reuses_the_answer() -> None:
    core = make_core(accept=lambda s, p: 2)
    first = submit(core, [1, 2, 3], params(30))
    drain(core)
    second = submit(core, [1, 2, 3, *first.ids, 7, 8], params(5))
    drain(core)
    assert second.ids == solo(second, MODEL, 5)
    assert second.last.timing is not None
    assert second.last.timing.cached_tokens == 32


def test_cached_pages_give_way_to_running_requests() -> None:
    core = make_core(num_pages=33)
    for i in range(8):
        submit(core, [i + 1] * 40, params(20))
        drain(core)
    last = submit(core, [50] * 100, params(28))
    drain(core)
    assert last.ids == solo(last, MODEL, 28)
    assert core.stats.preemptions == 0


def test_cancel_while_waiting_running_and_twice() -> None:
    """Cases F10 and F11."""
    core = make_core(max_rows=1, max_tokens=8)
    running = submit(core, [1] * 20, params(60))
    waiting = submit(core, [2] * 5, params(60))
    core.step()
    assert running.sequence is not None
    assert waiting.sequence is not None
    for answer in (waiting, running, waiting, running):
        core.cancel(answer.sequence)  # type: ignore[arg-type]
    assert waiting.last.finish == running.last.finish == "cancelled"
    check_empty(core)
    ended = submit(core, [3], params(2))
    drain(core)
    core.cancel(ended.sequence)  # type: ignore[arg-type]
    assert ended.last.finish == "length"


def test_cancelled_answer_keeps_what_was_said() -> None:
    core = make_core(accept=lambda s, p: 1)
    answer = submit(core, [1, 2], params(50))
    for _ in range(6):
        core.step()
    core.cancel(answer.sequence)  # type: ignore[arg-type]
    assert answer.ids == solo(answer, MODEL, len(answer.ids))
    assert len(answer.ids) > 5


def test_non_finite_row_ends_alone_and_its_pages_are_clean() -> None:
    """Case of pain 20: only that request fails, with a code, and the next owner of its pages is not poisoned."""
    core = make_core(nan_token=60, num_pages=20, model=TextModel(61, never=(60,)), accept=lambda s, p: 4)
    model = TextModel(61, never=(60,))
    good = submit(core, [1, 2, 3], params(20))
    bad = submit(core, [4, 60, 5], params(20))
    drain(core)
    assert good.ids == solo(good, model, 20)
    assert bad.last.finish == "error"
    assert bad.ids == []
    assert bad.last.error is not None
    assert bad.last.error.code == "R301"
    assert "non-finite target logits at position 3" in str(bad.last.error)
    for i in range(6):
        after = submit(core, [i + 1] * 30, params(20))
        drain(core)
        assert after.ids == solo(after, model, 20)
    check_empty(core)


def test_failed_step_ends_its_rows_only() -> None:
    core = make_core(fail_at=frozenset({3}), max_rows=2)
    first, second = submit(core, [1], params(20)), submit(core, [2], params(20))
    third = submit(core, [3], params(20))
    drain(core)
    for answer in (first, second):
        assert answer.last.finish == "error"
        assert answer.last.error is not None
        assert answer.last.error.code == "R302"
        assert answer.ids == solo(answer, MODEL, len(answer.ids))
    assert third.ids == solo(third, MODEL, 20)
    assert core.stats.failed_steps == 1
    check_empty(core)


@pytest.mark.parametrize("source", ["prompt_lookup", "both", "drafter"])
def test_draft_sources_change_nothing_but_speed(source: str) -> None:
    cycle = (5, 9, 13, 17, 21)
    model = TextModel(61, cycle=cycle)
    core = make_core(model=model, accept=lambda s, p: 0)
    answer = submit(core, [1, 5], params(40, draft_source=source))
    steps = drain(core)
    assert answer.ids == solo(answer, model, 40)
    assert answer.last.drafts is not None
    if source == "drafter":
        assert steps == 40
    else:
        assert steps < 20
        assert answer.last.drafts.accepted_length > 2


def test_look_up_needs_no_drafter() -> None:
    core = make_core(model=TextModel(61, cycle=(5, 9, 13)), has_drafter=False)
    answer = submit(core, [1, 5], params(40))
    steps = drain(core)
    assert answer.ids == solo(answer, TextModel(61, cycle=(5, 9, 13)), 40)
    assert steps < 20
    session = core.session
    assert isinstance(session, ScriptedSession)
    assert not any(drafted for _, _, drafted in session.sizes)


@pytest.mark.parametrize("source", ["drafter", "prompt_lookup"])
@pytest.mark.parametrize("most", [1, 2, 3, 4, None])
def test_no_more_drafts_than_asked_for(most: int | None, source: str) -> None:
    """Case B7: fewer drafts than the engine carries work."""
    model = TextModel(61, cycle=(5, 9, 13, 17, 21))
    core = make_core(model=model, accept=lambda s, p: 4)
    answer = submit(core, [1, 5], params(40, num_drafts=most, draft_source=source))
    drain(core)
    assert answer.ids == solo(answer, model, 40)
    stats = answer.last.drafts
    assert stats is not None
    assert stats.offered[0] > 0
    assert not any(stats.offered[most or 4 :])
    assert max(stats.lengths) == (most or 4) + 1


def test_drafting_off_costs_no_drafter_pass() -> None:
    core = make_core(accept=lambda s, p: 4)
    submit(core, [1, 2, 3], params(10, drafts="off"))
    drain(core)
    assert isinstance(core.session, ScriptedSession)
    assert core.session.sizes == [(1, 3, 0), *[(1, 1, 0)] * 9]
    assert core.stats.drafts.without == {"off": 9}

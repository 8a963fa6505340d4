# SPDX-License-Identifier: Apache-2.0
"""The step loop over a session that computes: the text is the model's own, whatever the drafts, chunks and company."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from hspec_trt.config.sampling import SamplingParams
from hspec_trt.errors import HspecError
from hspec_trt.runtime.options import SchedulerOptions
from hspec_trt.runtime.request import Update
from tests.support.scripted import Row, TextModel
from tests.support.tokenizers_toy import byte_ids, ours
from tests.unit.runtime.harness import Answer, check_empty, drain, make_core, solo, submit

MODEL = TextModel(61)
GREEDY = SamplingParams(temperature=0.0, seed=1, max_tokens=12, drafts="on")


@pytest.mark.parametrize("drafts", ["on", "off", "auto"])
@pytest.mark.parametrize("right", range(5))
@pytest.mark.parametrize("temperature", [0.0, 0.7, 1.3])
def test_text_is_the_models_own(right: int, drafts: str, temperature: float) -> None:
    core = make_core(accept=lambda seed, position: right)
    params = SamplingParams(temperature=temperature, seed=5, max_tokens=30, drafts=drafts)  # type: ignore[arg-type]
    answer = submit(core, [1, 2, 3], params)
    drain(core)
    assert answer.ids == solo(answer, MODEL, 30)
    assert answer.last.finish == "length"
    check_empty(core)


@pytest.mark.parametrize("most", [1, 2, 3, 4])
@pytest.mark.parametrize("source", ["drafter", "prompt_lookup"])
def test_a_request_may_ask_for_fewer_drafts(most: int, source: str) -> None:
    """Case B7: fewer than the drafter was trained for work and change nothing but the steps."""
    core = make_core(accept=lambda seed, position: 4)
    prompt = [1, 2, 3, 4, 1, 2, 3, 4, 1, 2, 3]
    params = SamplingParams(temperature=0.0, max_tokens=26, drafts="on", num_drafts=most, draft_source=source)  # type: ignore[arg-type]
    answer = submit(core, prompt, params)
    drain(core)
    assert answer.ids == solo(answer, MODEL, 26)
    stats = answer.last.drafts
    assert stats is not None
    assert not any(stats.offered[most:])
    if source == "drafter":
        assert max(stats.lengths) == most + 1


@pytest.mark.parametrize("right", range(5))
def test_accepted_length_is_what_the_script_says(right: int) -> None:
    """Case G10: an oracle of four must report five tokens a step."""
    core = make_core(accept=lambda seed, position: right)
    answer = submit(core, [1, 2, 3], SamplingParams(temperature=0.0, max_tokens=26, drafts="on"))
    steps = drain(core)
    stats = answer.last.drafts
    assert stats is not None
    full = 25 // (right + 1)
    assert stats.lengths[right + 1] >= full - 1
    assert stats.acceptance_by_position[:right] == [1.0] * right
    assert not any(stats.accepted[right:])
    assert steps == stats.steps + 1  # the step that ends the prompt is no decode step
    assert stats.first_tokens == 1
    assert stats.num_tokens == 26 == len(answer.ids)
    assert stats.emitted == sum(length * count for length, count in stats.lengths.items())


@pytest.mark.parametrize("length", [1, 3, 4, 5, 8, 9, 64, 127])
@pytest.mark.parametrize("chunk", [1, 3, 4, 7, None])
def test_prompt_lengths_and_chunks(length: int, chunk: int | None) -> None:
    """One token, exactly a page, a page and one, the longest; run whole and in chunks of any size."""
    core = make_core(accept=lambda seed, position: position % 5, options=SchedulerOptions(max_chunk=chunk))
    answer = submit(core, [i % 61 for i in range(length)], SamplingParams(temperature=0.0, drafts="on"))
    drain(core)
    assert answer.ids == solo(answer, MODEL, 128 - length)
    check_empty(core)


@pytest.mark.parametrize("short", range(6))
def test_length_is_reached_exactly(short: int) -> None:
    """Case D2: the last steps carry fewer drafts, and nobody loses length."""
    core = make_core(accept=lambda seed, position: 4)
    prompt = [i % 61 for i in range(120)]
    answer = submit(core, prompt, SamplingParams(temperature=0.0, max_tokens=8 - short, drafts="on"))
    drain(core)
    assert answer.ids == solo(answer, MODEL, 8 - short)
    assert answer.last.finish == "length"


@pytest.mark.parametrize("length", [31, 32, 33, 100])
def test_past_the_drafters_positions(length: int) -> None:
    """Case D1: no drafts beyond, the same text, and a counter."""
    core = make_core(accept=lambda seed, position: 4, draft_max_position=32)
    answer = submit(core, [i % 61 for i in range(length)], SamplingParams(temperature=0.0, max_tokens=20, drafts="on"))
    drain(core)
    assert answer.ids == solo(answer, MODEL, 20)
    stats = answer.last.drafts
    assert stats is not None
    assert stats.drafted == 0
    assert stats.without == {"position": 18, "length": 1}  # the step that ends the prompt is no decode row
    core = make_core(accept=lambda seed, position: 4, draft_max_position=32)
    answer = submit(core, list(range(20)), SamplingParams(temperature=0.0, max_tokens=20, drafts="on"))
    drain(core)
    assert answer.ids == solo(answer, MODEL, 20)
    assert answer.last.drafts is not None
    assert answer.last.drafts.drafted == 4 + 4 + 1  # anchors at 20, 25, 30: position 31 is the last
    assert answer.last.drafts.without["position"] > 0


@pytest.mark.parametrize("slot", range(5))
def test_eos_at_every_draft_slot(slot: int) -> None:
    """Case F2, through the loop: the answer ends at the end token wherever in a run of drafts it falls."""
    text = MODEL.generate([1, 2, 3], 30, Row())[0]
    place = next(i for i in range(6, 30) if text[i] not in text[:i])
    core = make_core(accept=lambda seed, position: 4, eos_ids=frozenset({text[place]}))
    lead = text[: place - slot]  # the run that starts after `lead` has the end token at `slot`
    answer = submit(core, [1, 2, 3, *lead[:-1]], SamplingParams(temperature=0.0, max_tokens=30, drafts="on"))
    drain(core)
    assert answer.ids == text[place - slot - 1 : place + 1]
    assert answer.last.finish == "eos"
    assert answer.last.drafts is not None
    assert answer.last.drafts.num_tokens == len(answer.ids) == len(answer.logprobs)
    assert answer.last.drafts.num_accepted == min(slot + 1, 4), "accepted drafts after the end do not count"
    check_empty(core)


@pytest.mark.parametrize(("tokens", "drafted"), [(1, 0), (2, 0), (3, 1), (6, 4), (7, 4), (8, 4 + 1), (11, 4 + 4)])
def test_no_draft_is_offered_that_could_not_be_kept(tokens: int, drafted: int) -> None:
    """A row with n tokens to go carries n - 1 drafts at most: the last token is the target's own."""
    core = make_core(accept=lambda seed, position: 4)
    answer = submit(core, [1, 2, 3], SamplingParams(temperature=0.0, max_tokens=tokens, drafts="on"))
    drain(core)
    assert answer.ids == solo(answer, MODEL, tokens)
    assert answer.last.drafts is not None
    assert answer.last.drafts.drafted == answer.last.drafts.num_accepted == drafted


def test_stop_ids_ignore_eos_and_stop_strings() -> None:
    model = TextModel(264, cycle=tuple(byte_ids("xENDyz")))
    decoder = ours("byte_level")
    start = byte_ids("x")

    def run(params: SamplingParams) -> Answer:
        core = make_core(
            model=model, vocab_size=264, accept=lambda s, p: p % 5, eos_ids=frozenset(byte_ids("y")), decoder=decoder
        )
        answer = submit(core, start, params)
        drain(core)
        check_empty(core)
        return answer

    base = SamplingParams(temperature=0.0, max_tokens=20, drafts="on")
    eos = run(base)
    assert (eos.last.finish, eos.ids) == ("eos", byte_ids("ENDy"))
    ignored = run(SamplingParams(temperature=0.0, max_tokens=20, drafts="on", ignore_eos=True))
    assert (ignored.last.finish, len(ignored.ids)) == ("length", 20)
    own = run(SamplingParams(temperature=0.0, max_tokens=20, drafts="on", stop_token_ids=tuple(byte_ids("N"))))
    assert (own.last.finish, own.ids) == ("stop_token", byte_ids("EN"))
    string = run(SamplingParams(temperature=0.0, max_tokens=20, drafts="on", stop=("ND",)))
    assert (string.last.finish, string.ids) == ("stop_string", byte_ids("END"))


def test_batch_equals_solo_in_every_order() -> None:
    """Case E1: 24 orders of four requests of different lengths and accepted counts."""
    prompts = [[1, 2, 3], [4] * 9, list(range(20)), [7]]
    params = [
        SamplingParams(temperature=t, seed=s, max_tokens=m, drafts=d)
        for t, s, m, d in ((0.0, 1, 9, "on"), (0.7, 2, 17, "auto"), (1.3, 3, 5, "off"), (1.0, 4, 25, "on"))
    ]
    for order in itertools.permutations(range(4)):
        core = make_core(accept=lambda seed, position: (seed + position) % 5, max_tokens=24)
        answers = {i: submit(core, prompts[i], params[i]) for i in order}
        drain(core)
        for i, answer in answers.items():
            assert answer.ids == solo(answer, MODEL, params[i].max_tokens or 0)
        check_empty(core)


@pytest.mark.parametrize("number", [1, 2, 4, 8, 16])
def test_many_requests_with_different_accept_counts(number: int) -> None:
    """Case E2."""
    core = make_core(accept=lambda seed, position: seed % 5)
    answers = [
        submit(core, [i + 1] * (i + 1), SamplingParams(temperature=0.9, seed=i, max_tokens=10 + i, drafts="on"))
        for i in range(number)
    ]
    drain(core)
    for i, answer in enumerate(answers):
        assert answer.ids == solo(answer, MODEL, 10 + i)
    check_empty(core)


def test_reused_slot_forgets_its_last_owner() -> None:
    """Case E4: a long request, then a short one on the same slot."""
    core = make_core(accept=lambda seed, position: 3, max_rows=1)
    submit(core, [i % 61 for i in range(100)], GREEDY)
    short = submit(core, [5, 6, 7], GREEDY)
    drain(core)
    assert short.ids == solo(short, MODEL, 12)


def test_every_request_is_told_step_by_step() -> None:
    core = make_core(accept=lambda seed, position: 2)
    answer = submit(core, [1, 2, 3], GREEDY)
    sizes = []
    while not core.is_idle:
        before = len(answer.ids)
        core.step()
        sizes.append(len(answer.ids) - before)
    assert sizes[0] == 1
    assert max(sizes) == 3
    assert sum(sizes) == 12
    assert np.allclose(answer.logprobs, MODEL.generate([1, 2, 3], 12, Row())[1], atol=1e-5)


def test_bad_request_harms_nobody() -> None:
    """Case A20: send bad, then good."""
    core = make_core()
    for ids in ([-1], [61], [2**31], [], [0.5]):
        with pytest.raises(HspecError):
            submit(core, ids, GREEDY)
    good = submit(core, [60, 3], GREEDY)
    drain(core)
    assert good.ids == solo(good, MODEL, 12)


def test_stop_strings_need_a_tokenizer() -> None:
    with pytest.raises(HspecError, match="R206"):
        submit(make_core(), [1], SamplingParams(stop=("x",)))


def test_unseeded_requests_differ() -> None:
    """Case C13."""
    core = make_core(max_rows=8)
    answers = [submit(core, [1, 2], SamplingParams(temperature=1.0, max_tokens=6)) for _ in range(20)]
    drain(core)
    assert len({tuple(answer.ids) for answer in answers}) > 15


def test_unset_temperature_is_one() -> None:
    """Case C8."""
    core = make_core(max_rows=8)
    answers = [submit(core, [1, 2], SamplingParams(top_k=50, max_tokens=1)) for _ in range(100)]
    drain(core)
    assert len({tuple(answer.ids) for answer in answers}) > 1


def test_first_row_and_first_token_are_timed_also_where_nobody_reads_along() -> None:
    core = make_core()
    updates: list[Update] = []
    seq = core.make([1, 2], SamplingParams(max_tokens=5, temperature=0.0), updates.append, streaming=False)
    core.add(seq)
    core.step()
    assert seq.arrived <= seq.scheduled <= seq.first_token
    assert not updates
    first_token = seq.first_token
    drain(core)
    (last,) = updates
    assert last.timing is not None
    assert last.timing.first_token == first_token < last.timing.finished
    assert last.timing.scheduled == seq.scheduled

# SPDX-License-Identifier: Apache-2.0
"""Guided decoding: whatever the model and the drafts want, the text fits the grammar and ends where it must."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from hspec_trt.config.build import EXTENSION_NAMES
from hspec_trt.config.sampling import GuidedDecodingParams, SamplingParams
from hspec_trt.errors import RequestError
from hspec_trt.runtime.core import EngineCore
from hspec_trt.runtime.guided import GuideMaker
from hspec_trt.runtime.lookup import ScriptedDrafts
from tests.support.scripted import Accept, TextModel
from tests.support.tokenizers_toy import byte_ids, byte_level, ours
from tests.unit.runtime.harness import Answer, check_empty, drain, make_core, submit

pytest.importorskip("llguidance")
TOKENIZER = ours("byte_level")
SIZE = byte_level().get_vocab_size(with_added_tokens=True)
EOS = SIZE - 1
SCHEMA = {
    "type": "object",
    "properties": {"n": {"type": "integer", "minimum": 0, "maximum": 99}, "ok": {"type": "boolean"}},
    "required": ["n", "ok"],
    "additionalProperties": False,
}


@pytest.fixture(scope="module")
def guides(tmp_path_factory: pytest.TempPathFactory) -> GuideMaker:
    path = tmp_path_factory.mktemp("tokenizer") / "tokenizer.json"
    path.write_text(byte_level().to_str())
    return GuideMaker(path, SIZE, [EOS])


def make(guides: GuideMaker, accept: Accept = lambda s, p: 0, **options: object) -> EngineCore:
    return make_core(
        model=TextModel(SIZE), vocab_size=SIZE, extensions=EXTENSION_NAMES, accept=accept, decoder=TOKENIZER,
        guides=guides, eos_ids=frozenset({EOS}), **options,
    )  # fmt: skip


def ask(core: EngineCore, guide: GuidedDecodingParams, *, seed: int = 1, **options: object) -> Answer:
    values: dict[str, object] = {"temperature": 1.0, "seed": seed, "max_tokens": 100, "drafts": "on"}
    params = SamplingParams(guided_decoding=guide, **(values | options))  # type: ignore[arg-type]
    return submit(core, byte_ids("x"), params)


@pytest.mark.parametrize("drafts", ["off", "on"])
@pytest.mark.parametrize("seed", range(4))
def test_regex(guides: GuideMaker, drafts: str, seed: int) -> None:
    core = make(guides, accept=lambda s, p: p % 5)
    answer = ask(core, GuidedDecodingParams(regex=r"[ab]{3,9}END[0-9]"), seed=seed, drafts=drafts)
    drain(core)
    assert re.fullmatch(r"[ab]{3,9}END[0-9]", TOKENIZER.decode(answer.ids))
    assert answer.last.finish == "eos"
    check_empty(core)


@pytest.mark.parametrize("right", range(5))
def test_drafts_change_nothing(guides: GuideMaker, right: int) -> None:
    """Case F14: drafts break the grammar at every slot, or run past its end; the text is that without drafts."""
    texts = set()
    for drafts, source in (("off", None), ("on", None), ("on", "prompt_lookup")):
        core = make(guides, accept=lambda s, p: right)
        answer = ask(core, GuidedDecodingParams(json=json.dumps(SCHEMA)), drafts=drafts, draft_source=source)
        drain(core)
        texts.add(tuple(answer.ids))
        value = json.loads(TOKENIZER.decode(answer.ids))
        assert set(value) == {"n", "ok"}
        assert 0 <= value["n"] <= 99
        assert isinstance(value["ok"], bool)
    assert len(texts) == 1


@pytest.mark.parametrize("right", range(5))
def test_a_draft_may_complete_the_grammar(guides: GuideMaker, right: int) -> None:
    """The row after the token that leaves nothing to add allows an end token only."""
    text = "abcdefgh"
    core = make(guides, accept=lambda s, p: right)
    answer = Answer(byte_ids("x"), SamplingParams(temperature=1.0, seed=1, max_tokens=20, drafts="on"))
    params = replace(answer.params, guided_decoding=GuidedDecodingParams(regex=text))
    script = ScriptedDrafts(np.array(byte_ids("x" + text), np.int32), right, SIZE)
    core.add(core.make(answer.prompt, params, answer.updates.append, host_drafts=script))
    drain(core)
    assert answer.ids == [*byte_ids(text), EOS]
    assert answer.last.drafts is not None
    assert answer.last.drafts.num_accepted == 0 or right


def test_choice_grammar_and_any_object(guides: GuideMaker) -> None:
    core = make(guides)
    choice = ask(core, GuidedDecodingParams(choice=("yes.", "no")))
    lark = ask(core, GuidedDecodingParams(grammar='start: "a" ("," /[bc]/)+ "!"'))
    ebnf = ask(core, GuidedDecodingParams(grammar='root ::= "a" ("," [bc])+ "!"'))
    anything = ask(core, GuidedDecodingParams(json_object=True), max_tokens=30)
    plain = submit(core, byte_ids("x"), SamplingParams(temperature=1.0, seed=9, max_tokens=12, ignore_eos=True))
    drain(core)
    assert TOKENIZER.decode(choice.ids) in ("yes.", "no")
    assert re.fullmatch(r"a(,[bc])+!?", TOKENIZER.decode(lark.ids))
    assert ebnf.ids == lark.ids
    assert TOKENIZER.decode(anything.ids).startswith("{")
    alone = make(guides)
    same = submit(alone, byte_ids("x"), plain.params)
    drain(alone)
    assert same.ids == plain.ids


def test_preempted_and_cancelled_answers(guides: GuideMaker) -> None:
    pattern = r"[a-d]{40,60}"
    core = make(guides, accept=lambda s, p: 2, num_pages=34)
    answers = [ask(core, GuidedDecodingParams(regex=pattern), seed=seed) for seed in range(5)]
    for _ in range(9):
        core.step()
    core.cancel(answers[0].sequence)  # type: ignore[arg-type]
    drain(core)
    assert core.stats.preemptions > 0
    assert answers[0].last.finish == "cancelled"
    for answer in answers[1:]:
        assert re.fullmatch(pattern, TOKENIZER.decode(answer.ids))
    check_empty(core)


def test_length_cuts_a_guided_text(guides: GuideMaker) -> None:
    core = make(guides)
    answer = ask(core, GuidedDecodingParams(regex="a{50}"), max_tokens=5)
    drain(core)
    assert answer.last.finish == "length"
    assert TOKENIZER.decode(answer.ids) == "a" * 5


@pytest.mark.parametrize(
    "guide",
    [
        GuidedDecodingParams(regex="a("),
        GuidedDecodingParams(json="{"),
        GuidedDecodingParams(json='{"type": "nonsense"}'),
        GuidedDecodingParams(grammar="start: nothing"),
        GuidedDecodingParams(grammar="root ::= ("),
    ],
    ids=str,
)
def test_what_cannot_be_read_is_refused(guides: GuideMaker, guide: GuidedDecodingParams) -> None:
    with pytest.raises(RequestError) as caught:
        ask(make(guides), guide)
    assert caught.value.code == "R220"


def test_engine_without_tokenizer_or_end_token(tmp_path: Path) -> None:
    for maker in (GuideMaker(None, SIZE, [EOS]), GuideMaker(tmp_path / "t.json", SIZE, [])):
        with pytest.raises(RequestError, match="R223"):
            ask(make(maker), GuidedDecodingParams(regex="a"))

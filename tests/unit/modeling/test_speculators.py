# SPDX-License-Identifier: Apache-2.0
"""DFlash, DSpark and P-EAGLE references against the modules of the PyPI package ``speculators``, run here: random
weights, layers that differ, several anchors in one pass. EAGLE-3's is compared through golden vectors (test_eagle3.py).

The package's forward pass is its training pass, run with attention that needs no GPU. P-EAGLE's random choice of chains
is put aside, and so is every loss, which is where logits are taken from.
"""

from __future__ import annotations

import importlib
import json
import sys
from dataclasses import dataclass
from types import ModuleType

import pytest
import torch

from hspec_trt.modeling.block import BlockDrafter, BlockInputs
from hspec_trt.modeling.load import block_module
from tests.support.golden_drafters import GoldenCase, fill, load_case, tables_of
from tests.support.random_drafter import fill_randomly
from tests.support.tolerance import assert_golden

pytestmark = pytest.mark.skipif(sys.version_info < (3, 11), reason="the speculators package needs Python 3.11")

SLIDING, FULL = "sliding_attention", "full_attention"
LENGTH = 40
WINDOW = 9  # longer than every block: the package's training knows no window inside a block, serving does
ANCHORS = (3, 14, 29)
CLASSES = {"dflash": "DFlash", "dspark": "DSpark", "peagle": "PEagle"}
CASES: dict[str, tuple[str, dict[str, object], list[str]]] = {
    "dflash": ("dflash_qwen3", {}, [SLIDING, FULL, SLIDING]),
    "dflash, bidirectional in the window": ("dflash_qwen3", {"sliding_window_non_causal": True}, [SLIDING, FULL]),
    "dflash, rope scaling": ("dflash_llama_full", {}, [FULL, FULL]),
    "dspark": ("dspark_qwen3", {}, [FULL, SLIDING]),
    "dspark, gated": ("dspark_infill_gated", {}, [FULL, FULL]),
    "dspark, rnn": ("dspark_llama_rnn", {}, [SLIDING, FULL]),
    "peagle": ("peagle_qwen3", {}, [SLIDING, FULL, SLIDING]),
    "peagle, norms and rope scaling": ("peagle_llama", {}, [FULL, FULL]),
    "peagle, a norm for each state": ("peagle_qwen3", {"fc_norm": True, "norm_before_residual": True}, [FULL, SLIDING]),
}


@dataclass(frozen=True)
class Text:
    """Random tokens ``[T]`` with their concatenated target states ``[T, F * hidden]``."""

    ids: torch.Tensor
    states: torch.Tensor
    hidden_size: int

    @property
    def document(self) -> torch.Tensor:
        """Number of the document that each token belongs to ``[1, T]``: one for all."""
        return torch.zeros(1, LENGTH, dtype=torch.long)

    @property
    def last_states(self) -> torch.Tensor:
        """What the loss would compare with ``[1, T, hidden]``."""
        return torch.zeros(1, LENGTH, self.hidden_size)

    @property
    def next_ids(self) -> torch.Tensor:
        """The token after each ``[1, T]``."""
        return self.ids.roll(-1)[None]


@dataclass(frozen=True)
class Said:
    """What a pass over blocks gave: states ``[A, B, hidden]``, logits ``[A, B, Vd]``, confidence logits ``[A, B]``."""

    hidden: torch.Tensor
    logits: torch.Tensor
    confidence: torch.Tensor | None = None


def changed_config(name: str, changes: dict[str, object], layer_types: list[str]) -> dict[str, object]:
    config: dict = json.loads(json.dumps(load_case(name).config_json)) | changes
    config["speculators_config"]["verifier"]["name_or_path"] = None  # a name would be looked for on the network
    sliding = SLIDING in layer_types
    config["transformer_layer_config"] |= {
        "layer_types": layer_types,
        "num_hidden_layers": len(layer_types),
        "sliding_window": WINDOW if sliding else None,
        "use_sliding_window": sliding,
    }
    return config


def official(config: dict[str, object]) -> tuple[torch.nn.Module, ModuleType]:
    """The package's module with random weights, and where its class is defined."""
    kind = str(config["speculators_model_type"])
    package = importlib.import_module(f"speculators.models.{kind}")
    core = importlib.import_module(f"speculators.models.{kind}.core")
    parsed = getattr(package, f"{CLASSES[kind]}SpeculatorConfig").model_validate(config)
    parsed.transformer_layer_config._attn_implementation = "eager"
    model = getattr(package, f"{CLASSES[kind]}DraftModel")(parsed)
    fill_randomly(model, seed=8)
    return model.eval(), core


def ours(model: torch.nn.Module, config: dict[str, object], name: str) -> BlockDrafter:
    """Our module, its configuration read from the package's and its weights taken from there."""
    golden = load_case(name)
    arrays = {key: value.numpy() for key, value in model.state_dict().items() if not key.startswith("verifier_")}
    if "d2t" in arrays:
        arrays |= {key: golden.arrays[key] for key in ("d2t", "t2d")}
    case = GoldenCase(name, golden.target, config, arrays, {})
    layout = case.layout()
    return fill(block_module(layout.config, tables_of(case, layout.config)), case)


def random_text(model: BlockDrafter) -> Text:
    generator = torch.Generator().manual_seed(3)
    config = model.drafter_config
    ids = torch.randint(0, 255, (LENGTH,), generator=generator)
    states = torch.randn(LENGTH, len(config.fused_layers) * config.hidden_size, generator=generator)
    return Text(ids, states, config.hidden_size)


class Taken:
    """Hidden states and logits of the package's module, taken where it would compute its loss."""

    def __init__(self, model: torch.nn.Module, core: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
        self.hidden = self.logits = torch.empty(0)
        self.confidence: torch.Tensor | None = None
        self._has_confidence = getattr(model, "confidence_head", None) is not None
        monkeypatch.setattr(core, "compute_metrics", self._metrics)
        model.get_submodule("lm_head").register_forward_pre_hook(self._hidden)

    def _hidden(self, module: torch.nn.Module, args: tuple[torch.Tensor, ...]) -> None:
        self.hidden = args[0]

    def _metrics(self, logits: torch.Tensor, *args: torch.Tensor, **named: object) -> tuple[torch.Tensor, dict]:
        """In place of the loss; DSpark's takes the targets and then the confidence."""
        self.logits, self.confidence = logits, args[1] if self._has_confidence else None
        return logits.sum(), {}


@torch.no_grad()
def their_blocks(model: torch.nn.Module, taken: Taken, text: Text, slots: int) -> Said:
    """Blocks of DFlash and DSpark; the tokens of a block are the text's."""
    chosen = torch.zeros(1, LENGTH).index_fill(1, torch.tensor(ANCHORS), 1.0)
    model(text.states[None], text.ids[None], chosen, text.last_states, text.document, max_anchors=len(ANCHORS))
    hidden, logits = (part.unflatten(1, (len(ANCHORS), slots))[0] for part in (taken.hidden, taken.logits))
    confidence = None if taken.confidence is None else taken.confidence.view(len(ANCHORS), slots)
    return Said(hidden, logits, confidence)


@torch.no_grad()
def their_chains(
    model: torch.nn.Module, core: ModuleType, taken: Taken, text: Text, slots: int, monkeypatch: pytest.MonkeyPatch
) -> Said:
    """Chains of P-EAGLE: every entry of the text, then the mask entries of each anchor, depth by depth."""
    ends = torch.tensor(ANCHORS) - 1
    places = torch.cat([torch.arange(LENGTH), ends.repeat(slots - 1)])
    depths = torch.cat([torch.zeros(LENGTH, dtype=torch.long), torch.arange(1, slots).repeat_interleave(len(ends))])
    monkeypatch.setattr(core, "generate_cod_sample_indices", lambda **_: (places, depths))
    model(text.states[None], text.next_ids, text.document, verifier_last_hidden_states=text.last_states)
    rows = torch.cat([ends[:, None], LENGTH + torch.arange((slots - 1) * len(ends)).view(slots - 1, -1).T], dim=1)
    return Said(taken.hidden[0, rows], taken.logits[0, rows])


@torch.no_grad()
def our_blocks(model: BlockDrafter, text: Text, previous: torch.Tensor) -> Said:
    """The same of ours; `previous` is the token before each slot ``[1, A, B]``."""
    anchors = torch.tensor(ANCHORS)[None]
    ids = text.ids[anchors]
    inputs = BlockInputs(ids, anchors, torch.empty(0), {}, {}, text.states[None], next_ids=text.next_ids)
    hidden = model.hidden(inputs, window_edge="anchor")
    logits = model.logits(hidden)
    if model.markov_head is not None:
        rows = model.markov_rows(inputs, previous[..., model.first_slot :], hidden)
        assert rows is not None
        logits[..., model.first_slot :, :] += model.markov_head.correction(rows)
    confidence = model.confidence(hidden, previous)
    return Said(hidden[0], logits[0], None if confidence is None else confidence[0])


@pytest.mark.parametrize("what", CASES)
def test_blocks_match_the_packages_modules(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    name, changes, layer_types = CASES[what]
    config = changed_config(name, changes, layer_types)
    theirs, core = official(config)
    model = ours(theirs, config, name)
    text, taken, first = random_text(model), Taken(theirs, core, monkeypatch), model.first_slot
    chained = name.startswith("peagle")
    slots = model.num_drafts if chained else model.drafter_config.block_size
    want = (
        their_chains(theirs, core, taken, text, slots, monkeypatch)
        if chained
        else their_blocks(theirs, taken, text, slots)
    )
    before = (torch.arange(slots) - first).clamp(min=0)
    got = our_blocks(model, text, text.ids[torch.tensor(ANCHORS)[:, None] + before][None])
    assert_golden(got.hidden, want.hidden, "hidden")
    assert_golden(got.logits[:, first:], want.logits[:, first:], "logits")
    assert float(want.logits.std()) > 0.1, "logits of one value say little"
    assert (want.confidence is None) == (got.confidence is None) == (not name.startswith("dspark"))
    if want.confidence is not None and got.confidence is not None:
        assert_golden(got.confidence, want.confidence, "confidence")

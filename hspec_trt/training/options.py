# SPDX-License-Identifier: Apache-2.0
"""What a user asks of a training run. The only place where these defaults stand. Needs no PyTorch."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Final, Literal

from hspec_trt.config.drafter import SeedMode, SubLayer
from hspec_trt.config.drafters_block import MarkovType
from hspec_trt.errors import DrafterError, Faults

Optimizer = Literal["muon", "adamw"]
OPTIMIZERS: tuple[Optimizer, ...] = ("muon", "adamw")
Schedule = Literal["cosine", "late"]
SCHEDULES: tuple[Schedule, ...] = ("cosine", "late")
Device = Literal["auto", "cpu", "cuda"]
DEVICES: tuple[Device, ...] = ("auto", "cpu", "cuda")

RELEASED_PATTERN: tuple[SubLayer, ...] = ("mamba", "mlp", *(("mamba", "attention", "mlp") * 3))


@dataclass(frozen=True)
class LossMix:
    """Weights of the terms.

    Attributes:
        ce: cross entropy to the target's first choice.
        tv: total variation, half the L1 distance of the distributions: 1 - sum min(q, pi).
        confidence: binary cross entropy of the confidence head to sum min(q, pi).
    """

    ce: float = 0.1
    tv: float = 0.9
    confidence: float = 1.0


@dataclass(frozen=True)
class ShapeOptions:
    """Sizes of a new drafter; None takes the target's. Which drafter takes which is said in `hspec_trt.training.types`.

    Attributes:
        num_layers: draft layers of a drafter that is not made of a block pattern.
        kv_layers: per attention sub-layer, the target layer whose K and V it reads.
        fused_layers: L of the fused states ``h^(L)``.
        draft_vocab_size: None is the whole vocabulary.
        sliding_window: tokens; 0 is full attention, which is bidirectional inside the block.
        mamba_*: heads, channels per head, state size, B/C groups and conv width.
        fc_norm: RMSNorm on each fused state.
        sample_from_anchor: slot k proposes the token after its own position, so that all slots propose one.
        markov_rank, markov_type: the correction by the previous draft; rank 0 is none.
        state_injection, target_kv_reuse: False is an ablation, as is a pattern without mamba or attention.
        train_embedding: learn the embedding table, which the drafter then owns.
    """

    mask_token_id: int
    kv_layers: tuple[int, ...] = ()
    fused_layers: tuple[int, ...] = ()
    block_pattern: tuple[SubLayer, ...] = RELEASED_PATTERN
    num_layers: int = 5
    intermediate_size: int | None = None
    block_size: int = 8
    draft_vocab_size: int | None = None
    sliding_window: int = 2048
    mamba_num_heads: int = 48
    mamba_head_dim: int = 64
    mamba_d_state: int = 4
    mamba_n_groups: int = 4
    mamba_conv_kernel: int = 4
    seed_mode: SeedMode = "shared"
    fc_norm: bool = False
    sample_from_anchor: bool = False
    markov_rank: int = 256
    markov_type: MarkovType = "vanilla"
    confidence_head: bool = True
    state_injection: bool = True
    target_kv_reuse: bool = True
    train_embedding: bool = False


@dataclass(frozen=True)
class TrainOptions:
    """How a drafter is trained.

    Attributes:
        steps: optimizer steps; None follows from `epochs`.
        chunks_per_step, anchors_per_chunk: conversations in a batch, and blocks of each.
        lr: peak of the AdamW part; the muon part runs at `muon_factor` times that.
        warmup_steps: steps in which the rate rises.
        schedule: then it falls to `final_lr` times the peak: "cosine" all along; "late" stays at the peak and falls
            linearly over the last `decay` of the steps, so that a run may be made longer or shorter until then.
        short_slots: judged slots of a step, except that every `full_every`-th step judges all. None judges all always.
            Only for causal blocks, whose first slots do not depend on the others: it saves time where drafts beyond the
            first few are hardly ever accepted.
        cod_rate, cod_floor: thin out the slots of a block with their depth, see `hspec_trt.training.thinning`; None
            trains all. For drafters whose slots are a chain of mask entries (peagle).
        prompt_anchors: blocks also begin at prompt tokens. The target did not write them, but what it would say there
            is known all the same: more than twice the data where prompts are long. The cache then keeps all rows.
        noise: half width of uniform noise on the states, keys and values that a block reads.
        clip: norm to which gradients are cut.
        seed: of initial weights, order of batches, noise and thinning.
        data_seed: of the order of conversations and of what is held out; runs with the same one share a teacher cache.
        max_conversations: use only so many, drawn at random; None is all.
        held_out: share of prompts kept for evaluation.
        eval_conversations: held-out conversations of an evaluation on the way; the last one takes all.
        max_tokens: longer conversations are left out.
        cache_hidden_layers, cache_kv_layers, cache_all_rows: what the teacher cache keeps, for runs of other drafters
            on the same cache; empty and False keep what this one reads.
        device: where target and drafter run; "auto" is CUDA where PyTorch finds it. A run may go on on another one.
    """

    steps: int | None = None
    epochs: float = 5.0
    chunks_per_step: int = 16
    anchors_per_chunk: int = 16
    optimizer: Optimizer = "muon"
    lr: float = 6e-4
    muon_factor: float = 10.0
    weight_decay: float = 0.01
    muon_weight_decay: float = 0.1
    schedule: Schedule = "cosine"
    warmup_steps: int = 50
    decay: float = 0.3
    final_lr: float = 0.0
    short_slots: int | None = None
    full_every: int = 4
    cod_rate: float | None = None
    cod_floor: float = 0.2
    clip: float = 1.0
    mix: LossMix = field(default_factory=LossMix)
    seed: int = 0
    data_seed: int = 0
    max_conversations: int | None = None
    held_out: float = 0.05
    eval_conversations: int = 48
    eval_minutes: float = 10.0
    save_minutes: float = 5.0
    max_tokens: int = 512
    cache_hidden_layers: tuple[int, ...] = ()
    cache_kv_layers: tuple[int, ...] = ()
    cache_all_rows: bool = False
    prompt_anchors: bool = False
    noise: float = 0.0
    bfloat16: bool = True
    device: Device = "auto"


_MOST: Final = 2**31 - 1
_TINY: Final = 1e-30
_RANGES: Final[dict[str, tuple[float, float]]] = {
    "num_layers": (1, 1024),
    "draft_vocab_size": (1, _MOST),
    "intermediate_size": (1, 2**20),
    "block_size": (2, 64),
    "sliding_window": (0, _MOST),
    "mamba_num_heads": (1, 1024),
    "mamba_head_dim": (1, 1024),
    "mamba_d_state": (1, 1024),
    "mamba_n_groups": (1, 1024),
    "mamba_conv_kernel": (1, 16),
    "markov_rank": (0, 2**14),
    "steps": (1, _MOST),
    "epochs": (_TINY, 1e6),
    "chunks_per_step": (1, _MOST),
    "anchors_per_chunk": (1, _MOST),
    "lr": (_TINY, 1e3),
    "muon_factor": (_TINY, 1e6),
    "weight_decay": (0, 1e3),
    "muon_weight_decay": (0, 1e3),
    "warmup_steps": (0, _MOST),
    "decay": (0, 1),
    "final_lr": (0, 1),
    "short_slots": (1, _MOST),
    "full_every": (1, _MOST),
    "cod_rate": (_TINY, 1),
    "cod_floor": (0, 1),
    "clip": (_TINY, 1e30),
    "ce": (0, 1e6),
    "tv": (0, 1e6),
    "confidence": (0, 1e6),
    "seed": (0, _MOST),
    "data_seed": (0, _MOST),
    "max_conversations": (1, _MOST),
    "held_out": (0, 1),
    "eval_conversations": (0, _MOST),
    "eval_minutes": (0, 1e9),
    "save_minutes": (0, 1e9),
    "max_tokens": (2, _MOST),
    "noise": (0, 1e3),
}
"""Least and largest value of every number; sizes of a drafter as the reader of its checkpoint has them."""


def check_options(shape: ShapeOptions, options: TrainOptions) -> None:
    """Refuse numbers that no training can work with; those out of their range all together.

    Raises:
        DrafterError: D224.
    """
    faults = Faults()
    for flag, name, value in _numbers(shape, options):
        low, high = _RANGES[name]
        if not low <= value <= high:  # not so for NaN either
            least = "more than 0" if low == _TINY else f"{low:g}"
            faults.add(DrafterError("D224", f"{flag} {value}", needed=f"{least} to {high:.10g}", where=flag))
    faults.raise_any()
    if shape.mamba_num_heads % shape.mamba_n_groups:
        found = f"{shape.mamba_num_heads} mamba heads in {shape.mamba_n_groups} groups"
        raise DrafterError("D224", found, needed="groups of one size", where="--mamba-n-groups")


def _numbers(shape: ShapeOptions, options: TrainOptions) -> Iterator[tuple[str, str, float]]:
    """Flag, field and value of each number that is given."""
    for config, ending in ((shape, ""), (options, ""), (options.mix, "-weight")):
        for name, value in vars(config).items():
            if name in _RANGES and value is not None:
                yield f"--{name.replace('_', '-')}{ending}", name, value


_FREE = (
    "cache_all_rows",
    "cache_hidden_layers",
    "cache_kv_layers",
    "decay",
    "device",
    "epochs",
    "eval_conversations",
    "eval_minutes",
    "save_minutes",
    "steps",
)
"""Options that may change when a run is resumed; steps and decay only while they have not shown in the rate."""


def recipe_json(kind: str, shape: ShapeOptions, options: TrainOptions, *, target: str, data: str) -> str:
    """What decides the result, but for the number of steps, as sorted JSON: a run resumes only with the same.

    Args:
        target, data: their fingerprints.
    """
    decided = {name: value for name, value in asdict(options).items() if name not in _FREE}
    recipe = {"drafter_type": kind, "target": target, "data": data, "shape": asdict(shape), "options": decided}
    return json.dumps(recipe, sort_keys=True, indent=1)

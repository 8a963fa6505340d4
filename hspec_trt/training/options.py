# SPDX-License-Identifier: Apache-2.0
"""What a user asks of a training run. The only place where these defaults stand. Needs no PyTorch."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import Literal

from hspec_trt.config.drafter import SeedMode, SubLayer

Optimizer = Literal["muon", "adamw"]
OPTIMIZERS: tuple[Optimizer, ...] = ("muon", "adamw")
Schedule = Literal["cosine", "late"]
SCHEDULES: tuple[Schedule, ...] = ("cosine", "late")

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
    """Sizes of a new drafter; None takes the target's.

    Attributes:
        kv_layers: per attention sub-layer, the target layer whose K and V it reads.
        fused_layers: L of the fused states ``h^(L)``.
        draft_vocab_size: None is the whole vocabulary.
        sliding_window: tokens; 0 is full attention, which is bidirectional inside the block.
        mamba_*: heads, channels per head, state size, B/C groups and conv width.
        state_injection, target_kv_reuse: False is an ablation, as is a pattern without mamba or attention.
    """

    mask_token_id: int
    kv_layers: tuple[int, ...] = ()
    fused_layers: tuple[int, ...] = ()
    block_pattern: tuple[SubLayer, ...] = RELEASED_PATTERN
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
    markov_rank: int = 256
    confidence_head: bool = True
    state_injection: bool = True
    target_kv_reuse: bool = True


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
        prompt_anchors: blocks also begin at prompt tokens. The target did not write them, but what it would say there
            is known all the same: more than twice the data where prompts are long. The cache then keeps all rows.
        noise: half width of uniform noise on the states, keys and values that a block reads.
        clip: norm to which gradients are cut.
        held_out: share of prompts kept for evaluation.
        eval_conversations: held-out conversations of an evaluation on the way; the last one takes all.
        max_tokens: longer conversations are left out.
        cache_hidden_layers, cache_kv_layers: target layers whose states the teacher cache keeps, for runs with other
            layers on the same cache; empty keeps what the drafter reads.
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
    clip: float = 1.0
    mix: LossMix = field(default_factory=LossMix)
    seed: int = 0
    held_out: float = 0.05
    eval_conversations: int = 48
    eval_minutes: float = 10.0
    save_minutes: float = 5.0
    max_tokens: int = 512
    cache_hidden_layers: tuple[int, ...] = ()
    cache_kv_layers: tuple[int, ...] = ()
    prompt_anchors: bool = False
    noise: float = 0.0
    bfloat16: bool = True


_FREE = (
    "cache_hidden_layers",
    "cache_kv_layers",
    "decay",
    "epochs",
    "eval_conversations",
    "eval_minutes",
    "save_minutes",
    "steps",
)
"""Options that may change when a run is resumed; steps and decay only while they have not shown in the rate."""


def recipe_json(kind: str, shape: ShapeOptions, options: TrainOptions) -> str:
    """What decides the result, but for the number of steps, as sorted JSON: a run resumes only with the same."""
    decided = {name: value for name, value in asdict(options).items() if name not in _FREE}
    return json.dumps({"drafter_type": kind, "shape": asdict(shape), "options": decided}, sort_keys=True, indent=1)

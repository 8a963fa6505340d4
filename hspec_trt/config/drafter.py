# SPDX-License-Identifier: Apache-2.0
"""Drafter configurations: what every block drafter has in common, and one dataclass per drafter.

Layer ids are in the one internal convention: ``h^(L)`` is the residual stream after L decoder layers (0 = embedding).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from hspec_trt.config.rope import RopeConfig

SubLayer = Literal["mamba", "attention", "mlp"]
SeedMode = Literal["shared", "per_layer", "once"]


@dataclass(frozen=True)
class DrafterConfig:
    """What the engine must know of any drafter.

    Attributes:
        kind: name of the drafter in our tables ("hspec", ...).
        block_size: query slots B of one draft pass, the anchor included.
        num_drafts: proposed tokens G of one step.
        draft_vocab_size: rows Vd of the drafter's head.
        fused_layers: L of each target state ``h^(L)`` that is fused, in concatenation order; empty where none is.
        max_position: positions the drafter was trained for; drafting stops beyond.
    """

    kind: str
    vocab_size: int
    draft_vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    rms_norm_eps: float
    rope: RopeConfig
    block_size: int
    num_drafts: int
    mask_token_id: int
    fused_layers: tuple[int, ...]
    max_position: int

    @property
    def reduced_vocab(self) -> bool:
        """True where the head covers only part of the target's vocabulary (a d2t table maps it)."""
        return self.draft_vocab_size != self.vocab_size

    @property
    def num_cache_layers(self) -> int:
        """Layers of the drafter's own K/V cache (``draft_kv_pages.{layer}``)."""
        return 0

    @property
    def read_kv_layers(self) -> tuple[int, ...]:
        """Target layers whose K and V the drafter reads in place, rising."""
        return ()

    @property
    def needs_next_ids(self) -> bool:
        """True where a step must be told the token that follows a row's last one (``next_ids``)."""
        return False


@dataclass(frozen=True)
class HSpecConfig(DrafterConfig):
    """H-Spec (``speculators_model_type`` "mamba_attn_hybrid").

    Attributes:
        block_pattern: flat list of residual sub-layers.
        attn_kv_layers: per attention sub-layer, the target layer whose K and V it reads.
        attn_windows: per attention sub-layer, sliding window in tokens; 0 is full attention, which is bidirectional
            inside the block (a sliding sub-layer is causal).
        mamba_*: heads, channels per head, state size, B/C groups and conv width.
        seed_mode: one seed projection for all mamba sub-layers, one each, or only the first is seeded.
        state_injection: False is the ablation ``disable_mamba_init_state_injection``.
        target_kv_reuse: False is the ablation ``disable_target_kv_reuse``.
    """

    block_pattern: tuple[SubLayer, ...] = ()
    attn_kv_layers: tuple[int, ...] = ()
    attn_windows: tuple[int, ...] = ()
    mamba_num_heads: int = 64
    mamba_head_dim: int = 64
    mamba_d_state: int = 16
    mamba_n_groups: int = 1
    mamba_conv_kernel: int = 4
    mamba_norm_eps: float = 1e-5
    seed_mode: SeedMode = "per_layer"
    fc_norm: bool = False
    use_qk_norm: bool = True
    attention_bias: bool = False
    markov_rank: int = 0
    confidence_head: bool = False
    confidence_with_markov: bool = False
    state_injection: bool = True
    target_kv_reuse: bool = True

    @property
    def read_kv_layers(self) -> tuple[int, ...]:
        """Target layers whose K and V the drafter reads in place, rising."""
        return tuple(sorted(set(self.attn_kv_layers)))

    @property
    def d_inner(self) -> int:
        """Channels of the mamba mixer."""
        return self.mamba_num_heads * self.mamba_head_dim

    @property
    def conv_dim(self) -> int:
        """Channels of the mamba convolution: x, B and C."""
        return self.d_inner + 2 * self.mamba_n_groups * self.mamba_d_state

    @property
    def num_seed_projections(self) -> int:
        """Seed projections stored in the checkpoint."""
        if not self.state_injection:
            return 0
        return self.block_pattern.count("mamba") if self.seed_mode == "per_layer" else 1

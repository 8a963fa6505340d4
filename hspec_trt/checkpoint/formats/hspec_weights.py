# SPDX-License-Identifier: Apache-2.0
"""Names and shapes of H-Spec's float weights in the published layout."""

from __future__ import annotations

from typing import Final

from hspec_trt.checkpoint.formats.weights import Shapes
from hspec_trt.config.drafter import HSpecConfig


def hspec_weights(config: HSpecConfig) -> Shapes:
    """Shape of every float weight by name, in the order of use; embedding and head included."""
    hidden, states = config.hidden_size, len(config.fused_layers)
    wanted: Shapes = {"embed_tokens.weight": (config.vocab_size, hidden)}
    if config.state_injection:
        if config.fc_norm:
            wanted |= {f"fc_norm.{i}.weight": (hidden,) for i in range(states)}
        wanted |= {"fc.weight": (hidden, states * hidden), "hidden_norm.weight": (hidden,)}
        seed = config.d_inner * config.mamba_d_state
        wanted |= {f"seed_projs.{j}.weight": (seed, hidden) for j in range(config.num_seed_projections)}
    for index, kind in enumerate(config.block_pattern):
        wanted |= {f"layers.{index}.{name}": dims for name, dims in _SUB_LAYERS[kind](config).items()}
    wanted |= {"norm.weight": (hidden,), "lm_head.weight": (config.draft_vocab_size, hidden)}
    if config.markov_rank:
        wanted["markov_head.markov_w1.weight"] = (config.vocab_size, config.markov_rank)
        wanted["markov_head.markov_w2.weight"] = (config.draft_vocab_size, config.markov_rank)
    if config.confidence_head:
        width = hidden + (config.markov_rank if config.confidence_with_markov else 0)
        wanted |= {"confidence_head.proj.weight": (1, width), "confidence_head.proj.bias": (1,)}
    return wanted


def _mamba(config: HSpecConfig) -> Shapes:
    heads, inner, conv = config.mamba_num_heads, config.d_inner, config.conv_dim
    return {
        "ssm_norm.weight": (config.hidden_size,),
        "ssm.in_proj.weight": (inner + conv + heads, config.hidden_size),
        "ssm.conv1d.weight": (conv, 1, config.mamba_conv_kernel),
        "ssm.conv1d.bias": (conv,),
        "ssm.A_log": (heads,),
        "ssm.D": (heads,),
        "ssm.dt_bias": (heads,),
        "ssm.norm.weight": (inner,),
        "ssm.out_proj.weight": (config.hidden_size, inner),
    }


def _attention(config: HSpecConfig) -> Shapes:
    hidden, head_dim = config.hidden_size, config.head_dim
    out = {"q": config.num_heads * head_dim, "k": config.num_kv_heads * head_dim, "v": config.num_kv_heads * head_dim}
    wanted: Shapes = {"input_layernorm.weight": (hidden,)}
    wanted |= {f"self_attn.{part}_proj.weight": (size, hidden) for part, size in out.items()}
    wanted["self_attn.o_proj.weight"] = (hidden, out["q"])
    if config.attention_bias:
        wanted |= {f"self_attn.{part}_proj.bias": (size,) for part, size in {**out, "o": hidden}.items()}
    if config.use_qk_norm:
        wanted |= {f"self_attn.{part}_norm.weight": (head_dim,) for part in "qk"}
    return wanted


def _mlp(config: HSpecConfig) -> Shapes:
    hidden, inner = config.hidden_size, config.intermediate_size
    return {
        "mlp_norm.weight": (hidden,),
        "mlp.gate_proj.weight": (inner, hidden),
        "mlp.up_proj.weight": (inner, hidden),
        "mlp.down_proj.weight": (hidden, inner),
    }


_SUB_LAYERS: Final = {"mamba": _mamba, "attention": _attention, "mlp": _mlp}

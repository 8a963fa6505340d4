# SPDX-License-Identifier: Apache-2.0
"""Memory and traffic of a target with a drafter, as numbers: parameters, K/V per token, writes per step, requests.

Owns every formula; each is tested against tensors that are really allocated. It knows configurations only: no file, no
graph, no machine.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from hspec_trt.config.drafter import DrafterConfig, HSpecConfig
from hspec_trt.config.drafters_block import DFlashConfig, DSparkConfig
from hspec_trt.config.drafters_eagle import Eagle3Config, PEagleConfig
from hspec_trt.config.target import TargetConfig
from hspec_trt.dtypes import DType

_STATE_BYTES: Final = 4  # the scan's initial state is float32 in every engine


@dataclass(frozen=True)
class Parameters:
    """Weights of a model, counted.

    Attributes:
        layers: decoder layers, fusion and norms: what is trained in every drafter.
        heads: Markov and confidence heads.
        embedding, head: tables; a drafter's are copies or rows of the target's, but for P-EAGLE's embedding.
    """

    layers: int
    heads: int
    embedding: int
    head: int

    @property
    def total(self) -> int:
        """All of them."""
        return self.layers + self.heads + self.embedding + self.head


@dataclass(frozen=True)
class KvCost:
    """K and V of one engine.

    Attributes:
        target_per_token, drafter_per_token: bytes that a token takes for as long as its request lives.
        drafter_per_request: bytes of drafter state that outlive a step, beyond the cache.
        scratch_per_row: bytes of K, V and state that one row's draft pass needs inside a step and then forgets.
    """

    target_per_token: int
    drafter_per_token: int
    drafter_per_request: int
    scratch_per_row: int

    @property
    def per_token(self) -> int:
        """Bytes that a token takes in all."""
        return self.target_per_token + self.drafter_per_token

    def written_per_step(self, query_len: int) -> int:
        """Bytes of pages that a step writes for a row of that many tokens, rejected drafts included."""
        return query_len * self.per_token

    def page_bytes(self, page_size: int) -> int:
        """Bytes of one page over all layers and pools."""
        return page_size * self.per_token

    def request_bytes(self, tokens: int, page_size: int) -> int:
        """Bytes of the pages of a request of that length."""
        return -(-tokens // page_size) * self.page_bytes(page_size) + self.drafter_per_request

    def requests_that_fit(self, memory: int, tokens: int, page_size: int) -> int:
        """Requests of that length at once in `memory` bytes of pages, the null page taken off."""
        return max(0, memory - self.page_bytes(page_size)) // self.request_bytes(tokens, page_size)


def kv_cost(target: TargetConfig, drafter: DrafterConfig | None, dtype: DType) -> KvCost:
    """K/V of an engine of type `dtype`."""
    own = target.kv_bytes_per_token(dtype.itemsize)
    if drafter is None:
        return KvCost(own, 0, 0, 0)
    per_layer = 2 * drafter.num_kv_heads * drafter.head_dim * dtype.itemsize
    slots, state = _scratch(drafter)
    return KvCost(own, drafter.num_cache_layers * per_layer, 0, slots * per_layer + state)


def draft_context_bytes(config: DrafterConfig, dtype: DType, context: int) -> int:
    """Bytes of K and V that a draft pass reads for a row of `context` tokens, from the target's pages or its own."""
    match config:
        case HSpecConfig():
            windows = config.attn_windows
        case DFlashConfig() | Eagle3Config():
            windows = config.windows
        case _:
            windows = ()
    read = sum(min(context, window) if window else context for window in windows)
    return read * 2 * config.num_kv_heads * config.head_dim * dtype.itemsize


def target_parameters(config: TargetConfig) -> Parameters:
    """Weights of a target as stored."""
    query, key = config.num_heads * config.head_dim, config.num_kv_heads * config.head_dim
    layer = _layer(
        config.hidden_size, config.intermediate_size, query, key, bias=config.attention_bias, mlp_bias=config.mlp_bias
    )
    layer += 2 * config.hidden_size + (2 * config.head_dim if config.qk_norm else 0)
    table = config.embedding_rows * config.hidden_size
    layers = config.num_layers * layer + config.hidden_size
    return Parameters(layers, 0, table, 0 if config.tie_word_embeddings else table)


def drafter_parameters(config: DrafterConfig) -> Parameters:
    """Weights of a drafter, its own tables counted whether or not they are the target's."""
    for kind, count in _LAYERS.items():
        if isinstance(config, kind):
            return Parameters(
                layers=count(config),
                heads=_heads(config),
                embedding=config.vocab_size * config.hidden_size,
                head=config.draft_vocab_size * config.hidden_size,
            )
    raise TypeError(f"no formula for {type(config).__name__}")


def memory_lines(target: TargetConfig, drafter: DrafterConfig | None, dtype: DType, page_size: int) -> dict[str, str]:
    """What ``build`` and ``inspect`` print of an engine, by title."""
    cost = kv_cost(target, drafter, dtype)
    width = 1 + (0 if drafter is None else drafter.num_drafts)
    lines = {
        "target parameters": f"{target_parameters(target).total:,}",
        "KV per token, target": f"{cost.target_per_token:,} B",
        "written per step and row": f"{cost.written_per_step(width):,} B ({width} tokens)",
        "requests of 4,096 tokens in 16 GiB": f"{cost.requests_that_fit(16 << 30, 4096, page_size):,}",
    }
    if drafter is None:
        return lines
    counted = drafter_parameters(drafter)
    return lines | {
        "drafter parameters": f"{counted.layers + counted.heads:,}, and tables of {counted.embedding + counted.head:,}",
        "KV per token, drafter": f"{cost.drafter_per_token:,} B",
        "draft pass scratch per row": f"{cost.scratch_per_row:,} B",
    }


def _layer(
    hidden: int, mlp: int, query: int, key: int, *, width_in: int = 0, bias: bool = False, mlp_bias: bool = False
) -> int:
    """Projections of one attention (reading `width_in` channels, the hidden size by default) and one SwiGLU."""
    width_in = width_in or hidden
    attention = width_in * (query + 2 * key) + query * hidden
    biases = (query + 2 * key + hidden if bias else 0) + (2 * mlp + hidden if mlp_bias else 0)
    return attention + 3 * hidden * mlp + biases


def _dflash_layers(config: DrafterConfig) -> int:
    if not isinstance(config, DFlashConfig):
        raise TypeError(type(config).__name__)
    hidden, fused = config.hidden_size, len(config.fused_layers)
    query, key = config.num_heads * config.head_dim, config.num_kv_heads * config.head_dim
    layer = _layer(hidden, config.intermediate_size, query, key, bias=config.attention_bias)
    layer += 2 * hidden + 2 * config.head_dim
    vector = hidden if config.mask_embedding else 0
    return fused * hidden * hidden + hidden + len(config.windows) * layer + hidden + vector


def _eagle_layers(config: DrafterConfig) -> int:
    if not isinstance(config, Eagle3Config):
        raise TypeError(type(config).__name__)
    hidden, fused = config.hidden_size, len(config.fused_layers)
    query, key = config.num_heads * config.head_dim, config.num_kv_heads * config.head_dim
    norms = 2 * hidden + (2 * config.head_dim if config.qk_norm else 0)
    total = fused * hidden * hidden + 2 * hidden  # fc, hidden_norm of layer 0, the last norm
    for layer in range(len(config.windows)):
        total += norms + _layer(
            hidden,
            config.intermediate_size,
            query,
            key,
            width_in=hidden if layer else 2 * hidden,
            bias=config.attention_bias,
            mlp_bias=config.mlp_bias,
        )
    total += fused * hidden * (config.norm_before_fc + config.fc_norm)
    return total + (fused * hidden if isinstance(config, PEagleConfig) else 0)  # mask_hidden


def _hspec_layers(config: DrafterConfig) -> int:
    if not isinstance(config, HSpecConfig):
        raise TypeError(type(config).__name__)
    hidden, inner, fused = config.hidden_size, config.d_inner, len(config.fused_layers)
    query, key = config.num_heads * config.head_dim, config.num_kv_heads * config.head_dim
    attention = hidden * (2 * query + 2 * key) + hidden + (2 * config.head_dim if config.use_qk_norm else 0)
    attention += query + 2 * key + hidden if config.attention_bias else 0
    mamba = hidden * (2 * inner + config.conv_dim - inner + config.mamba_num_heads) + hidden
    mamba += config.conv_dim * (config.mamba_conv_kernel + 1) + 3 * config.mamba_num_heads + inner + inner * hidden
    mlp = 3 * hidden * config.intermediate_size + hidden
    seed = 0
    if config.state_injection:
        seed = fused * hidden * hidden + hidden + (fused * hidden if config.fc_norm else 0)
        seed += config.num_seed_projections * hidden * inner * config.mamba_d_state
    counts = {"mamba": mamba, "attention": attention, "mlp": mlp}
    return seed + sum(counts[kind] for kind in config.block_pattern) + hidden


_LAYERS: Final[dict[type[DrafterConfig], Callable[[DrafterConfig], int]]] = {
    HSpecConfig: _hspec_layers,
    DFlashConfig: _dflash_layers,
    Eagle3Config: _eagle_layers,
}


def _heads(config: DrafterConfig) -> int:
    if not isinstance(config, HSpecConfig | DSparkConfig):
        return 0
    rank, hidden = config.markov_rank, config.hidden_size
    total = rank * (config.vocab_size + config.draft_vocab_size)
    kind = config.markov_type if isinstance(config, DSparkConfig) else "vanilla"
    if rank and kind == "gated":
        total += rank * (hidden + rank) + rank
    if rank and kind == "rnn":
        total += 3 * rank * (2 * rank + hidden) + 3 * rank
    if config.confidence_head:
        total += hidden + (rank if config.confidence_with_markov else 0) + 1
    return total


def _scratch(config: DrafterConfig) -> tuple[int, int]:
    """K/V lines, over all layers, and bytes of state that one row's draft pass forgets."""
    drafts = config.num_drafts
    match config:
        case HSpecConfig():
            state = config.d_inner * config.mamba_d_state * _STATE_BYTES if config.state_injection else 0
            return config.block_size * config.block_pattern.count("attention"), state
        case DFlashConfig():
            return config.block_size * len(config.windows), 0
        case Eagle3Config():
            return (drafts - 1) * len(config.windows), 0
    return 0, 0

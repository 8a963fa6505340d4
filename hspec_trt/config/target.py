# SPDX-License-Identifier: Apache-2.0
"""The target model's configuration.

Owns the shape of a Llama- or Qwen3-shaped decoder; reads no files (`hspec_trt.checkpoint` does).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from hspec_trt.config.rope import RopeConfig

TargetFamily = Literal["llama", "qwen3"]


@dataclass(frozen=True)
class TargetConfig:
    """A decoder-only target.

    Attributes:
        vocab_size: tokens of the tokenizer as the config states it; logits of rows beyond it are masked out.
        embedding_rows: rows of the embedding table (at least `vocab_size`).
        attention_bias: bias on q, k, v and o.
        mlp_bias: bias on gate, up and down (Llama only).
        layer_windows: sliding window per layer in tokens, the current one included; 0 is full attention.
        eos_token_ids: ids that end a text, from generation_config, then config.
    """

    family: TargetFamily
    vocab_size: int
    embedding_rows: int
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    rms_norm_eps: float
    rope: RopeConfig
    max_position: int
    tie_word_embeddings: bool = False
    attention_bias: bool = False
    mlp_bias: bool = False
    layer_windows: tuple[int, ...] = ()
    bos_token_id: int | None = None
    eos_token_ids: tuple[int, ...] = ()
    name: str = ""

    @property
    def qk_norm(self) -> bool:
        """True where query and key heads are RMS-normed before rotation."""
        return self.family == "qwen3"

    @property
    def scale(self) -> float:
        """Softmax scale of attention."""
        return 1.0 / math.sqrt(self.head_dim)

    def window(self, layer: int) -> int:
        """Sliding window of a layer, tokens; 0 is none."""
        return self.layer_windows[layer] if self.layer_windows else 0

    def kv_bytes_per_token(self, itemsize: int) -> int:
        """Bytes of K and V that one token takes over all layers."""
        return 2 * self.num_layers * self.num_kv_heads * self.head_dim * itemsize

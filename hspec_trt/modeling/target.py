# SPDX-License-Identifier: Apache-2.0
"""The target as a teacher: prefill of several sequences at once, handing out inner states.

Owns a plain PyTorch forward of Llama- and Qwen3-shaped decoders over given weights, and which inner states a drafter
may ask for. It has no cache and does not generate; it knows no files.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch.nn import functional

from hspec_trt.config.target import TargetConfig
from hspec_trt.modeling.layers import rms_norm, rope_tables, rotate


@dataclass
class TargetStates:
    """Inner states of packed tokens, one sequence after the other.

    Attributes:
        hidden: ``h^(L)`` ``[tokens, hidden]`` of each wanted L, before the final norm.
        keys, values: ``[tokens, kv_heads, head_dim]`` of each wanted layer; keys normed (if the family does) and
            rotated.
        final: ``norm(h^(N))`` ``[tokens, hidden]``, the input of the head.
    """

    hidden: dict[int, Tensor] = field(default_factory=dict)
    keys: dict[int, Tensor] = field(default_factory=dict)
    values: dict[int, Tensor] = field(default_factory=dict)
    final: Tensor = field(default_factory=lambda: torch.empty(0))


class TargetModel:
    """A target whose weights are given by canonical Hugging Face name."""

    def __init__(
        self, config: TargetConfig, weights: Mapping[str, Tensor], *, dtype: torch.dtype = torch.float32
    ) -> None:
        self.config = config
        self.dtype = dtype
        self.weights = {name: tensor.to(dtype) if tensor.dim() == 2 else tensor for name, tensor in weights.items()}

    @property
    def head(self) -> Tensor:
        """Rows of the output head ``[embedding_rows, hidden]``; the embedding table where they are tied."""
        tied = self.config.tie_word_embeddings
        return self.weights["model.embed_tokens.weight" if tied else "lm_head.weight"]

    def prefill(
        self, sequences: Sequence[Tensor], *, hidden_layers: Sequence[int], kv_layers: Sequence[int]
    ) -> TargetStates:
        """Run whole sequences; positions of each start at 0.

        Args:
            sequences: int64 token ids ``[length]`` each, on any device.
            hidden_layers: L of the states ``h^(L)`` to keep.
            kv_layers: layer numbers whose K and V to keep.
        """
        lengths = [len(sequence) for sequence in sequences]
        table = self.weights["model.embed_tokens.weight"]
        positions = torch.cat([torch.arange(length, device=table.device) for length in lengths])
        tables = rope_tables(self.config.rope, self.config.head_dim, positions)
        states = TargetStates()
        x = functional.embedding(torch.cat(list(sequences)).to(table.device), table).float()
        for layer in range(self.config.num_layers):
            if layer in hidden_layers:
                states.hidden[layer] = x
            x, key, value = self._layer(layer, x, tables, lengths)
            if layer in kv_layers:
                states.keys[layer], states.values[layer] = key, value
        if self.config.num_layers in hidden_layers:
            states.hidden[self.config.num_layers] = x
        states.final = self._norm("model.norm", x)
        return states

    def logits(self, final: Tensor) -> Tensor:
        """fp32 logits ``[..., embedding_rows]`` of rows of `TargetStates.final`."""
        return functional.linear(final.to(self.dtype), self.head).float()

    def _layer(
        self, layer: int, x: Tensor, tables: tuple[Tensor, Tensor], lengths: list[int]
    ) -> tuple[Tensor, Tensor, Tensor]:
        name = f"model.layers.{layer}."
        normed = self._norm(name + "input_layernorm", x)
        query, key, value = (self._heads(f"{name}self_attn.{part}", normed) for part in "qkv")
        query, key = rotate(query, tables), rotate(key, tables)
        mixed = self._attend(query, key, value, lengths, self.config.window(layer))
        x = x + self._linear(name + "self_attn.o_proj", mixed)
        normed = self._norm(name + "post_attention_layernorm", x)
        gated = functional.silu(self._linear(name + "mlp.gate_proj", normed))
        gated = gated * self._linear(name + "mlp.up_proj", normed)
        return x + self._linear(name + "mlp.down_proj", gated), key, value

    def _attend(self, query: Tensor, key: Tensor, value: Tensor, lengths: list[int], window: int) -> Tensor:
        mixed, start = [], 0
        for length in lengths:
            rows = slice(start, start + length)
            q, k, v = (part[rows].transpose(0, 1)[None].to(self.dtype) for part in (query, key, value))
            offsets = torch.arange(length, device=query.device)
            distance = offsets[:, None] - offsets[None, :]
            mask = (distance >= 0) & (distance < window) if 0 < window < length else None
            mixed.append(
                functional.scaled_dot_product_attention(
                    q, k, v, attn_mask=mask, is_causal=mask is None, scale=self.config.scale, enable_gqa=True
                )[0].transpose(0, 1)
            )
            start += length
        return torch.cat(mixed).flatten(1)

    def _heads(self, name: str, x: Tensor) -> Tensor:
        """``[tokens, heads, head_dim]`` of q, k or v, normed per head where the family does."""
        heads = self._linear(name + "_proj", x).view(len(x), -1, self.config.head_dim)
        norm = name + "_norm"
        return self._norm(norm, heads) if f"{norm}.weight" in self.weights else heads

    def _linear(self, name: str, x: Tensor) -> Tensor:
        bias = self.weights.get(f"{name}.bias")
        bias = None if bias is None else bias.to(self.dtype)
        return functional.linear(x.to(self.dtype), self.weights[f"{name}.weight"], bias).float()

    def _norm(self, name: str, x: Tensor) -> Tensor:
        return rms_norm(x, self.weights[f"{name}.weight"], self.config.rms_norm_eps)

# SPDX-License-Identifier: Apache-2.0
"""Names and shapes of the weights that drafters share: decoder layers, heads, fusion.

Owns these tables (speculators names) and the final fit of a checkpoint to them. It knows no drafter.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from hspec_trt.checkpoint.formats.layout import DrafterSource
from hspec_trt.checkpoint.mapping import match_weights
from hspec_trt.checkpoint.tensors import MappedTensor, TensorSource
from hspec_trt.config.drafter import DrafterConfig
from hspec_trt.dtypes import DType

Shapes = dict[str, tuple[int, ...]]

INTEGER_TENSORS: Final = ("d2t", "t2d")
IGNORED: Final = tuple(
    re.compile(pattern)
    for pattern in (
        r"verifier_(lm_head|norm)\.weight",  # training only
        r"(layers\.\d+\.self_attn\.)?rotary_emb\.inv_freq",  # follows from the configuration
    )
)


@dataclass(frozen=True)
class _Renamed:
    """A tensor under another name, with dims of 1 added or dropped."""

    name: str
    shape: tuple[int, ...]
    source: TensorSource

    @property
    def dtype(self) -> DType:
        """Element type of what `read` returns."""
        return self.source.dtype

    def read(self) -> NDArray[np.generic]:
        """The values."""
        return self.source.read().reshape(self.shape)

    def read_row(self, index: int) -> NDArray[np.generic]:
        """One row of the values."""
        row: NDArray[np.generic] = self.read()[index]
        return row


def rename(
    source: DrafterSource, names: Mapping[str, str], *, shapes: Mapping[str, tuple[int, ...]] | None = None
) -> None:
    """Give tensors their name in the speculators format.

    Args:
        source: its `tensors` are replaced.
        names: prefix, or whole name, in the file to the one used inside.
        shapes: by new name, a shape that a tensor of as many elements is given.
    """
    renamed: dict[str, TensorSource] = {}
    for stored, tensor in source.tensors.items():
        prefix = next((old for old in names if stored.startswith(old)), "")
        name = names[prefix] + stored[len(prefix) :] if prefix else stored
        wanted = (shapes or {}).get(name, tensor.shape)
        shape = wanted if int(np.prod(wanted)) == int(np.prod(tensor.shape)) else tensor.shape
        if name in renamed:
            found = f"{stored} and another tensor are both {name}"
            source.fault("D001", found, needed="one of them", name=stored)
        renamed[name] = tensor if (name, shape) == (stored, tensor.shape) else _renamed(tensor, name, shape)
    source.tensors = renamed


def _renamed(tensor: TensorSource, name: str, shape: tuple[int, ...]) -> TensorSource:
    if isinstance(tensor, MappedTensor):
        return replace(tensor, name=name, shape=shape)
    return _Renamed(name, shape, tensor)


def decoder_layer(
    prefix: str, config: DrafterConfig, *, width_in: int, qk_norm: bool, attention_bias: bool, mlp_bias: bool
) -> Shapes:
    """Weights of one pre-norm attention and SwiGLU layer whose q, k and v read `width_in` channels."""
    hidden, mlp, head = config.hidden_size, config.intermediate_size, config.head_dim
    query, key = config.num_heads * head, config.num_kv_heads * head
    shapes: Shapes = {f"{prefix}input_layernorm.weight": (hidden,)}
    projections = {"q": (query, width_in), "k": (key, width_in), "v": (key, width_in), "o": (hidden, query)}
    for part, shape in projections.items():
        shapes[f"{prefix}self_attn.{part}_proj.weight"] = shape
        if attention_bias:
            shapes[f"{prefix}self_attn.{part}_proj.bias"] = shape[:1]
    if qk_norm:
        shapes |= {f"{prefix}self_attn.{part}_norm.weight": (head,) for part in "qk"}
    shapes[f"{prefix}post_attention_layernorm.weight"] = (hidden,)
    for part, shape in {"gate": (mlp, hidden), "up": (mlp, hidden), "down": (hidden, mlp)}.items():
        shapes[f"{prefix}mlp.{part}_proj.weight"] = shape
        if mlp_bias:
            shapes[f"{prefix}mlp.{part}_proj.bias"] = shape[:1]
    return shapes


def tables(source: DrafterSource, config: DrafterConfig) -> Shapes:
    """Embedding and head, where the checkpoint brings its own."""
    hidden = config.hidden_size
    rows = {"embed_tokens.weight": (config.vocab_size, hidden), "lm_head.weight": (config.draft_vocab_size, hidden)}
    return {name: shape for name, shape in rows.items() if name in source.tensors}


def fit(source: DrafterSource, config: DrafterConfig, wanted: Shapes) -> dict[str, TensorSource]:
    """The checkpoint's tensors, checked one by one against what the drafter needs.

    Raises:
        CheckpointError: C020 to C025; several at once as a `FaultGroup`.
    """
    floats = {name: tensor for name, tensor in source.tensors.items() if name not in INTEGER_TENSORS}
    found: Mapping[str, TensorSource] = match_weights(wanted, floats, ignored=IGNORED, where=source.fields.where)
    maps = {name: source.tensors[name] for name in INTEGER_TENSORS if config.reduced_vocab and name in source.tensors}
    return {**found, **maps}

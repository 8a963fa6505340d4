# SPDX-License-Identifier: Apache-2.0
"""Opens a target stored as a GGUF file.

Owns ggml's names of weights and their Hugging Face counterparts, and the row order of q and k. The configuration goes
through the same checks as any other (`hspec_trt.checkpoint.gguf_config` writes it as a config.json).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from hspec_trt.checkpoint.gguf_config import TensorFacts, find_architecture, gguf_config, gguf_generation_config
from hspec_trt.checkpoint.gguf_file import GgufFile, GgufTensor, open_gguf
from hspec_trt.checkpoint.gguf_metadata import Metadata
from hspec_trt.checkpoint.gguf_tokenizer import tokenizer_files
from hspec_trt.checkpoint.hf_config import CONFIG, GENERATION_CONFIG, read_target_config
from hspec_trt.checkpoint.json_text import JsonObject
from hspec_trt.checkpoint.target_checkpoint import TargetCheckpoint, assemble
from hspec_trt.checkpoint.tensors import MappedBytes, TensorSource
from hspec_trt.dtypes import DType
from hspec_trt.errors import CheckpointError

_MODEL_NAMES: Final = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
}
_LAYER_NAMES: Final = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_ROPE_FACTORS: Final = "rope_freqs.weight"
_LAYER_TENSOR: Final = re.compile(r"blk\.(\d{1,6})\.([a-z_]+)\.(weight|bias)")
_MODEL_TENSOR: Final = re.compile(r"([a-z_]+)\.(weight|bias)")


@dataclass(frozen=True)
class GgufSource:
    """A weight of a GGUF file, decoded when it is read.

    Attributes:
        rotary_heads: heads of q or k whose rows ggml stores interleaved; 0 for all other weights.
    """

    name: str
    stored: GgufTensor
    mapped: MappedBytes
    rotary_heads: int = 0

    @property
    def dtype(self) -> DType:
        """float32 for quantised tensors, else the stored type."""
        return self.stored.kind.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        """Row-major shape."""
        return self.stored.shape

    def read(self) -> NDArray[np.generic]:
        """The values in Hugging Face's row order."""
        start = self.stored.offset
        values = self.stored.kind.decode(self.mapped[start : start + self.stored.nbytes], self.shape)
        return half_split_rows(values, self.rotary_heads) if self.rotary_heads else values

    def read_row(self, index: int) -> NDArray[np.generic]:
        """``read()[index]``; of all but q and k, one row is decoded."""
        if self.rotary_heads:
            row: NDArray[np.generic] = self.read()[index]
            return row
        nbytes = self.stored.nbytes // self.shape[0]
        start = self.stored.offset + index * nbytes
        decoded = self.stored.kind.decode(self.mapped[start : start + nbytes], (1, *self.shape[1:]))
        return decoded.reshape(self.shape[1:])


def half_split_rows(values: NDArray[np.generic], num_heads: int) -> NDArray[np.generic]:
    """Reorder the rows of q or k from ggml's interleaved rotary pairs to the half-split order.

    Args:
        values: ``[num_heads * head_dim, ...]``; within a head, rows 2i and 2i + 1 form pair i.

    Returns:
        The same shape; within a head, rows i and i + head_dim / 2 form pair i.
    """
    pairs = values.reshape(num_heads, -1, 2, *values.shape[1:])
    return pairs.swapaxes(1, 2).reshape(values.shape)


def load_gguf(path: Path) -> TargetCheckpoint:
    """Open a GGUF file.

    Raises:
        CheckpointError: see `hspec_trt.checkpoint.codes`; several at once as a `FaultGroup`.
    """
    file = open_gguf(path)
    metadata = Metadata(file.metadata, path.name)
    architecture = find_architecture(metadata)
    config_json = gguf_config(metadata, architecture, _facts(file))
    generation = gguf_generation_config(metadata)
    name = metadata.text("general.name", path.stem)
    config = read_target_config(config_json, generation, name=name, sources=(path.name, path.name))
    heads = {"attn_q": config.num_heads, "attn_k": config.num_kv_heads} if architecture.interleaved_rope else {}
    files, warnings = tokenizer_files(metadata)
    files |= {CONFIG: _dump(config_json), GENERATION_CONFIG: _dump(generation)}
    return assemble(path, config, _canonical(file, heads), files, warnings)


def _facts(file: GgufFile) -> TensorFacts:
    factors = file.tensors.get(_ROPE_FACTORS)
    stored = None if factors is None else GgufSource(_ROPE_FACTORS, factors, file.mapped).read().astype(np.float32)
    return TensorFacts(
        tied="output.weight" not in file.tensors,
        attention_bias="blk.0.attn_q.bias" in file.tensors,
        mlp_bias="blk.0.ffn_gate.bias" in file.tensors,
        rope_factors=stored,
    )


def _canonical(file: GgufFile, rotary_heads: Mapping[str, int]) -> dict[str, TensorSource]:
    """The tensors under Hugging Face names; one whose name is unknown keeps it and is reported as unused."""
    sources: dict[str, TensorSource] = {}
    for tensor in file.tensors.values():
        layer, model = _LAYER_TENSOR.fullmatch(tensor.name), _MODEL_TENSOR.fullmatch(tensor.name)
        name, heads = tensor.name, 0
        if layer and layer[2] in _LAYER_NAMES:
            name = f"model.layers.{int(layer[1])}.{_LAYER_NAMES[layer[2]]}.{layer[3]}"
            heads = rotary_heads.get(layer[2], 0)
        elif model and model[1] in _MODEL_NAMES:
            name = f"{_MODEL_NAMES[model[1]]}.{model[2]}"
        if name in sources:
            raise CheckpointError("C023", f"two tensors are the source of {name}", where=file.path.name)
        if name != _ROPE_FACTORS:
            sources[name] = GgufSource(name, tensor, file.mapped, heads)
    return sources


def _dump(value: JsonObject) -> bytes:
    return (json.dumps(value, indent=2) + "\n").encode()

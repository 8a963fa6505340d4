# SPDX-License-Identifier: Apache-2.0
"""Opens a target stored as a GGUF file of llama architecture.

Owns ggml's names for weights and configuration keys and their Hugging Face counterparts, and the row order of q and k.
The configuration is written as a config.json and read by the same checks as any other.
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

from hspec_trt.checkpoint.families import FAMILIES
from hspec_trt.checkpoint.gguf_file import GgufFile, GgufTensor, open_gguf
from hspec_trt.checkpoint.gguf_metadata import Metadata
from hspec_trt.checkpoint.gguf_tokenizer import tokenizer_files
from hspec_trt.checkpoint.hf_config import CONFIG, GENERATION_CONFIG, read_target_config
from hspec_trt.checkpoint.json_text import JsonObject
from hspec_trt.checkpoint.target_checkpoint import TargetCheckpoint, assemble
from hspec_trt.checkpoint.tensors import MappedBytes, TensorSource
from hspec_trt.config.target import TargetFamily
from hspec_trt.dtypes import DType
from hspec_trt.errors import CheckpointError


@dataclass(frozen=True)
class _Architecture:
    """A GGUF architecture.

    Attributes:
        interleaved_rope: ggml rotates neighbouring channels, so its converter reordered the rows of q and k.
    """

    family: TargetFamily
    interleaved_rope: bool


_ARCHITECTURES: Final = {
    "llama": _Architecture("llama", interleaved_rope=True),
    "qwen3": _Architecture("qwen3", interleaved_rope=False),
}
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
_LAYER_TENSOR: Final = re.compile(r"blk\.(\d+)\.([a-z_]+)\.(weight|bias)")
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


def half_split_rows(values: NDArray[np.generic], num_heads: int) -> NDArray[np.generic]:
    """Reorder the rows of q or k from ggml's interleaved rotary pairs to the half-split order.

    Args:
        values: ``[num_heads * head_dim, ...]``; within a head, row 2i and 2i+1 form pair i.

    Returns:
        The same shape; within a head, row i and i + head_dim/2 form pair i.
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
    name = metadata.text("general.architecture")
    if name not in _ARCHITECTURES:
        raise CheckpointError(
            "C016", f"GGUF architecture {name[:80]!r}", needed=", ".join(_ARCHITECTURES), where=path.name
        )
    architecture = _ARCHITECTURES[name]
    config_json = gguf_config(metadata, name, tied="output.weight" not in file.tensors)
    generation = _generation_config(metadata)
    config = read_target_config(config_json, generation, name=metadata.text("general.name", path.stem))
    heads = {"attn_q": config.num_heads, "attn_k": config.num_kv_heads} if architecture.interleaved_rope else {}
    found = _canonical(file, heads)
    text_files, warnings = tokenizer_files(metadata)
    text_files |= {CONFIG: _dump(config_json), GENERATION_CONFIG: _dump(generation)}
    return assemble(path, config, found, text_files, warnings)


def gguf_config(metadata: Metadata, architecture: str, *, tied: bool) -> JsonObject:
    """The config.json that a GGUF file stands for.

    Raises:
        CheckpointError: C019 for metadata that is missing or of the wrong type, C040 for a rope scaling.
    """
    prefix = architecture + "."
    num_heads = metadata.integer(prefix + "attention.head_count")
    config: JsonObject = {
        "architectures": [FAMILIES[_ARCHITECTURES[architecture].family].architecture],
        "model_type": _ARCHITECTURES[architecture].family,
        "vocab_size": _vocab_size(metadata, prefix),
        "hidden_size": metadata.integer(prefix + "embedding_length"),
        "intermediate_size": metadata.integer(prefix + "feed_forward_length"),
        "num_hidden_layers": metadata.integer(prefix + "block_count"),
        "num_attention_heads": num_heads,
        "num_key_value_heads": metadata.integer(prefix + "attention.head_count_kv", num_heads),
        "rms_norm_eps": metadata.number(prefix + "attention.layer_norm_rms_epsilon"),
        "max_position_embeddings": metadata.integer(prefix + "context_length"),
        "rope_theta": metadata.number(prefix + "rope.freq_base", 10_000.0),
        "tie_word_embeddings": tied,
        "hidden_act": "silu",
    }
    head_dim = prefix + "attention.key_length"
    if metadata.has(head_dim) or metadata.has(prefix + "rope.dimension_count"):
        config["head_dim"] = metadata.integer(head_dim if metadata.has(head_dim) else prefix + "rope.dimension_count")
    scaling = metadata.text(prefix + "rope.scaling.type", "none")
    if scaling != "none":
        config["rope_scaling"] = {"rope_type": scaling}
    return config


def _vocab_size(metadata: Metadata, prefix: str) -> int:
    if metadata.has(prefix + "vocab_size"):
        return metadata.integer(prefix + "vocab_size")
    return len(metadata.texts("tokenizer.ggml.tokens"))


def _generation_config(metadata: Metadata) -> JsonObject:
    ends = [metadata.integer(key) for key in _END_KEYS if metadata.has(key)]
    config: JsonObject = {"eos_token_id": [*dict.fromkeys(ends)]} if ends else {}
    if metadata.has("tokenizer.ggml.bos_token_id"):
        config["bos_token_id"] = metadata.integer("tokenizer.ggml.bos_token_id")
    return config


_END_KEYS: Final = ("tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id")


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
        sources[name] = GgufSource(name, tensor, file.mapped, heads)
    return sources


def _dump(value: JsonObject) -> bytes:
    return (json.dumps(value, indent=2) + "\n").encode()

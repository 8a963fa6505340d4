# SPDX-License-Identifier: Apache-2.0
"""Random-weight checkpoints of real shapes, written once and kept under ``build/bench``."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from hspec_trt.bundle import write_weights
from hspec_trt.dtypes import BFLOAT16, DType

QWEN3_0_6B: dict[str, object] = {
    "architectures": ["Qwen3ForCausalLM"],
    "model_type": "qwen3",
    "attention_bias": False,
    "hidden_act": "silu",
    "hidden_size": 1024,
    "intermediate_size": 3072,
    "num_hidden_layers": 28,
    "num_attention_heads": 16,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "max_position_embeddings": 40960,
    "rms_norm_eps": 1e-6,
    "rope_theta": 1000000.0,
    "tie_word_embeddings": True,
    "torch_dtype": "bfloat16",
    "vocab_size": 151936,
    "eos_token_id": 151645,
    "bos_token_id": 151643,
}
"""The published shape of Qwen3-0.6B: 596 M parameters."""

QWEN3_8B_2_LAYERS: dict[str, object] = QWEN3_0_6B | {
    "hidden_size": 4096,
    "intermediate_size": 12288,
    "num_hidden_layers": 2,
    "num_attention_heads": 32,
    "tie_word_embeddings": False,
}
"""Qwen3-8B with two of its 36 layers: every dimension is the real one."""


@dataclass(frozen=True)
class RandomTensor:
    """A tensor of N(0, 0.02) in bfloat16, or of ones for norms."""

    name: str
    shape: tuple[int, ...]
    dtype: DType = BFLOAT16

    def produce(self) -> NDArray[np.generic]:
        """The values."""
        if len(self.shape) == 1:
            return np.ones(self.shape, self.dtype.numpy)
        # Four million normal numbers, repeated: the values do not matter here, but the file must not be sparse, and no
        # two tensors may be equal: ONNX Runtime keeps one repacked copy of equal weights.
        count = int(np.prod(self.shape, dtype=np.int64))
        seed = zlib.crc32(self.name.encode())
        base = np.random.default_rng(seed).standard_normal(min(count, 1 << 22), dtype=np.float32) * 0.02
        return np.resize(base.astype(self.dtype.numpy), self.shape)


def _tensors(config: dict[str, object]) -> Iterator[RandomTensor]:
    def size(key: str) -> int:
        return int(str(config[key]))

    hidden, inner, head = size("hidden_size"), size("intermediate_size"), size("head_dim")
    queries, keys = size("num_attention_heads") * head, size("num_key_value_heads") * head
    yield RandomTensor("model.embed_tokens.weight", (size("vocab_size"), hidden))
    for layer in range(size("num_hidden_layers")):
        prefix = f"model.layers.{layer}"
        yield RandomTensor(f"{prefix}.input_layernorm.weight", (hidden,))
        yield RandomTensor(f"{prefix}.post_attention_layernorm.weight", (hidden,))
        yield RandomTensor(f"{prefix}.self_attn.q_proj.weight", (queries, hidden))
        yield RandomTensor(f"{prefix}.self_attn.k_proj.weight", (keys, hidden))
        yield RandomTensor(f"{prefix}.self_attn.v_proj.weight", (keys, hidden))
        yield RandomTensor(f"{prefix}.self_attn.o_proj.weight", (hidden, queries))
        yield RandomTensor(f"{prefix}.self_attn.q_norm.weight", (head,))
        yield RandomTensor(f"{prefix}.self_attn.k_norm.weight", (head,))
        yield RandomTensor(f"{prefix}.mlp.gate_proj.weight", (inner, hidden))
        yield RandomTensor(f"{prefix}.mlp.up_proj.weight", (inner, hidden))
        yield RandomTensor(f"{prefix}.mlp.down_proj.weight", (hidden, inner))
    yield RandomTensor("model.norm.weight", (hidden,))
    if not config["tie_word_embeddings"]:
        yield RandomTensor("lm_head.weight", (size("vocab_size"), hidden))


def random_checkpoint(folder: Path, config: dict[str, object]) -> Path:
    """Write a Hugging Face folder with random bfloat16 weights, unless it is there already."""
    if not (folder / "config.json").exists():
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "model.safetensors").unlink(missing_ok=True)
        write_weights(folder / "model.safetensors", list(_tensors(config)))
        (folder / "config.json").write_text(json.dumps(config, indent=2))
    return folder

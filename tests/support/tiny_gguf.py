# SPDX-License-Identifier: Apache-2.0
"""Writes tiny targets as GGUF files: with the library's own writer, and q and k in llama.cpp's row order."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gguf
import ml_dtypes
import numpy as np

from tests.support.tiny_models import TinyTarget, Weights, random_weights
from tests.support.tiny_tokenizer import BOS_ID, EOS_ID, UNK_ID, tiny_tokenizer

NAMES = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


def gguf_name(name: str) -> str:
    """ggml's name of a canonical weight."""
    stem, kind = name.rsplit(".", 1)
    if stem.startswith("model.layers."):
        _, _, layer, rest = stem.split(".", 3)
        return f"blk.{layer}.{NAMES[rest]}.{kind}"
    return f"{NAMES[stem]}.{kind}"


def interleaved_rows(values: np.ndarray, num_heads: int) -> np.ndarray:
    """Rows of q or k as llama.cpp's converter stores them: channel i and i + head_dim / 2 become neighbours."""
    half = len(values) // num_heads // 2
    return values.reshape(num_heads, 2, half, -1).swapaxes(1, 2).reshape(values.shape)


def write_gguf(
    path: Path,
    target: TinyTarget | None = None,
    weights: Weights | None = None,
    *,
    quant: str = "F32",
    extra: Mapping[str, Any] | None = None,
    extra_tensors: Mapping[str, np.ndarray] | None = None,
    tokenizer: bool = True,
) -> Path:
    """Write a GGUF file.

    Args:
        quant: type of the matrices whose rows fit its blocks; all else is F32.
        extra: metadata to set besides, or instead; None removes a key.
        extra_tensors: float32 tensors to add, by ggml name.
    """
    target = target or TinyTarget()
    weights = random_weights(target) if weights is None else weights
    writer = gguf.GGUFWriter(path, arch=target.family)
    for key, value in (_metadata(target, tokenizer) | dict(extra or {})).items():
        if value is not None:
            _add(writer, key, value)
    for name, values in weights.items():
        _add_tensor(writer, target, name, np.asarray(values, np.float32), quant)
    for name, values in (extra_tensors or {}).items():
        writer.add_tensor(name, values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _add_tensor(writer: gguf.GGUFWriter, target: TinyTarget, name: str, values: np.ndarray, quant: str) -> None:
    heads = {"q_proj": target.num_heads, "k_proj": target.num_kv_heads}
    part = name.split(".")[-2]
    if target.family == "llama" and part in heads:
        values = interleaved_rows(values, heads[part])
    kind = gguf.GGMLQuantizationType[quant]
    block = gguf.GGML_QUANT_SIZES[kind][0]
    if kind == gguf.GGMLQuantizationType.F32 or values.ndim < 2 or values.shape[1] % block:
        writer.add_tensor(gguf_name(name), values)
        return
    writer.add_tensor(gguf_name(name), gguf.quantize(values, kind), raw_dtype=kind)


def _metadata(target: TinyTarget, tokenizer: bool) -> dict[str, Any]:
    prefix = target.family + "."
    metadata: dict[str, Any] = {
        prefix + "vocab_size": target.vocab_size,
        prefix + "context_length": target.max_position,
        prefix + "embedding_length": target.hidden_size,
        prefix + "feed_forward_length": target.intermediate_size,
        prefix + "block_count": target.num_layers,
        prefix + "attention.head_count": target.num_heads,
        prefix + "attention.head_count_kv": target.num_kv_heads,
        prefix + "attention.key_length": target.head_dim,
        prefix + "attention.layer_norm_rms_epsilon": target.rms_norm_eps,
        prefix + "rope.freq_base": float(target.rope["rope_theta"]),
        prefix + "rope.dimension_count": target.head_dim,
        "general.name": "tiny",
    }
    return metadata | _tokenizer(target.vocab_size) if tokenizer else metadata


def _tokenizer(vocab_size: int) -> dict[str, Any]:
    vocab = json.loads(tiny_tokenizer(vocab_size).to_str())["model"]["vocab"]
    tokens = [*sorted(vocab, key=lambda token: int(vocab[token]))[:-1], "ab"]
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "gpt-2",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [3 if index <= EOS_ID else 1 for index in range(len(tokens))],
        "tokenizer.ggml.merges": ["a b"],
        "tokenizer.ggml.bos_token_id": BOS_ID,
        "tokenizer.ggml.eos_token_id": EOS_ID,
        "tokenizer.ggml.unknown_token_id": UNK_ID,
        "tokenizer.chat_template": "{{ messages[0]['content'] }}",
    }


def _add(writer: gguf.GGUFWriter, key: str, value: Any) -> None:
    if isinstance(value, bool):
        writer.add_bool(key, value)
    elif isinstance(value, str):
        writer.add_string(key, value)
    elif isinstance(value, float):
        writer.add_float32(key, value)
    elif isinstance(value, int):
        writer.add_uint32(key, value)
    else:
        writer.add_array(key, value)


def as_stored(values: np.ndarray, quant: str) -> np.ndarray:
    """What a weight is after it was stored in a type: the library's own quantise and dequantise."""
    if quant == "BF16":
        return values.astype(ml_dtypes.bfloat16)
    if quant in ("F32", "F16"):
        return values.astype({"F32": np.float32, "F16": np.float16}[quant])
    kind = gguf.GGMLQuantizationType[quant]
    return gguf.dequantize(gguf.quantize(values.astype(np.float32), kind), kind)

# SPDX-License-Identifier: Apache-2.0
"""The peer: transformers' own model, filled with the tensors that our loader reads, in float32."""

from __future__ import annotations

import time
from pathlib import Path

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from hspec_trt.checkpoint.target import load_target


class TransformersTarget:
    """Greedy generation with transformers.

    Args:
        path: a checkpoint of the Llama family.
        threads: of torch.
    """

    def __init__(self, path: Path, threads: int) -> None:
        torch.set_num_threads(threads)
        checkpoint = load_target(path)
        config = checkpoint.config
        if config.family != "llama" or config.rope.rope_type != "default":
            raise SystemExit("this benchmark fills Llama models with plain rotation only")
        self.model = LlamaForCausalLM(
            LlamaConfig(
                vocab_size=config.embedding_rows,
                hidden_size=config.hidden_size,
                intermediate_size=config.intermediate_size,
                num_hidden_layers=config.num_layers,
                num_attention_heads=config.num_heads,
                num_key_value_heads=config.num_kv_heads,
                head_dim=config.head_dim,
                rms_norm_eps=config.rms_norm_eps,
                rope_theta=config.rope.theta,
                rope_parameters={"rope_type": "default", "rope_theta": config.rope.theta},
                max_position_embeddings=config.max_position,
                tie_word_embeddings=config.tie_word_embeddings,
                attn_implementation="sdpa",
            )
        ).eval()
        state = {name: torch.from_numpy(tensor.read().astype("float32")) for name, tensor in checkpoint.tensors.items()}
        missing, unexpected = self.model.load_state_dict(state, strict=False)
        if unexpected or set(missing) - {"lm_head.weight"}:
            raise SystemExit(f"weights do not fit: missing {missing}, unexpected {unexpected}")
        self.model.tie_weights()

    @torch.inference_mode()
    def generate(self, ids: list[int], count: int) -> tuple[list[int], float]:
        """The next `count` greedy tokens, and seconds per token after the first."""
        out = self.model(torch.tensor([ids]), use_cache=True, logits_to_keep=1)
        tokens = [int(out.logits[0, -1].argmax())]
        start = time.perf_counter()
        for _ in range(count - 1):
            out = self.model(torch.tensor([tokens[-1:]]), past_key_values=out.past_key_values, use_cache=True)
            tokens.append(int(out.logits[0, -1].argmax()))
        return tokens, (time.perf_counter() - start) / (count - 1)

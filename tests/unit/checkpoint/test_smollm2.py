# SPDX-License-Identifier: Apache-2.0
"""The real target: SmolLM2-135M-Instruct in GGUF. Its header, tokenizer and weights, against independent readers."""

from __future__ import annotations

import json

import gguf
import numpy as np
import pytest
import torch
import transformers
from jinja2.sandbox import ImmutableSandboxedEnvironment
from tokenizers import Tokenizer

from hspec_trt.checkpoint.gguf_file import open_gguf
from hspec_trt.checkpoint.target import TargetCheckpoint, load_target
from tests.support.smollm2 import smollm2_gguf

SYSTEM = [1, 9690, 198, 2683, 359, 253, 5356, 5646, 11173, 3365, 3511, 308, 34519, 28, 7018, 411, 407, 19712, 8182, 2]
TURN = [198, 1, 4093, 198]
ASSISTANT = [2, 198, 1, 520, 9531, 198]
# Prompts with the model's greedy answer in float32, both known before this code was written.
KNOWN = {
    "What is the maximum wingspan of an indian flying fox bat?": (
        [1780, 314, 260, 5428, 10853, 3960, 282, 354, 641, 697, 9135, 16438, 10581, 47],
        [504, 5428, 10853, 3960, 282, 354, 1218, 89, 49, 86, 50, 261, 314, 4723, 216, 33, 30, 34, 37, 8137, 30, 2],
    ),
    "Can you only say true statements?": (
        [7306, 346, 805, 1643, 2629, 7868, 47],
        [5230, 28, 339, 416, 805, 1643, 2629, 7868, 30, 339, 744, 441, 5181, 282, 3258, 7065, 355, 7065, 7868, 30, 2],
    ),
}


@pytest.fixture(scope="module")
def target() -> TargetCheckpoint:
    return load_target(smollm2_gguf())


@pytest.fixture(scope="module")
def tokenizer(target: TargetCheckpoint) -> Tokenizer:
    return Tokenizer.from_str(target.text_files["tokenizer.json"].decode())


@pytest.fixture(scope="module")
def library() -> gguf.GGUFReader:
    return gguf.GGUFReader(smollm2_gguf())


def test_configuration(target: TargetCheckpoint) -> None:
    config = target.config
    assert (config.family, config.num_layers, config.hidden_size, config.head_dim) == ("llama", 30, 576, 64)
    assert (config.num_heads, config.num_kv_heads, config.intermediate_size) == (9, 3, 1536)
    assert (config.vocab_size, config.embedding_rows, config.max_position) == (49152, 49152, 8192)
    assert (config.rope.rope_type, config.rope.theta, config.rms_norm_eps) == ("default", 100_000.0, 1e-5)
    assert config.tie_word_embeddings and "lm_head.weight" not in target.tensors
    assert (config.bos_token_id, config.eos_token_ids, target.warnings) == (1, (2,), ())


def test_header_is_what_the_library_reads(library: gguf.GGUFReader) -> None:
    ours, theirs = open_gguf(smollm2_gguf()), library
    assert [tensor.name for tensor in theirs.tensors] == list(ours.tensors)
    for tensor in theirs.tensors:
        found = ours.tensors[tensor.name]
        assert found.shape == tuple(reversed(tensor.shape.tolist()))
        assert (found.kind.name, found.offset, found.nbytes) == (
            tensor.tensor_type.name,
            tensor.data_offset,
            tensor.n_bytes,
        )
    keys = [key for key in theirs.fields if not key.startswith("GGUF.")]
    assert keys == list(ours.metadata)
    for key in keys:
        values = theirs.fields[key].contents()
        assert ours.metadata[key] == (pytest.approx(values, rel=1e-6) if isinstance(values, float) else values)


def test_values_are_what_the_library_decodes(target: TargetCheckpoint, library: gguf.GGUFReader) -> None:
    stored = {tensor.name: tensor for tensor in library.tensors}
    for name, source in (
        ("mlp.down_proj", "ffn_down"),
        ("self_attn.v_proj", "attn_v"),
        ("input_layernorm", "attn_norm"),
    ):
        tensor = stored[f"blk.17.{source}.weight"]
        expected = gguf.dequantize(tensor.data, tensor.tensor_type)
        np.testing.assert_array_equal(target.tensors[f"model.layers.17.{name}.weight"].read(), expected)


def test_tokenizer_round_trip(tokenizer: Tokenizer) -> None:
    for question, (ids, _) in KNOWN.items():
        assert tokenizer.encode(question).ids == ids and tokenizer.decode(ids) == question
    texts = ["a  b\n\n 12 ⁴ naïve 日本語 🙂", "def f(x):\n    return x\n", "", " ", "it's 3.14!"]
    for text in texts:
        assert tokenizer.decode(tokenizer.encode(text).ids) == text


def test_digits_are_cut_before_words(tokenizer: Tokenizer) -> None:
    # transformers' conversion of this file cuts words only, and so gives the line feeds of the first two ids each.
    assert tokenizer.encode("pain:\n\n1. It").tokens == ["pain", ":", "ĊĊ", "1", ".", "ĠIt"]
    assert tokenizer.encode(" 18").tokens == ["Ġ", "1", "8"]


def test_chat_template_gives_the_known_prompt(target: TargetCheckpoint, tokenizer: Tokenizer) -> None:
    template = ImmutableSandboxedEnvironment().from_string(target.text_files["chat_template.jinja"].decode())
    for question, (ids, _) in KNOWN.items():
        text = template.render(messages=[{"role": "user", "content": question}], add_generation_prompt=True)
        assert tokenizer.encode(text).ids == [*SYSTEM, *TURN, *ids, *ASSISTANT]


def test_weights_write_the_known_answers(target: TargetCheckpoint) -> None:
    config = transformers.AutoConfig.for_model(**json.loads(target.text_files["config.json"]))
    with torch.device("meta"):
        model = transformers.LlamaForCausalLM(config)
    state = {name: torch.from_numpy(np.array(source.read())) for name, source in target.tensors.items()}
    state["lm_head.weight"] = state["model.embed_tokens.weight"]
    model.load_state_dict(state, assign=True)
    model.model.rotary_emb = type(model.model.rotary_emb)(config)
    model.eval()
    for ids, answer in KNOWN.values():
        prompt = torch.tensor([[*SYSTEM, *TURN, *ids, *ASSISTANT]])
        out = model.generate(prompt, max_new_tokens=len(answer), do_sample=False, eos_token_id=2)
        assert out[0, prompt.shape[1] :].tolist() == answer

# SPDX-License-Identifier: Apache-2.0
"""Every field of config.json is typed and bounded before anything is made by it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hspec_trt.checkpoint.target import load_target
from tests.support.faults import codes_of, report_of
from tests.support.tiny_models import DROP, TinyTarget, edit_config, write_json, write_target

BIG = 10**9
# Field changes to T-RAND, the code, and what the message must say.
REFUSED: list[tuple[dict[str, Any], str, str]] = [
    ({"num_attention_heads": 0}, "C032", "num_attention_heads is 0; needed: 1..1024"),
    ({"num_attention_heads": -4}, "C032", "num_attention_heads is -4"),
    (
        {"num_attention_heads": 7, "head_dim": DROP},
        "C030",
        "hidden_size 64 is not a multiple of num_attention_heads 7 and head_dim is not set",
    ),
    (
        {"hidden_size": 1792, "num_attention_heads": 24, "head_dim": DROP},
        "C030",
        "hidden_size 1792 is not a multiple of num_attention_heads 24 and head_dim is not set",
    ),
    ({"num_key_value_heads": 0}, "C032", "num_key_value_heads is 0"),
    ({"num_key_value_heads": 3}, "C030", "num_attention_heads 4 is not a multiple of num_key_value_heads 3"),
    ({"num_key_value_heads": 8}, "C030", "num_attention_heads 4 is not a multiple of num_key_value_heads 8"),
    ({"num_key_value_heads": "2"}, "C031", "num_key_value_heads is the string '2'; needed: an integer"),
    ({"head_dim": 0}, "C032", "head_dim is 0"),
    ({"head_dim": 15}, "C030", "15 of 15 channels of a head are rotated; needed: an even number"),
    ({"hidden_size": 4, "head_dim": DROP}, "C030", "hidden_size / num_attention_heads is 1"),
    ({"hidden_size": 64.0}, "C031", "hidden_size is the number 64.0; needed: an integer"),
    ({"hidden_size": True}, "C031", "hidden_size is the boolean True"),
    ({"hidden_size": DROP}, "C033", "hidden_size is missing"),
    ({"hidden_size": None}, "C033", "hidden_size is missing"),
    ({"hidden_size": [64]}, "C031", "hidden_size is the list of 1 entries"),
    ({"intermediate_size": 0}, "C032", "intermediate_size is 0"),
    ({"num_hidden_layers": BIG}, "C032", "num_hidden_layers is 1000000000; needed: 1..1024"),
    ({"num_hidden_layers": 10**300}, "C032", "num_hidden_layers is an integer of 997 bits"),
    ({"num_hidden_layers": 0}, "C032", "num_hidden_layers is 0"),
    ({"vocab_size": -1}, "C032", "vocab_size is -1; needed: 2..262144"),
    ({"vocab_size": 0}, "C032", "vocab_size is 0"),
    ({"vocab_size": BIG}, "C032", "vocab_size is 1000000000"),
    ({"max_position_embeddings": 0}, "C032", "max_position_embeddings is 0"),
    ({"max_position_embeddings": 1 << 40}, "C032", "max_position_embeddings is 1099511627776"),
    ({"rms_norm_eps": 0}, "C032", "rms_norm_eps is 0; needed: 0 < rms_norm_eps <= 0.1"),
    ({"rms_norm_eps": float("nan")}, "C032", "rms_norm_eps is nan"),
    ({"rms_norm_eps": float("inf")}, "C032", "rms_norm_eps is inf"),
    ({"rms_norm_eps": -1e-5}, "C032", "rms_norm_eps is -1e-05"),
    ({"rms_norm_eps": 10**400}, "C032", "rms_norm_eps is an integer of 1329 bits"),
    ({"rms_norm_eps": "1e-5"}, "C031", "rms_norm_eps is the string '1e-5'; needed: a number"),
    ({"tie_word_embeddings": "yes"}, "C031", "tie_word_embeddings is the string 'yes'; needed: true or false"),
    ({"attention_bias": 1}, "C031", "attention_bias is the integer 1"),
    ({"hidden_act": "gelu"}, "C035", "hidden_act 'gelu'; needed: silu or swish"),
    ({"eos_token_id": 61}, "C036", "eos_token_id 61 is outside the vocabulary; needed: 0..60"),
    ({"eos_token_id": [2, -1]}, "C036", "eos_token_id -1 is outside the vocabulary"),
    ({"eos_token_id": "</s>"}, "C031", "eos_token_id is the string '</s>'"),
    ({"eos_token_id": [2, 1 << 40]}, "C032", "eos_token_id holds 1099511627776"),
    ({"architectures": ["GemmaForCausalLM"]}, "C012", "LlamaForCausalLM, Qwen3ForCausalLM"),
    ({"architectures": DROP, "model_type": "gemma"}, "C012", "model_type 'gemma' is not supported"),
    ({"architectures": DROP, "model_type": DROP}, "C012", "neither architectures nor model_type"),
    ({"architectures": "LlamaForCausalLM"}, "C031", "architectures is the string 'LlamaForCausalLM'"),
    ({"quantization_config": {"quant_method": "gptq", "bits": 4}}, "C013", "the checkpoint is quantised (gptq)"),
    ({"quantization_config": {"bits": 4}}, "C013", "the checkpoint is quantised (unknown method)"),
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """T-RAND without the generation_config.json that would take the place of some fields."""
    folder = write_target(tmp_path / "tiny")
    (folder / "generation_config.json").unlink()
    return folder


@pytest.mark.parametrize(("changes", "code", "text"), REFUSED, ids=[f"{row[1]} {row[2][:50]}" for row in REFUSED])
def test_field_that_is_refused(folder: Path, changes: dict[str, Any], code: str, text: str) -> None:
    """Cases A13 (heads) and A14 (bounds)."""
    edit_config(folder, **changes)
    report = report_of(lambda: load_target(folder))
    assert f"error[{code}]" in report and text in report and "config.json" in report
    if code in ("C031", "C032", "C033"):
        assert report.count("error[") == 1  # no fault follows from the one value that is wrong


def test_all_faults_of_a_configuration_are_reported_at_once(folder: Path) -> None:
    changes = {"hidden_act": "relu", "vocab_size": -1, "num_hidden_layers": 0, "rms_norm_eps": 0}
    edit_config(folder, **changes, num_key_value_heads=3, eos_token_id=None, rope_parameters={"type": "su"})
    codes = codes_of(lambda: load_target(folder))
    assert sorted(codes) == ["C030", "C032", "C032", "C032", "C035", "C040"]


FILES = {
    "not json": b"{",
    "empty": b"",
    "not utf-8": b'{"a": "\xff"}',
    "list": b"[]",
    "number": b"1",
    "trailing comma": b'{"a": 1,}',
    "duplicate key": b'{"vocab_size": 61, "vocab_size": 62}',
    "nested duplicate key": b'{"a": [{"b": 1, "b": 2}]}',
    "huge nesting": b'{"a":' * 100_000 + b"1" + b"}" * 100_000,
    "huge list nesting": b"[" * 900_000,
    "ten megabytes": b'{"a": "' + b"x" * 10_000_000 + b'"}',
    "endless integer": b'{"vocab_size": ' + b"9" * 100_000 + b"}",
}


@pytest.mark.parametrize("data", FILES.values(), ids=FILES)
@pytest.mark.parametrize("name", ["config.json", "generation_config.json"])
def test_file_that_is_not_plain_json(folder: Path, name: str, data: bytes) -> None:
    """Case A14: nesting, size, duplicate keys."""
    (folder / name).write_bytes(data)
    report = report_of(lambda: load_target(folder))
    assert report.startswith("error[C011]") and name in report and len(report) < 300


def test_byte_order_mark_is_allowed(folder: Path) -> None:
    (folder / "config.json").write_bytes(b"\xef\xbb\xbf" + (folder / "config.json").read_bytes())
    assert load_target(folder).config.vocab_size == 61


def test_architecture_by_model_type(folder: Path) -> None:
    edit_config(folder, architectures=DROP)
    assert load_target(folder).config.family == "llama"


def test_heads_follow_from_what_is_there(folder: Path) -> None:
    edit_config(folder, head_dim=DROP)
    assert load_target(folder).config.head_dim == 16
    edit_config(folder, num_key_value_heads=DROP)
    assert codes_of(lambda: load_target(folder)) == ["C022"] * 8  # k and v of four layers are narrower


@pytest.mark.parametrize("name", ["head_dim", "num_key_value_heads"])
def test_qwen3_must_state_its_heads(tmp_path: Path, name: str) -> None:
    folder = write_target(tmp_path, TinyTarget(family="qwen3"))
    edit_config(folder, **{name: DROP})
    assert f"error[C033]: {name} is missing" in report_of(lambda: load_target(folder))


@pytest.mark.parametrize(
    ("generation", "config", "expected"),
    [
        ({}, 2, (2,)),
        ({}, [2, 5, 2], (2, 5)),
        ({}, None, ()),
        ({"eos_token_id": [7, 8]}, 2, (7, 8)),
        ({"eos_token_id": 7}, [2, 5], (7,)),
        ({"eos_token_id": None}, 2, (2,)),
    ],
)
def test_end_ids_are_of_generation_config_then_config(
    folder: Path, generation: dict[str, Any], config: Any, expected: tuple[int, ...]
) -> None:
    write_json(folder / "generation_config.json", generation)
    edit_config(folder, eos_token_id=config)
    assert load_target(folder).config.eos_token_ids == expected


@pytest.mark.parametrize("bos", [-1, 61, None])
def test_bos_outside_the_vocabulary_is_none(folder: Path, bos: int | None) -> None:
    edit_config(folder, bos_token_id=bos)
    assert load_target(folder).config.bos_token_id is None


WINDOWS: list[tuple[dict[str, Any], list[int]]] = [
    ({"use_sliding_window": False, "sliding_window": 8, "max_window_layers": 0}, [0, 0, 0, 0]),
    ({"use_sliding_window": True, "sliding_window": 8, "max_window_layers": 0}, [8, 8, 8, 8]),
    ({"use_sliding_window": True, "sliding_window": 8, "max_window_layers": 3}, [0, 0, 0, 8]),
    ({"use_sliding_window": True, "sliding_window": 8, "max_window_layers": 28}, [0, 0, 0, 0]),
    ({"use_sliding_window": True, "sliding_window": None, "max_window_layers": 0}, [0, 0, 0, 0]),
    (
        {
            "use_sliding_window": True,
            "sliding_window": 8,
            "max_window_layers": 0,
            "layer_types": ["full_attention", "sliding_attention"] * 2,
        },
        [0, 8, 0, 8],
    ),
]


@pytest.mark.parametrize(("changes", "expected"), WINDOWS)
def test_sliding_windows_are_those_of_transformers(
    tmp_path: Path, changes: dict[str, Any], expected: list[int]
) -> None:
    import transformers

    folder = write_target(tmp_path, TinyTarget(family="qwen3"))
    edit_config(folder, **changes)
    config = load_target(folder).config
    assert [config.window(layer) for layer in range(4)] == expected
    theirs = transformers.AutoConfig.from_pretrained(folder)
    sliding = [kind == "sliding_attention" and theirs.sliding_window is not None for kind in theirs.layer_types]
    assert sliding == [window > 0 for window in expected]


LAYER_TYPES: list[tuple[dict[str, Any], str, str]] = [
    ({"layer_types": ["full_attention"] * 3}, "C037", "layer_types has 3 entries; needed: 4"),
    ({"layer_types": ["full_attention"] * 3 + ["chunked_attention"]}, "C037", "layer type 'chunked_attention'"),
    ({"layer_types": ["sliding_attention"] * 4}, "C030", "use_sliding_window or sliding_window is not set"),
    ({"layer_types": "full_attention"}, "C031", "layer_types is the string"),
    ({"use_sliding_window": True, "sliding_window": 0}, "C032", "sliding_window is 0"),
    ({"use_sliding_window": "yes"}, "C031", "use_sliding_window is the string 'yes'"),
]


@pytest.mark.parametrize(("changes", "code", "text"), LAYER_TYPES)
def test_windows_that_are_refused(tmp_path: Path, changes: dict[str, Any], code: str, text: str) -> None:
    folder = write_target(tmp_path, TinyTarget(family="qwen3"))
    edit_config(folder, **changes)
    report = report_of(lambda: load_target(folder))
    assert f"error[{code}]" in report and text in report


def test_llama_has_no_windows(folder: Path) -> None:
    edit_config(folder, sliding_window=8, use_sliding_window=True, max_window_layers=0)
    assert load_target(folder).config.layer_windows == ()


def test_chat_template_inside_the_tokenizer_configuration(folder: Path) -> None:
    (folder / "chat_template.jinja").unlink()
    assert "chat_template.jinja" not in load_target(folder).text_files
    write_json(folder / "tokenizer_config.json", {"chat_template": "{{ messages }}"})
    assert load_target(folder).text_files["chat_template.jinja"] == b"{{ messages }}"


def test_tokenizer_that_is_damaged(folder: Path) -> None:
    (folder / "tokenizer.json").write_text('{"version": "1.0"}')
    assert report_of(lambda: load_target(folder)).startswith("error[C027]: tokenizer.json cannot be read")
    (folder / "tokenizer.json").write_bytes(b"\xff")
    assert codes_of(lambda: load_target(folder)) == ["C027"]


def test_tokenizer_of_another_model(folder: Path, tmp_path: Path) -> None:
    larger = write_target(tmp_path / "larger", TinyTarget(vocab_size=70))
    (folder / "tokenizer.json").write_bytes((larger / "tokenizer.json").read_bytes())
    assert load_target(folder).warnings == (
        "tokenizer.json has ids up to 69, the model only 0..60: such prompts are refused",
    )


def test_folder_without_a_tokenizer(folder: Path) -> None:
    (folder / "tokenizer.json").unlink()
    assert load_target(folder).warnings == ("no tokenizer.json; prompts are given as token ids",)
    (folder / "tokenizer.model").write_bytes(b"")
    assert "only tokenizer.model" in load_target(folder).warnings[0]


def test_unknown_fields_are_left_alone(folder: Path) -> None:
    edit_config(folder, transformers_version="9", pretraining_tp=2, anything={"a": [1, {"b": None}]})
    assert len(load_target(folder).tensors) == 39
    assert json.loads(load_target(folder).text_files["config.json"])["pretraining_tp"] == 2

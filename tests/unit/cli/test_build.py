# SPDX-License-Identifier: Apache-2.0
"""Answers that a drafter's checkpoint lacks reach it from the command line; what messages advise exists."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path

import click
import onnx
import pytest

import hspec_trt
from hspec_trt.bundle import open_engine
from hspec_trt.cli.app import COMMANDS, _cli, main
from hspec_trt.config.build import FEEDBACK, BuildConfig
from hspec_trt.config.drafter_options import DrafterOptions
from hspec_trt.pipeline import GRAPH_FILE
from tests.support.edited_drafter import DROP, write_drafter
from tests.support.golden import GOLDEN

PACKAGE = Path(hspec_trt.__file__).parent
TARGET = GOLDEN / "hspec_qwen3" / "target"
OPTION = re.compile(r"--[a-z][a-z0-9]*(?:-[a-z0-9]+)*(?![\w-])")
OTHER_TOOLS = {"--merge", "--model-repository", "--model-control-mode", "--load-model", "--need"}
"""Options of llama-gguf-split, of tritonserver and of the script that compiles kernels."""


LIMITS = ("--max-num-tokens", "64", "--max-batch-size", "2", "--page-size", "16")


def build(drafter: Path, output: Path, *options: str, target: Path = TARGET) -> int:
    folders = ("--target", str(target), "--drafter", str(drafter), "--output", str(output))
    with pytest.raises(SystemExit) as caught:
        main(["build", *folders, *LIMITS, *options])
    return int(str(caught.value.code))


def command_of(name: str) -> click.Command:
    assert isinstance(_cli, click.Group)
    command = _cli.get_command(click.Context(_cli), name)
    assert command is not None
    return command


def strings(path: Path) -> list[str]:
    """Texts of a module that a program may print: all but docstrings."""
    tree = ast.parse(path.read_text())
    docs = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    nodes = (node for node in ast.walk(tree) if isinstance(node, ast.Constant) and id(node) not in docs)
    return [node.value for node in nodes if isinstance(node.value, str)]


def test_every_option_that_a_message_names_exists() -> None:
    known = {"--help", "--version", "--debug", *OTHER_TOOLS}
    for name in COMMANDS:
        for param in command_of(name).params:
            known |= {*param.opts, *param.secondary_opts}
    named = {
        (option, str(path.relative_to(PACKAGE)))
        for path in PACKAGE.rglob("*.py")
        for text in strings(path)
        for option in OPTION.findall(text)
    }
    assert ("--allow-trailing", "checkpoint/safetensors_file.py") in named  # the search finds what it should
    assert {(option, path) for option, path in named if option not in known} == set()


def test_every_answer_about_a_drafter_is_an_option_of_build_and_plan() -> None:
    names = {"format": "--drafter-format", "layer_ids": "--drafter-layer-ids"}
    wanted = {names.get(field, "--" + field.replace("_", "-")) for field in vars(DrafterOptions())}
    for name in ("build", "plan"):
        assert wanted <= {option for param in command_of(name).params for option in param.opts}


def test_a_missing_mask_token_can_be_given(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = write_drafter(tmp_path / "d", mask_token_id=DROP)
    assert build(folder, tmp_path / "e") == 2
    assert "error[D120]" in capsys.readouterr().err
    assert build(folder, tmp_path / "e", "--mask-token-id", "255", "--num-drafts", "3") == 0
    manifest = open_engine(tmp_path / "e").manifest
    assert manifest.drafter is not None
    assert (manifest.drafter.mask_token_id, manifest.limits.num_drafts) == (255, 3)


def test_layer_ids_can_be_given_and_counted_otherwise(tmp_path: Path) -> None:
    folder = write_drafter(tmp_path / "d", latent_fusion_layer_ids=DROP, aux_hidden_state_layer_ids=DROP)
    assert build(folder, tmp_path / "e", "--drafter-layer-ids", "1,3") == 2
    assert build(folder, tmp_path / "e", "--drafter-layer-ids", "0,2,4", "--layer-id-base", "output") == 0
    drafter = open_engine(tmp_path / "e").manifest.drafter
    assert drafter is not None
    assert drafter.fused_layers == (1, 3, 5)


def test_trailing_bytes_can_be_allowed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Case A4."""
    folder = write_drafter(tmp_path / "d")
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes() + b"1234567")
    assert build(folder, tmp_path / "e") == 2
    assert "error[C007]" in capsys.readouterr().err
    assert build(folder, tmp_path / "e", "--allow-trailing") == 0


def test_another_tokenizer_can_be_allowed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Case A17: two ids swapped in a tokenizer of the same size; the first of them is named."""

    def tokenizer(*tokens: str) -> str:
        return json.dumps({"model": {"type": "BPE", "vocab": {token: i for i, token in enumerate(tokens)}}})

    folder = write_drafter(tmp_path / "d")
    target = tmp_path / "t"
    target.mkdir()
    for file in TARGET.iterdir():
        (target / file.name).write_bytes(file.read_bytes())
    names = [f"t{i}" for i in range(256)]
    swapped = [*names]
    swapped[7], swapped[90] = names[90], names[7]
    vocabulary = {"version": "1.0", "added_tokens": [], "normalizer": None, "pre_tokenizer": None}
    model = {"type": "WordLevel", "vocab": {name: i for i, name in enumerate(names)}, "unk_token": "t0"}
    rest = {"post_processor": None, "decoder": None, "truncation": None, "padding": None}
    (target / "tokenizer.json").write_text(json.dumps(vocabulary | rest | {"model": model}))
    (folder / "tokenizer.json").write_text(tokenizer(*swapped))
    arguments = ["build", "--target", str(target), "--drafter", str(folder), "--output", str(tmp_path / "e")]
    arguments += ["--max-num-tokens", "64", "--max-batch-size", "2"]
    for more, code in (([], 2), (["--allow-other-tokenizer"], 0)):
        with pytest.raises(SystemExit) as caught:
            main([*arguments, *more])
        assert int(str(caught.value.code)) == code
        assert ("error[D111]: tokenizers differ at id 7: target 't7', drafter 't90'" in capsys.readouterr().err) == (
            code == 2
        )


@pytest.mark.parametrize("options", [["--mask-token-id", "3"], ["--no-sample-from-anchor"]])
def test_answers_need_a_drafter(options: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["build", "--target", str(TARGET), "--output", str(tmp_path / "e"), *options])
    assert caught.value.code == 2
    assert "need --drafter" in capsys.readouterr().err


def test_extensions_can_be_chosen(tmp_path: Path) -> None:
    drafter = GOLDEN / "hspec_qwen3" / "drafter"
    assert build(drafter, tmp_path / "e", "--extension", "top_logprobs") == 0
    assert open_engine(tmp_path / "e").manifest.limits.extensions == ("top_logprobs",)


def test_an_architecture_is_no_option_of_an_engine_for_the_cpu(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert build(GOLDEN / "hspec_qwen3" / "drafter", tmp_path / "engine", "--sm", "89") == 2
    assert "error[B044]: --sm 89 for a CPU" in capsys.readouterr().err
    assert not (tmp_path / "engine").exists()


def test_a_timing_cache_is_no_option_of_an_engine_for_the_cpu(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cache = str(tmp_path / "cache")
    assert build(GOLDEN / "hspec_qwen3" / "drafter", tmp_path / "engine", "--timing-cache", cache) == 2
    assert f"error[B043]: --timing-cache {cache} for a CPU" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("place", "fault"),
    [("none/cache", "error[B003]: {}/none is no folder"), ("", "error[B005]: --timing-cache {} is a folder")],
)
def test_a_timing_cache_that_cannot_be_written_is_refused_before_any_work(
    place: str, fault: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ("--backend", "tensorrt-rtx", "--timing-cache", f"{tmp_path}/{place}")
    assert build(GOLDEN / "none", tmp_path / "engine", *arguments) == 2
    assert fault.format(tmp_path) in capsys.readouterr().err


def test_compiled_engines_keep_the_feedback_of_drafts_whatever_else_is_asked_for() -> None:
    for extensions in (None, (), ("top_logprobs",)):
        settled = BuildConfig(backend="tensorrt-rtx", extensions=extensions).settled_extensions
        assert settled == (*(extensions or ()), FEEDBACK)
    assert FEEDBACK not in BuildConfig(extensions=("top_logprobs",)).settled_extensions


def test_confidence_is_an_output_when_asked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    confident = GOLDEN / "dspark_qwen3"
    assert build(confident / "drafter", tmp_path / "e", "--draft-confidence", target=confident / "target") == 0
    outputs = [output.name for output in onnx.load(tmp_path / "e" / GRAPH_FILE, load_external_data=False).graph.output]
    assert "draft_confidence" in outputs
    capsys.readouterr()
    assert build(GOLDEN / "hspec_qwen3" / "drafter", tmp_path / "none", "--draft-confidence") == 2
    told = capsys.readouterr().err
    assert "error[B034]" in told and not (tmp_path / "none").exists()


def test_the_window_rule_of_training_can_be_asked_for(tmp_path: Path) -> None:
    drafter, ops = GOLDEN / "hspec_qwen3" / "drafter", {"SharedKvAttention", "AnchorWindowAttention"}
    found = []
    for rule in ("serving", "training"):
        assert build(drafter, tmp_path / rule, "--draft-window", rule) == 0
        model = onnx.load(tmp_path / rule / GRAPH_FILE, load_external_data=False)
        found.append({function.name for function in model.functions} & ops)
    assert found == [{"SharedKvAttention"}, {"AnchorWindowAttention"}]

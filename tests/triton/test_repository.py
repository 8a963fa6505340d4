# SPDX-License-Identifier: Apache-2.0
"""The exported repository on paper (case F13): config.pbtxt read with Triton's own protobuf, options, refusals."""

from __future__ import annotations

import ast
import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from google.protobuf import text_format
from tritonclient.grpc import model_config_pb2 as pb

from hspec_trt.bundle import EngineFolder
from hspec_trt.cli import main
from hspec_trt.errors import BuildError, FaultGroup, LoadError
from hspec_trt.serving.triton.config_text import ModelConfig
from hspec_trt.serving.triton.inputs import TEXT_INPUTS
from hspec_trt.serving.triton.metrics import METRIC_NAMES
from hspec_trt.serving.triton.outputs import TEXT_OUTPUTS
from hspec_trt.serving.triton.parameters import KEYS, ServedParameters, read_parameters
from hspec_trt.serving.triton.repository import ExportOptions, export_repository
from hspec_trt.serving.triton.tensors import Tensor
from tests.support.triton_engine import write_paper_engine


@pytest.fixture
def engine(tmp_path: Path) -> EngineFolder:
    return write_paper_engine(tmp_path / "engine")


def export(engine: EngineFolder, repository: Path, **options: object) -> dict[str, pb.ModelConfig]:
    export_repository(engine.path, repository, replace(ExportOptions(), **options))  # type: ignore[arg-type]
    return {path.parent.name: parsed(path) for path in repository.glob("*/config.pbtxt")}


def parsed(path: Path) -> pb.ModelConfig:
    return text_format.Parse(path.read_text(), pb.ModelConfig())


def strings(config: pb.ModelConfig) -> dict[str, str]:
    return {key: value.string_value for key, value in config.parameters.items()}


def tensors(config: pb.ModelConfig) -> dict[str, tuple[str, list[int], bool, bool, bool]]:
    return {
        one.name: (
            pb.DataType.Name(one.data_type),
            list(one.dims),
            one.optional,
            one.HasField("reshape"),
            one.allow_ragged_batch,
        )
        for one in config.input
    }


def test_the_text_model_alone_is_the_default(engine: EngineFolder, tmp_path: Path) -> None:
    models = export(engine, tmp_path / "repo")
    assert set(models) == {"hspec"}
    hspec = models["hspec"]
    assert hspec.name == "hspec"
    assert hspec.backend == "python"
    assert hspec.max_batch_size == engine.manifest.limits.max_batch_size
    assert hspec.model_transaction_policy.decoupled
    (group,) = hspec.instance_group
    assert (group.count, group.kind) == (1, pb.ModelInstanceGroup.KIND_CPU)
    assert strings(hspec)["gpt_model_path"] == str(engine.path)


def test_names_and_types_that_clients_of_the_ensemble_send(engine: EngineFolder, tmp_path: Path) -> None:
    found = tensors(export(engine, tmp_path / "repo")["hspec"])
    assert found["text_input"] == ("TYPE_STRING", [1], True, False, False)
    optional = {
        "max_tokens": ("TYPE_INT32", [1]),
        "bad_words": ("TYPE_STRING", [-1]),
        "stop_words": ("TYPE_STRING", [-1]),
        "end_id": ("TYPE_INT32", [1]),
        "pad_id": ("TYPE_INT32", [1]),
        "top_k": ("TYPE_INT32", [1]),
        "top_p": ("TYPE_FP32", [1]),
        "temperature": ("TYPE_FP32", [1]),
        "repetition_penalty": ("TYPE_FP32", [1]),
        "seed": ("TYPE_UINT64", [1]),
        "return_log_probs": ("TYPE_BOOL", [1]),
        "stream": ("TYPE_BOOL", [1]),
        "beam_width": ("TYPE_INT32", [1]),
        "lora_config": ("TYPE_INT32", [-1, 3]),
        "sampling_param_stop": ("TYPE_STRING", [-1]),
        "sampling_param_seed": ("TYPE_UINT64", [1]),
        "streaming": ("TYPE_BOOL", [1]),
    }
    assert {name: found[name][:2] for name in optional} == optional
    assert all(found[name][2] for name in optional)


def test_the_llmapi_form_has_no_batch_dimension(engine: EngineFolder, tmp_path: Path) -> None:
    hspec = export(engine, tmp_path / "repo", interface="llmapi")["hspec"]
    assert hspec.max_batch_size == 0
    assert tensors(hspec)["text_input"] == ("TYPE_STRING", [-1], True, False, False)
    outputs = {one.name: pb.DataType.Name(one.data_type) for one in hspec.output}
    assert outputs["finish_reason"] == outputs["stop_reason"] == outputs["text_output"] == "TYPE_STRING"
    assert outputs["cumulative_logprob"] == outputs["acceptance_rate"] == "TYPE_FP32"
    assert outputs["total_draft_tokens"] == outputs["total_accepted_draft_tokens"] == "TYPE_INT32"
    assert outputs["arrival_time_ns"] == outputs["last_token_time_ns"] == "TYPE_INT64"


def test_decoupled_off(engine: EngineFolder, tmp_path: Path) -> None:
    models = export(engine, tmp_path / "repo", models="all", decoupled=False)
    assert not any(one.model_transaction_policy.decoupled for one in models.values())


def test_the_token_model_has_tensorrt_llms_form(engine: EngineFolder, tmp_path: Path) -> None:
    models = export(engine, tmp_path / "repo", models="tensorrt_llm")
    assert set(models) == {"tensorrt_llm", "preprocessing", "postprocessing", "ensemble"}
    found = tensors(models["tensorrt_llm"])
    assert found["input_ids"] == ("TYPE_INT32", [-1], True, False, True)
    assert found["input_lengths"] == found["request_output_len"] == ("TYPE_INT32", [1], False, True, False)
    assert found["stop_words_list"] == ("TYPE_INT32", [2, -1], True, False, True)
    assert found["runtime_top_k"] == ("TYPE_INT32", [1], True, True, False)
    assert found["embedding_bias"] == ("TYPE_FP32", [-1], True, False, True)
    assert models["tensorrt_llm"].model_transaction_policy.decoupled
    assert not models["preprocessing"].model_transaction_policy.decoupled
    assert models["ensemble"].platform == "ensemble"
    assert not any(tensors(models["ensemble"])[name][2] for name in ("text_input", "max_tokens"))


def test_the_ensemble_is_wired_through(engine: EngineFolder, tmp_path: Path) -> None:
    """Every step's input is an input of its model and comes from somewhere; every output of the ensemble is made."""
    models = export(engine, tmp_path / "repo", models="all")
    ensemble = models["ensemble"]
    offered = {one.name: one.data_type for one in ensemble.input}
    used: set[str] = set()
    for step in ensemble.ensemble_scheduling.step:
        model = models[step.model_name]
        types = {one.name: one.data_type for one in model.input}
        for name, source in step.input_map.items():
            assert offered[source] == types[name], (step.model_name, name)
            used.add(source)
        needed = {one.name for one in model.input if not one.optional}
        assert needed <= set(step.input_map), step.model_name
        given = {one.name: one.data_type for one in model.output}
        offered |= {source: given[name] for name, source in step.output_map.items()}
    assert {one.name for one in ensemble.input} == used & {one.name for one in ensemble.input}
    assert all(offered[one.name] == one.data_type for one in ensemble.output)
    hspec_inputs = {one.name for one in models["hspec"].input}
    assert {one.name for one in ensemble.input} <= hspec_inputs


def test_instances_share_memory_and_are_spread_over_devices(tmp_path: Path) -> None:
    engine = write_paper_engine(tmp_path / "gpu", backend="tensorrt")
    models = export(
        engine, tmp_path / "repo", models="all", instances=2, devices=(0, 1), kv_cache_memory=2**30, num_threads=3
    )
    for name in ("hspec", "tensorrt_llm"):
        found = read_parameters(strings(models[name]), name)
        assert models[name].instance_group[0].count == 2
        assert (found.engines, found.kv_cache_memory, found.devices) == (4, 2**28, (0, 1))
        assert found.num_threads == 3
    assert models["preprocessing"].instance_group[0].count == 1


def test_the_prompt_is_left_out_but_for_clients_of_the_token_model(engine: EngineFolder, tmp_path: Path) -> None:
    models = export(engine, tmp_path / "repo", models="all")
    assert strings(models["hspec"])["exclude_input_in_output"] == "true"
    assert strings(models["tensorrt_llm"])["exclude_input_in_output"] == "false"


def test_the_engine_may_lie_elsewhere_or_in_the_repository(engine: EngineFolder, tmp_path: Path) -> None:
    models = export(engine, tmp_path / "a", engine_path="/engines/x", execution_env="/venv")
    assert strings(models["hspec"])["gpt_model_path"] == "/engines/x"
    assert strings(models["hspec"])["EXECUTION_ENV_PATH"] == "/venv"
    models = export(engine, tmp_path / "b", models="all", copy_engine=True)
    for name in ("hspec", "tensorrt_llm"):
        path = read_parameters(strings(models[name]), name).engine_path(tmp_path / "b" / name)
        assert (path / "config.json").read_bytes() == (engine.path / "config.json").read_bytes()
    assert (tmp_path / "b" / "preprocessing" / strings(models["preprocessing"])["tokenizer_dir"]).is_dir()


def test_model_code_is_python_and_no_template_is_left(engine: EngineFolder, tmp_path: Path) -> None:
    export(engine, tmp_path / "repo", models="all")
    files = sorted(path for path in (tmp_path / "repo").rglob("*") if path.is_file())
    assert [str(path.relative_to(tmp_path / "repo")) for path in files] == [
        "ensemble/1/.gitkeep",
        "ensemble/config.pbtxt",
        "hspec/1/model.py",
        "hspec/config.pbtxt",
        "hspec_trt.json",
        "postprocessing/1/model.py",
        "postprocessing/config.pbtxt",
        "preprocessing/1/model.py",
        "preprocessing/config.pbtxt",
        "tensorrt_llm/1/model.py",
        "tensorrt_llm/config.pbtxt",
    ]
    for path in files:
        text = path.read_text()
        assert "${" not in text
        if path.suffix == ".py":
            ast.parse(text)


def test_an_existing_folder_is_refused_without_force(engine: EngineFolder, tmp_path: Path) -> None:
    export(engine, tmp_path / "repo")
    with pytest.raises(BuildError, match="B001"):
        export(engine, tmp_path / "repo")
    assert set(export(engine, tmp_path / "repo", models="tensorrt_llm", force=True)) == {
        "tensorrt_llm",
        "preprocessing",
        "postprocessing",
        "ensemble",
    }


def test_force_replaces_only_what_an_export_wrote(engine: EngineFolder, tmp_path: Path) -> None:
    other = tmp_path / "home"
    other.mkdir()
    (other / "letter.txt").write_text("dear")
    with pytest.raises(BuildError, match=r"B002.*model repository"):
        export(engine, other, force=True)
    with pytest.raises(BuildError, match="B002"):
        export(engine, engine.path, force=True)
    export(engine, tmp_path / "repo")
    (tmp_path / "repo" / "resnet").mkdir()
    with pytest.raises(BuildError, match=r"B041.*resnet"):
        export(engine, tmp_path / "repo", force=True)


def test_options_that_do_not_fit_are_all_named(engine: EngineFolder, tmp_path: Path) -> None:
    with pytest.raises(FaultGroup) as caught:
        export(
            engine,
            tmp_path / "repo",
            instances=0,
            devices=(0, 0),
            engine_path="/x",
            copy_engine=True,
            kv_cache_fraction=0.0,
        )
    assert [fault.code for fault in caught.value.faults] == ["B040"] * 5
    assert not (tmp_path / "repo").exists()


def test_an_engine_without_tokenizer_is_refused(tmp_path: Path) -> None:
    engine = write_paper_engine(tmp_path / "engine", tokenizer=False)
    with pytest.raises(BuildError, match=r"B040.*tokenizer"):
        export(engine, tmp_path / "repo")


def test_parameters_survive_the_file() -> None:
    parameters = ServedParameters(
        engine="a b/é", exclude_input=False, kv_cache_memory=5, devices=(1, 3), cancel_period_ms=2.5
    )
    assert read_parameters(parameters.to_strings(), "x") == parameters
    assert set(KEYS) == set(vars(parameters))


def test_bad_parameters_are_all_named() -> None:
    bad = {
        "gpt_model_path": "",
        "max_queue_sise": "3",
        "num_threads": "-1",
        "kv_cache_free_gpu_mem_fraction": "1.5",
        "enable_kv_cache_reuse": "maybe",
        "gpu_device_ids": "0,x",
        "cancellation_check_period_ms": "nan",
    }
    with pytest.raises(FaultGroup) as caught:
        read_parameters(bad, "config.pbtxt")
    assert [fault.code for fault in caught.value.faults] == ["L050"] + ["L051"] * 6
    assert "max_queue_size" in str(caught.value)
    with pytest.raises(LoadError, match="gpt_model_path"):
        read_parameters({}, "config.pbtxt")


def test_odd_characters_in_strings() -> None:
    odd = "a\"b\\c\n\x01é'"
    config = ModelConfig("m", 0, [Tensor("t", "FP32", (1,))], [], parameters={"k": odd})
    assert text_format.Parse(config.to_text(), pb.ModelConfig()).parameters["k"].string_value == odd


def test_the_command(engine: EngineFolder, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    repository = tmp_path / "repo"
    command = ["export-triton", str(engine.path), str(repository), "--models", "all", "--kv-cache-memory", "1.5GiB"]
    with pytest.raises(SystemExit) as done:
        main(command)
    assert done.value.code == 0
    shown = capsys.readouterr().out
    assert "preprocessing -> tensorrt_llm -> postprocessing" in shown
    assert "/v2/models/hspec/generate" in shown
    assert strings(parsed(repository / "hspec" / "config.pbtxt"))["kv_cache_memory"] == str(3 * 2**28)
    with pytest.raises(SystemExit) as done:
        main(command)
    assert done.value.code == 2
    assert capsys.readouterr().err.startswith("error[B001]")
    assert json.loads((repository / "hspec_trt.json").read_text())["models"][0] == "hspec"


@pytest.mark.parametrize("bad", [["--kv-cache-memory", "lots"], ["--devices", "0;1"], ["--decoupled", "maybe"]])
def test_bad_options_of_the_command(bad: list[str], engine: EngineFolder, tmp_path: Path) -> None:
    with pytest.raises(SystemExit) as done:
        main(["export-triton", str(engine.path), str(tmp_path / "repo"), *bad])
    assert done.value.code == 2


def test_the_documentation_names_every_input_output_parameter_and_metric() -> None:
    text = (Path(__file__).parents[2] / "docs" / "triton.md").read_text()
    tensors = [spec.tensor.name for spec in (*TEXT_INPUTS, *TEXT_OUTPUTS)]
    named = [*tensors, *(key for key, _ in KEYS.values()), *METRIC_NAMES]
    assert [name for name in named if not re.search(rf"`{re.escape(name)}[`{{]", text)] == []

# SPDX-License-Identifier: Apache-2.0
"""Writes a model repository that a stock Triton Inference Server loads: nothing is left to fill in.

Owns the folder's form. What the models' configurations say is in `models`.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Literal

from hspec_trt import __version__
from hspec_trt.bundle import EngineFolder, FolderKind, new_folder, open_engine
from hspec_trt.errors import BuildError, Faults
from hspec_trt.runtime.options import RuntimeOptions
from hspec_trt.serving.triton import models
from hspec_trt.serving.triton.config_text import ModelConfig
from hspec_trt.serving.triton.models import Interface
from hspec_trt.serving.triton.parameters import ServedParameters

ModelSet = Literal["hspec", "tensorrt_llm", "all"]
MODEL_SETS: tuple[ModelSet, ...] = ("hspec", "tensorrt_llm", "all")

REPOSITORY: Final = FolderKind("a model repository", "hspec_trt.json", b'"exported_by"')
VERSION_FOLDER: Final = "1"
ENGINE_COPY: Final = "engine"
MAX_INSTANCES: Final = 64

_CODE: Final = '''# SPDX-License-Identifier: Apache-2.0
"""The model {name} of this repository; the work is done in hspec_trt.serving.triton.{module}."""

import triton_python_backend_utils as pb_utils

from hspec_trt.serving.triton.{module} import {maker}


class TritonPythonModel:
    def initialize(self, args):
        self.model = {maker}(pb_utils, args)

    def execute(self, requests):
        return self.model.execute(requests)

    def is_ready(self):
        return self.model.is_ready()

    def finalize(self):
        self.model.finalize()
'''

_MODULES: Final = {
    models.HSPEC: ("hspec", "HspecModel"),
    models.TOKENS: ("tokens", "TokenModel"),
    models.PREPROCESSING: ("plain", "PreprocessingModel"),
    models.POSTPROCESSING: ("plain", "PostprocessingModel"),
}


@dataclass(frozen=True)
class ExportOptions:
    """Options of ``hspec-trt export-triton``.

    Attributes:
        models: "hspec" takes and gives text; "tensorrt_llm" token ids, with the ensemble around it; or "all".
        interface: form of the text model's tensors: with a batch dimension as TensorRT-LLM's ensemble, or without as
            its llmapi model. The names of both are taken either way.
        decoupled: any number of responses to a request (streaming), or exactly one.
        instances: processes, each with the engine loaded, for each model that loads it.
        devices: GPUs that the instances are spread over; empty leaves it to CUDA.
        kv_cache_memory: bytes of pages of all instances together; None takes `kv_cache_fraction` of free memory.
        num_threads: threads of each instance on the onnxruntime backend; 0 shares the cores.
        engine_path: the engine folder as the server sees it; None is where it lies now.
        copy_engine: put the engine folder into the repository instead.
        execution_env: a virtual environment (as the server sees it) to run the models in.
        force: replace a repository that an earlier export wrote.
    """

    models: ModelSet = "hspec"
    interface: Interface = "ensemble"
    decoupled: bool = True
    instances: int = 1
    devices: tuple[int, ...] = ()
    kv_cache_memory: int | None = None
    kv_cache_fraction: float = RuntimeOptions.kv_cache_fraction
    num_threads: int = ServedParameters.num_threads
    max_queue_size: int = ServedParameters.max_queue_size
    engine_path: str | None = None
    copy_engine: bool = False
    execution_env: str | None = None
    force: bool = False

    @property
    def loads_hspec(self) -> bool:
        """Whether the text model is exported."""
        return self.models in ("hspec", "all")

    @property
    def loads_tokens(self) -> bool:
        """Whether the token model is exported."""
        return self.models in ("tensorrt_llm", "all")

    @property
    def engines(self) -> int:
        """How many times the engine is loaded."""
        return self.instances * (self.loads_hspec + self.loads_tokens)


def export_repository(engine_dir: Path, repository: Path, options: ExportOptions) -> tuple[ModelConfig, ...]:
    """Write a model repository; returns the configurations of its models.

    Raises:
        LoadError: as `open_engine`.
        BuildError: B001 to B004 the folder, B040 an option that does not fit the engine or another option, B041 the
            repository that is to be replaced has models that are not ours.
    """
    engine = open_engine(engine_dir)
    check_options(engine, options)
    configs = describe_models(engine, options)
    if options.force:
        _check_strangers(repository)
    with new_folder(repository, force=options.force, kind=REPOSITORY) as folder:
        for config in configs:
            _write_model(folder / config.name, config)
        if options.copy_engine:
            shutil.copytree(engine.path, folder / configs[0].name / ENGINE_COPY)
        record = {"exported_by": f"hspec_trt {__version__}", "models": [config.name for config in configs]}
        (folder / REPOSITORY.marker).write_text(json.dumps(record, indent=2) + "\n")
    return configs


def check_options(engine: EngineFolder, options: ExportOptions) -> None:
    """Refuse options that do not fit the engine or each other (B040); all of them together."""
    faults = Faults()
    if not 1 <= options.instances <= MAX_INSTANCES:
        faults.add(BuildError("B040", f"--instances {options.instances}", needed=f"1 to {MAX_INSTANCES}"))
    if len(set(options.devices)) != len(options.devices) or any(device < 0 for device in options.devices):
        faults.add(BuildError("B040", f"--devices {options.devices}", needed="different numbers, none negative"))
    if options.devices and engine.manifest.backend == "onnxruntime":
        fix = "Leave --devices away, or build with --backend tensorrt"
        faults.add(BuildError("B040", "--devices with an engine that runs on the CPU", fix=fix))
    if options.engine_path is not None and options.copy_engine:
        faults.add(BuildError("B040", "--engine-path and --copy-engine exclude each other", fix="Give one of them"))
    if not 0.0 < options.kv_cache_fraction <= 1.0:
        faults.add(BuildError("B040", f"--kv-cache-fraction {options.kv_cache_fraction}", needed="above 0, at most 1"))
    if "tokenizer.json" not in engine.manifest.files:
        found = f"{engine.path} has no tokenizer.json"
        faults.add(
            BuildError("B040", found, needed="a tokenizer, for text in and out", fix="Build from a folder with one")
        )
    faults.raise_any()


def _check_strangers(repository: Path) -> None:
    """``--force`` replaces the whole folder: refuse where somebody put another model into it."""
    if REPOSITORY.is_ours(repository):
        ours = {*_MODULES, models.ENSEMBLE, REPOSITORY.marker}
        strangers = sorted(path.name for path in repository.iterdir() if path.name not in ours)
        if strangers:
            found = f"{repository} also holds {', '.join(strangers)}"
            raise BuildError(
                "B041", found, needed="only what an export wrote", fix="Move it away, or choose another folder"
            )


def describe_models(engine: EngineFolder, options: ExportOptions) -> tuple[ModelConfig, ...]:
    """The configurations of all models of the repository."""
    limits = engine.manifest.limits
    memory = options.kv_cache_memory
    parameters = ServedParameters(
        engine=_engine_path(engine, options),
        max_queue_size=options.max_queue_size,
        kv_cache_memory=0 if memory is None else memory // options.engines,
        kv_cache_fraction=options.kv_cache_fraction,
        engines=options.engines,
        num_threads=options.num_threads,
        devices=options.devices,
    )
    found: list[ModelConfig] = []
    if options.loads_hspec:
        found.append(
            models.hspec_model(
                parameters,
                interface=options.interface,
                max_batch_size=limits.max_batch_size,
                decoupled=options.decoupled,
                instances=options.instances,
            )
        )
    if options.loads_tokens:
        found += models.tensorrt_llm_models(
            # TensorRT-LLM's default: the output starts with the prompt.
            replace(parameters, exclude_input=False),
            max_batch_size=limits.max_batch_size,
            decoupled=options.decoupled,
            instances=options.instances,
        )
    return tuple(_in_environment(config, options.execution_env) for config in found)


def _engine_path(engine: EngineFolder, options: ExportOptions) -> str:
    if options.copy_engine:
        return f"../{models.HSPEC if options.loads_hspec else models.TOKENS}/{ENGINE_COPY}"
    return str(engine.path.resolve()) if options.engine_path is None else options.engine_path


def _in_environment(config: ModelConfig, environment: str | None) -> ModelConfig:
    if environment is None or config.steps:
        return config
    return replace(config, parameters={**config.parameters, "EXECUTION_ENV_PATH": environment})


def _write_model(folder: Path, config: ModelConfig) -> None:
    (folder / VERSION_FOLDER).mkdir(parents=True)
    (folder / "config.pbtxt").write_text(config.to_text())
    if not config.steps:
        module, maker = _MODULES[config.name]
        code = _CODE.format(name=config.name, module=module, maker=maker)
        (folder / VERSION_FOLDER / "model.py").write_text(code)
    else:
        # An ensemble has no file of its own; the version folder must survive tools that drop empty ones.
        (folder / VERSION_FOLDER / ".gitkeep").touch()

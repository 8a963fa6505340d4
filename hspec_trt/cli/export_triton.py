# SPDX-License-Identifier: Apache-2.0
"""``hspec-trt export-triton``."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import click

from hspec_trt.cli.display import OUT, key_value_table
from hspec_trt.cli.numbers import BYTES, NATURALS
from hspec_trt.runtime.options import MAX_THREADS
from hspec_trt.serving.triton.config_text import ModelConfig
from hspec_trt.serving.triton.models import HSPEC, INTERFACES
from hspec_trt.serving.triton.repository import MODEL_SETS, ExportOptions, export_repository

_DEFAULTS = {field.name: field.default for field in fields(ExportOptions)}


@click.command(name="export-triton", short_help="Write a Triton Inference Server model repository.")
@click.argument("engine_dir", type=click.Path(path_type=Path))
@click.argument("model_repo", type=click.Path(path_type=Path))
@click.option(
    "--models", type=click.Choice(MODEL_SETS), default=_DEFAULTS["models"], show_default=True,
    help="hspec: text in and out. tensorrt_llm: token ids in and out, and the ensemble around it.",
)  # fmt: skip
@click.option(
    "--interface", type=click.Choice(INTERFACES), default=_DEFAULTS["interface"], show_default=True,
    help="Tensors of hspec with a batch dimension (as TensorRT-LLM's ensemble) or without (as its llmapi model).",
)  # fmt: skip
@click.option(
    "--decoupled", type=click.Choice(("on", "off")), default="on", show_default=True,
    help="on: streaming. off: exactly one response for each request, also over plain infer calls.",
)  # fmt: skip
@click.option(
    "--instances", type=int, default=_DEFAULTS["instances"], show_default=True,
    help="Processes that load the engine, for each model; they share the memory budget.",
)  # fmt: skip
@click.option("--devices", type=NATURALS, default=(), help="GPUs that the instances are spread over, such as 0,1.")
@click.option(
    "--kv-cache-memory", type=BYTES, default=_DEFAULTS["kv_cache_memory"],
    help="Memory for KV pages, of all instances together, such as 4GiB.",
)  # fmt: skip
@click.option(
    "--kv-cache-fraction", type=float, default=_DEFAULTS["kv_cache_fraction"], show_default=True,
    help="Share of free memory for KV pages, where --kv-cache-memory is not given.",
)  # fmt: skip
@click.option(
    "--num-threads", type=click.IntRange(0, MAX_THREADS), default=_DEFAULTS["num_threads"], show_default=True,
    help="Threads of an instance on the onnxruntime backend; 0 shares all cores.",
)  # fmt: skip
@click.option(
    "--max-queue-size", type=click.IntRange(min=0), default=_DEFAULTS["max_queue_size"], show_default=True,
    help="Prompts that may wait for a row; one more is refused.",
)  # fmt: skip
@click.option("--engine-path", help="The engine folder as the server sees it, such as a path inside a container.")
@click.option("--copy-engine", is_flag=True, help="Copy the engine folder into the repository.")
@click.option("--execution-env", help="Virtual environment (as the server sees it) to run the models in.")
@click.option("--force", is_flag=True, help="Replace a repository that an earlier export wrote.")
def export_triton_command(
    engine_dir: Path,
    model_repo: Path,
    models: str,
    interface: str,
    decoupled: str,
    instances: int,
    devices: tuple[int, ...],
    kv_cache_memory: int | None,
    kv_cache_fraction: float,
    num_threads: int,
    max_queue_size: int,
    engine_path: str | None,
    copy_engine: bool,
    execution_env: str | None,
    force: bool,
) -> None:
    """Write a Triton Inference Server model repository for ENGINE_DIR to MODEL_REPO.

    The server loads it as it is. See docs/triton.md for the tensors and for starting the server.
    """
    options = ExportOptions(
        models=next(name for name in MODEL_SETS if name == models),
        interface=next(name for name in INTERFACES if name == interface),
        decoupled=decoupled == "on",
        instances=instances,
        devices=devices,
        kv_cache_memory=kv_cache_memory,
        kv_cache_fraction=kv_cache_fraction,
        num_threads=num_threads,
        max_queue_size=max_queue_size,
        engine_path=engine_path,
        copy_engine=copy_engine,
        execution_env=execution_env,
        force=force,
    )
    configs = export_repository(engine_dir, model_repo, options)
    OUT.print(key_value_table(f"model repository {model_repo}", {one.name: _described(one) for one in configs}))
    OUT.print(_next_steps(model_repo, configs), markup=False)


def _described(config: ModelConfig) -> str:
    if config.steps:
        return " -> ".join(step.model for step in config.steps)
    kind = "streaming" if config.decoupled else "one response for each request"
    return f"{kind}, {config.instances} instance{'s' if config.instances > 1 else ''}"


def _next_steps(repository: Path, configs: tuple[ModelConfig, ...]) -> str:
    asked = HSPEC if any(config.name == HSPEC for config in configs) else "ensemble"
    body = '{"text_input": "The capital of France is", "max_tokens": 16}'
    return (
        f"start it:  build_scripts/triton_server start {repository}\n"
        f"       or  tritonserver --model-repository={repository} --model-control-mode=explicit --load-model='*'\n"
        f"ask it:    curl -d '{body}' localhost:8000/v2/models/{asked}/generate"
    )

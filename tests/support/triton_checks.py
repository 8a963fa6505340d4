# SPDX-License-Identifier: Apache-2.0
"""What tests of the real server share: usual options, and what a model in it is doing, from its metrics."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

from hspec_trt.config.sampling import SamplingParams
from hspec_trt.runtime.llm import LLM
from hspec_trt.runtime.results import CompletionOutput
from hspec_trt.serving.triton.repository import ExportOptions, export_repository
from tests.support import waiting
from tests.support.triton_server import TritonServer

GREEDY = {"temperature": 0.0, "max_tokens": 20}
SAMPLED = {"temperature": 0.9, "seed": 11, "top_k": 30, "max_tokens": 60}
LONG = {"max_tokens": 3900, "ignore_eos": True, "drafts": "off", "temperature": 0.0}
"""Seconds of work even on an idle machine: it is still running when the test has done what it does to it."""
Variant = Callable[..., str]
"""Loads the text model, exported with other options, under a name of its own; returns the name."""


def load_variant(
    server: TritonServer, engine: Path, folder: Path, name: str, code: str = "", **options: object
) -> None:
    """Export an engine's text model under another name, with model code of its own if there is some, and load it.

    `folder` is a new folder that the export may use.
    """
    export_repository(engine, folder, replace(ExportOptions(num_threads=1), **options))  # type: ignore[arg-type]
    config = folder / "hspec" / "config.pbtxt"
    config.write_text(config.read_text().replace('name: "hspec"', f'name: "{name}"'))
    if code:
        (folder / "hspec" / "1" / "model.py").write_text(code)
    shutil.move(folder / "hspec", server.repository / name)
    server.load(name)


def expected(reference: LLM, prompt: str, **options: object) -> CompletionOutput:
    return reference.generate(prompt, SamplingParams(**options)).outputs[0]  # type: ignore[arg-type]


def active(server: TritonServer, model: str = "hspec", instance: str = "0") -> float:
    """Answers of an instance that are running or waiting."""
    return server.metric("nv_trt_llm_request_metrics", model=model, request_type="active", instance=instance)


def cancelled(server: TritonServer, model: str = "hspec") -> float:
    """Answers that were cancelled so far."""
    try:
        return server.metric("hspec_answers", model=model, finish_reason="cancelled")
    except AssertionError:
        return 0.0


wait_until = partial(waiting.wait_until, seconds=60.0)
"""A server loads models and ends processes meanwhile."""

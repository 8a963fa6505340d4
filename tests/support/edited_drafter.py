# SPDX-License-Identifier: Apache-2.0
"""Golden drafters as folders with something changed: keys of config.json, tensors, files beside them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file

from hspec_trt.checkpoint.drafter import DrafterCheckpoint, load_drafter
from hspec_trt.checkpoint.target import TargetCheckpoint, load_target
from hspec_trt.config.drafter_options import DrafterOptions
from tests.support.faults import codes_of, report_of
from tests.support.golden import GOLDEN
from tests.support.safetensors_writer import write_safetensors

Config = dict[str, object]
Tensors = dict[str, np.ndarray]
DROP = object()
"""As a value: remove the key or tensor."""


def write_drafter(folder: Path, case: str = "hspec_qwen3", *, tensors: Tensors | None = None, **keys: object) -> Path:
    """A copy of a golden drafter in `folder`.

    Args:
        tensors: replaced, added or dropped (`DROP`) by name.
        keys: of config.json; ``outer__inner`` reaches into an object.
    """
    source = GOLDEN / case / "drafter"
    config = json.loads((source / "config.json").read_text())
    for key, value in keys.items():
        outer, _, inner = key.partition("__")
        holder, name = (config[outer], inner) if inner else (config, outer)
        if value is DROP:
            del holder[name]
        else:
            holder[name] = value
    stored: Tensors = load_file(source / "model.safetensors")
    for name, values in (tensors or {}).items():
        if values is DROP:
            del stored[name]
        else:
            stored[name] = values
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    write_safetensors(folder / "model.safetensors", stored)
    return folder


def golden_target(case: str = "hspec_qwen3") -> TargetCheckpoint:
    """The target of a golden case."""
    return load_target(GOLDEN / case / "target")


def opened(folder: Path, case: str = "hspec_qwen3", **options: object) -> DrafterCheckpoint:
    """A drafter folder against the target of a case."""
    return load_drafter(folder, golden_target(case), DrafterOptions(**options))  # type: ignore[arg-type]


def codes(folder: Path, case: str = "hspec_qwen3", **options: object) -> list[str]:
    """Codes of its faults."""
    return codes_of(_call(folder, case, options))


def report(folder: Path, case: str = "hspec_qwen3", **options: object) -> str:
    """The text of its faults."""
    return report_of(_call(folder, case, options))


def _call(folder: Path, case: str, options: dict[str, object]) -> Callable[[], object]:
    return lambda: opened(folder, case, **options)

# SPDX-License-Identifier: Apache-2.0
"""Golden drafter cases opened the way a user's checkpoint is: configuration through the format adapters."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.numpy import load_file

from hspec_trt.checkpoint.fields import Fields
from hspec_trt.checkpoint.formats import dflash, dspark, eagle3, hspec, peagle
from hspec_trt.checkpoint.formats.layout import DrafterLayout, DrafterSource
from hspec_trt.checkpoint.hf_config import read_target_config
from hspec_trt.config.drafter import DrafterConfig
from hspec_trt.config.drafter_options import DrafterOptions
from hspec_trt.config.target import TargetConfig
from hspec_trt.dtypes import BY_NUMPY, DType
from hspec_trt.modeling.block import SharedTables
from tests.support.graph_engine import Pair

GOLDEN = Path(__file__).parents[1] / "golden"
Array = NDArray[np.generic]
Module = TypeVar("Module", bound=torch.nn.Module)
READERS = {
    "dflash": dflash.read_speculators,
    "dspark": dspark.read_speculators,
    "eagle3": eagle3.read_speculators,
    "mamba_attn_hybrid": hspec.read_speculators,
    "peagle": peagle.read_speculators,
}


@dataclass(frozen=True)
class ArrayTensor:
    """A checkpoint tensor in memory."""

    name: str
    array: Array

    @property
    def dtype(self) -> DType:
        return BY_NUMPY[self.array.dtype]

    @property
    def shape(self) -> tuple[int, ...]:
        return self.array.shape

    def read(self) -> Array:
        return self.array

    def read_row(self, index: int) -> Array:
        return self.array[index]


def sources(arrays: dict[str, Array]) -> dict[str, ArrayTensor]:
    return {name: ArrayTensor(name, array) for name, array in arrays.items()}


@dataclass(frozen=True)
class GoldenCase:
    """One folder of tests/golden."""

    name: str
    target: TargetConfig
    config_json: dict[str, object]
    arrays: dict[str, Array]
    vectors: dict[str, Array]

    def source(self, options: DrafterOptions | None = None) -> DrafterSource:
        fields = Fields(json.loads(json.dumps(self.config_json)), "config.json")
        return DrafterSource(fields, sources(self.arrays), self.target, options or DrafterOptions())

    def layout(self, options: DrafterOptions | None = None) -> DrafterLayout:
        return READERS[str(self.config_json["speculators_model_type"])](self.source(options))

    def prompts(self) -> list[str]:
        return sorted({key.split(".")[0] for key in self.vectors})

    def get(self, prompt: str, key: str) -> Array:
        return self.vectors[f"{prompt}.{key}"]

    def fused(self, prompt: str, layers: tuple[int, ...]) -> NDArray[np.float32]:
        """Concatenated target states ``[p, F * hidden]``."""
        states = [self.get(prompt, f"target.hidden.{layer}") for layer in layers]
        return np.concatenate(states, axis=-1).astype(np.float32)


def target_folder(name: str) -> Path:
    """The target of a case; the EAGLE-3 ones share that of another."""
    meta = json.loads((GOLDEN / name / "meta.json").read_text())
    return GOLDEN / meta.get("target_of", name) / "target"


def pair_of(case: GoldenCase) -> Pair:
    """Target and drafter for the graph tests."""
    layout = case.layout()
    target = load_file(target_folder(case.name) / "model.safetensors")
    return Pair(case.target, sources(target), layout.config, layout.tensors)


def tables_of(case: GoldenCase, config: DrafterConfig) -> SharedTables:
    """Embedding, head and map of a case's drafter."""
    tensors = {name: torch.from_numpy(case.arrays[name]) for name in ("embed_tokens.weight", "lm_head.weight")}
    ids = torch.arange(config.draft_vocab_size)
    if "d2t" in case.arrays:
        ids = ids + torch.from_numpy(case.arrays["d2t"])
    return SharedTables(tensors["embed_tokens.weight"], tensors["lm_head.weight"], ids)


def fill(model: Module, case: GoldenCase) -> Module:
    """Load a case's weights into its drafter; every tensor of the case must find its place."""
    tensors = {name: torch.from_numpy(array) for name, array in case.arrays.items()}
    model.load_state_dict({name: tensors[name] for name in model.state_dict()})
    assert not set(tensors) - set(model.state_dict()) - {"embed_tokens.weight", "lm_head.weight", "d2t", "t2d"}
    return model.eval()


def load_case(name: str) -> GoldenCase:
    folder = GOLDEN / name
    target = json.loads((target_folder(name) / "config.json").read_text())
    return GoldenCase(
        name=name,
        target=read_target_config(target, {}, name="target"),
        config_json=json.loads((folder / "drafter/config.json").read_text()),
        arrays=load_file(folder / "drafter/model.safetensors"),
        vectors=load_file(folder / "vectors.safetensors"),
    )

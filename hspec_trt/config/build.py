# SPDX-License-Identifier: Apache-2.0
"""What a user asks of a build: backend, types and limits. The only place where their defaults stand."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from hspec_trt.config.drafters_block import WindowRule

Backend = Literal["onnxruntime", "tensorrt-rtx", "tensorrt"]
BACKENDS: tuple[Backend, ...] = ("onnxruntime", "tensorrt-rtx", "tensorrt")
PluginMode = Literal["kernels", "none"]
ExtensionName = Literal["logit_edits", "token_masks", "top_logprobs", "feedback"]
EXTENSION_NAMES: tuple[ExtensionName, ...] = ("logit_edits", "token_masks", "top_logprobs")
"""Extensions that requests may use."""
FEEDBACK: ExtensionName = "feedback"
"""The extension with which a session goes on to the next step before the host has read the last one."""


@dataclass(frozen=True)
class BuildConfig:
    """Options of ``hspec-trt build``.

    Attributes:
        dtype: type of weights, activations and pages; the onnxruntime backend takes float32 only.
        max_batch_size: rows of one step.
        max_seq_len: prompt plus new tokens of one request; None takes the target's own limit.
        max_num_tokens: packed tokens of one step, so also the longest prompt chunk.
        page_size: tokens a page holds.
        num_drafts: drafts a step; None takes the drafter's own number.
        sm: GPU architectures, such as (80, 89); empty takes the backend's default.
        draft_window: edge of a block drafter's sliding windows; "training" is for comparison only.
        draft_confidence: give the drafter's estimate of each draft's acceptance (needs a confidence head).
        plugins: "none" compiles the ops' function bodies instead of the plugin kernels.
        extensions: optional parts of the step (`hspec_trt.contract.EXTENSIONS`): penalties and biases, token masks
            for guided decoding, the most likely tokens of a row. None is all of these on the onnxruntime backend,
            where they cost nothing to steps without, and none on the others, which get the feedback of drafts besides.
        timing_cache: file of TensorRT's measurements, read where it exists and written; None for none.
    """

    backend: Backend = "onnxruntime"
    dtype: str = "float32"
    max_batch_size: int = 32
    max_seq_len: int | None = None
    max_num_tokens: int = 512
    page_size: int = 64
    num_drafts: int | None = None
    sm: tuple[int, ...] = ()
    draft_window: WindowRule = "serving"
    draft_confidence: bool = False
    plugins: PluginMode = "kernels"
    extensions: tuple[ExtensionName, ...] | None = None
    timing_cache: Path | None = None

    @property
    def settled_extensions(self) -> tuple[ExtensionName, ...]:
        """The extensions that a build of this configuration gets."""
        if self.backend == "onnxruntime":
            return EXTENSION_NAMES if self.extensions is None else self.extensions
        asked = self.extensions or ()
        return asked if FEEDBACK in asked else (*asked, FEEDBACK)


@dataclass(frozen=True)
class EngineLimits:
    """Limits of a built engine; nothing is left open.

    Attributes:
        max_batch_size: rows of one step.
        max_seq_len: tokens of one request, prompt and new ones together.
        max_num_tokens: packed tokens of one step.
        page_size: tokens a page holds.
        num_drafts: drafts a row may carry; the verify width is one more.
        extensions: optional parts of the step that the engine has.
    """

    max_batch_size: int
    max_seq_len: int
    max_num_tokens: int
    page_size: int
    num_drafts: int
    extensions: tuple[ExtensionName, ...] = ()

    @property
    def max_pages_per_row(self) -> int:
        """Pages that the longest request takes."""
        return -(-self.max_seq_len // self.page_size)

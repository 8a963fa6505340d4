# SPDX-License-Identifier: Apache-2.0
"""The options of every command that opens a target and a drafter: where they are, and answers that they lack."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, get_args

import click

from hspec_trt.checkpoint.drafter import DrafterCheckpoint, load_drafter
from hspec_trt.checkpoint.formats import KINDS
from hspec_trt.checkpoint.target import TargetCheckpoint, load_target
from hspec_trt.cli.numbers import INTEGERS
from hspec_trt.config.drafter_options import DrafterOptions, LayerIdBase

_PATH = click.Path(path_type=Path)
ALLOW_TRAILING = click.option(
    "--allow-trailing", is_flag=True, help="Accept bytes after the last tensor of a safetensors file."
)


@dataclass(frozen=True)
class Checkpoints:
    """What a user said of a target and its drafter.

    Attributes:
        options: answers that win over the drafter's checkpoint.
        allow_trailing, allow_other_tokenizer: as in `load_target` and `load_drafter`.
    """

    target: Path
    drafter: Path | None
    options: DrafterOptions
    allow_trailing: bool = False
    allow_other_tokenizer: bool = False

    def open(self) -> tuple[TargetCheckpoint, DrafterCheckpoint | None]:
        """Open both.

        Raises:
            CheckpointError, DrafterError: what is wrong with them.
        """
        target = load_target(self.target, allow_trailing=self.allow_trailing)
        if self.drafter is None:
            return target, None
        drafter = load_drafter(
            self.drafter,
            target,
            self.options,
            allow_trailing=self.allow_trailing,
            allow_other_tokenizer=self.allow_other_tokenizer,
        )
        return target, drafter


_OPTIONS = (
    click.option("--target", required=True, type=_PATH, help="Hugging Face folder or GGUF file of the target."),
    click.option("--drafter", type=_PATH, help="Folder of the drafter; without it the engine has the target alone."),
    click.option("--num-drafts", type=int, help="Drafts a step [default: what the drafter was trained for]."),
    click.option("--drafter-format", help=f"Format of the drafter: {', '.join(KINDS)} [default: found]."),
    click.option("--drafter-layer-ids", type=INTEGERS, help="Target layers that the drafter fuses, such as 2,14,25."),
    click.option(
        "--layer-id-base",
        type=click.Choice(get_args(LayerIdBase)),
        help="Whether layer ids name a layer's input or its output [default: the format's rule].",
    ),
    click.option("--mask-token-id", type=int, help="Token of the drafter's mask slots."),
    click.option(
        "--sample-from-anchor/--no-sample-from-anchor",
        default=None,
        help="Whether a block's first slot drafts too [default: as the checkpoint says].",
    ),
    click.option(
        "--norm-before-residual/--no-norm-before-residual",
        default=None,
        help="Residual of an EAGLE drafter's first layer [default: as the checkpoint says].",
    ),
    ALLOW_TRAILING,
    click.option("--allow-other-tokenizer", is_flag=True, help="Accept a drafter whose tokenizer differs."),
)


def checkpoint_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options above; it gets them as one `Checkpoints` named ``checkpoints``."""

    @functools.wraps(command)
    def collected(
        *,
        target: Path,
        drafter: Path | None,
        num_drafts: int | None,
        drafter_format: str | None,
        drafter_layer_ids: tuple[int, ...] | None,
        layer_id_base: LayerIdBase | None,
        mask_token_id: int | None,
        sample_from_anchor: bool | None,
        norm_before_residual: bool | None,
        allow_trailing: bool,
        allow_other_tokenizer: bool,
        **others: Any,
    ) -> None:
        options = DrafterOptions(
            format=drafter_format,
            layer_ids=drafter_layer_ids,
            layer_id_base=layer_id_base,
            mask_token_id=mask_token_id,
            sample_from_anchor=sample_from_anchor,
            norm_before_residual=norm_before_residual,
            num_drafts=num_drafts,
        )
        if drafter is None and replace(options, num_drafts=None) != DrafterOptions():
            raise click.UsageError("options of a drafter's checkpoint need --drafter")
        command(checkpoints=Checkpoints(target, drafter, options, allow_trailing, allow_other_tokenizer), **others)

    decorated: Callable[..., None] = collected
    for option in reversed(_OPTIONS):
        decorated = option(decorated)
    return decorated

# SPDX-License-Identifier: Apache-2.0
"""``hspec-trt train``: options in, a drafter folder out. PyTorch is imported only once the options are read."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any, TypeVar

import click

from hspec_trt.cli.checkpoint_options import ALLOW_TRAILING
from hspec_trt.config.drafters_block import MARKOV_TYPES
from hspec_trt.errors import BuildError
from hspec_trt.runtime.options import MAX_THREADS
from hspec_trt.training.options import DEVICES, OPTIMIZERS, SCHEDULES, LossMix, ShapeOptions, TrainOptions

_Command = TypeVar("_Command", bound=Callable[..., None])
_NEEDED = ("torch", "safetensors")

_SHAPE_HELP: dict[str, str] = {
    "mask_token_id": "Target token that fills the block's mask slots; must have a trained embedding row.",
    "kv_layers": "Target layer that each attention sub-layer reads, e.g. 15,28.",
    "fused_layers": "L of the target states h^(L) that are fused into the seed, e.g. 8,22,29.",
    "num_layers": "Draft layers of dflash, dspark and peagle.",
    "block_pattern": "Sub-layers in order, e.g. 'mamba mlp mamba attention mlp'.",
    "intermediate_size": "MLP width; the target's if not given.",
    "block_size": "Query slots of a block; one less is drafted.",
    "draft_vocab_size": "Tokens that can be drafted, the most frequent in the responses; all if not given.",
    "sliding_window": "Context tokens that attention sees; 0 is all, and then the block is bidirectional.",
    "mamba_num_heads": "Heads of a mamba sub-layer.",
    "mamba_head_dim": "Channels of a mamba head.",
    "mamba_d_state": "State size of a mamba head.",
    "mamba_n_groups": "Groups that share B and C.",
    "mamba_conv_kernel": "Taps of the short convolution.",
    "seed_mode": "Seed projections: shared, per_layer or once.",
    "fc_norm": "Norm each fused state.",
    "sample_from_anchor": "Slot k proposes the token after its own position (dflash, dspark).",
    "markov_rank": "Rank of the correction by the previous draft; 0 is none.",
    "markov_type": "What that correction looks at (dspark).",
    "confidence_head": "Train the confidence head.",
    "state_injection": "Seed the mamba states (off is an ablation).",
    "train_embedding": "Learn the embedding table, as P-EAGLE's published recipe does.",
    "target_kv_reuse": "Let attention read the target's K and V (off is an ablation).",
}
_MIX_HELP: dict[str, str] = {
    "ce": "Weight of the cross entropy to the target's first choice.",
    "tv": "Weight of the total variation of the distributions.",
    "confidence": "Weight of the confidence head's own loss.",
}
_TRAIN_HELP: dict[str, str] = {
    "steps": "Optimizer steps; follows from --epochs if not given.",
    "epochs": "Passes over every anchor of the text.",
    "chunks_per_step": "Conversations of a step.",
    "anchors_per_chunk": "Blocks of each.",
    "optimizer": "muon for matrices with AdamW for the rest, or AdamW alone.",
    "lr": "Peak rate of AdamW.",
    "muon_factor": "Muon's rate over AdamW's.",
    "weight_decay": "Decay of AdamW's part.",
    "muon_weight_decay": "Decay of muon's part.",
    "schedule": "cosine; or late: constant, then linear over the last part, and --steps may change until then.",
    "warmup_steps": "Steps in which the rate rises.",
    "decay": "Last part of a late schedule.",
    "final_lr": "Share of the peak rate that is left at the end.",
    "short_slots": "Judge only so many slots, but for every full-every-th step (saves time).",
    "full_every": "See --short-slots.",
    "cod_rate": "Thin blocks out: at depth d train a share of rate^d, 0.7 as published (peagle); all if not given.",
    "cod_floor": "Least share of --cod-rate.",
    "prompt_anchors": "Train on blocks that begin in the prompt too.",
    "noise": "Half width of uniform noise on what a block reads.",
    "clip": "Norm to which gradients are cut.",
    "seed": "Seed of initial weights, order of batches, noise and thinning.",
    "data_seed": "Seed of the order of conversations and of what is held out.",
    "max_conversations": "Use only so many conversations, drawn at random; all if not given.",
    "held_out": "Share of the prompts that is kept for evaluation.",
    "eval_conversations": "Held-out conversations of an evaluation on the way.",
    "eval_minutes": "Minutes between evaluations.",
    "save_minutes": "Minutes between saves.",
    "max_tokens": "Longer conversations are left out.",
    "cache_hidden_layers": "More states for the teacher cache, to share it between runs.",
    "cache_kv_layers": "More K/V layers for the teacher cache, to share it between runs.",
    "cache_all_rows": "States of every token in the teacher cache, to share it with dflash, dspark and peagle.",
    "bfloat16": "Run products in bfloat16.",
    "device": "Where target and drafter run; auto is cuda where PyTorch finds it.",
}
_CHOICES = {
    "device": DEVICES,
    "optimizer": OPTIMIZERS,
    "schedule": SCHEDULES,
    "seed_mode": ("shared", "per_layer", "once"),
    "markov_type": MARKOV_TYPES,
}


def _layers(_context: click.Context, _option: click.Parameter, value: object) -> tuple[int, ...]:
    if isinstance(value, tuple):
        return value
    try:
        return tuple(int(part) for part in str(value).split(",") if part.strip())
    except ValueError:
        raise click.BadParameter(f"{value!r} is not a list of layers like 8,22,29") from None


def _pattern(_context: click.Context, _option: click.Parameter, value: object) -> tuple[str, ...]:
    parts = value if isinstance(value, tuple) else tuple(str(value).replace(",", " ").split())
    strange = [part for part in parts if part not in ("mamba", "attention", "mlp")]
    if strange or not parts or parts[-1] != "mlp":
        raise click.BadParameter(f"{value!r} is not a list of mamba, attention and mlp that ends with mlp")
    return parts


def _option(name: str, kind: str, default: object, text: str) -> Callable[[_Command], _Command]:
    flag = name.replace("_", "-")
    if name in _CHOICES:
        return click.option(
            f"--{flag}", type=click.Choice(_CHOICES[name]), default=default, show_default=True, help=text
        )
    if kind == "bool":
        return click.option(f"--{flag}/--no-{flag}", default=default, show_default=True, help=text)
    if name == "block_pattern":
        return click.option(f"--{flag}", type=click.UNPROCESSED, callback=_pattern, default=default, help=text)
    if kind.startswith("tuple"):
        return click.option(f"--{flag}", type=click.UNPROCESSED, callback=_layers, default=default, help=text)
    number = float if kind.startswith("float") else int
    required = default is None and "None" not in kind
    return click.option(f"--{flag}", type=number, default=default, required=required, show_default=True, help=text)


def _options_of(config: type, texts: dict[str, str], *, suffix: str = "") -> Callable[[_Command], _Command]:
    """An option for every field that has a help text; the default stands in the dataclass."""

    def decorate(command: _Command) -> _Command:
        for field in reversed(fields(config)):
            if field.name in texts:
                default = None if field.default is MISSING else field.default
                command = _option(field.name + suffix, str(field.type), default, texts[field.name])(command)
        return command

    return decorate


@click.command(name="train", short_help="Train a drafter for a target.")
@click.option("--target", "target_path", type=click.Path(path_type=Path), required=True, help="Folder or GGUF file.")
@click.option("--drafter-type", default="hspec", show_default=True, help="hspec, dflash, dspark or peagle.")
@click.option(
    "--data",
    type=click.Path(path_type=Path),
    required=True,
    help="JSON lines: id, prompt_ids and the target's own response_ids; optional task, sampling, finish.",
)
@click.option("--output", type=click.Path(path_type=Path), required=True, help="Folder of the drafter.")
@click.option(
    "--work-dir",
    type=click.Path(path_type=Path),
    help="State and log; OUTPUT-work if not given. With the state there, the run goes on.",
)
@click.option(
    "--cache",
    type=click.Path(path_type=Path),
    help="Folder of the target's states, which runs on the same data may share; in WORK_DIR if not given.",
)
@ALLOW_TRAILING
@click.option("--threads", type=click.IntRange(1, MAX_THREADS), help="PyTorch threads.")
@_options_of(ShapeOptions, _SHAPE_HELP)
@_options_of(LossMix, _MIX_HELP, suffix="_weight")
@_options_of(TrainOptions, _TRAIN_HELP)
def train_command(
    target_path: Path,
    drafter_type: str,
    data: Path,
    output: Path,
    work_dir: Path | None,
    cache: Path | None,
    threads: int | None,
    allow_trailing: bool,
    **values: Any,
) -> None:
    """Train a drafter on the target's own responses.

    The target runs once over all text; its states are cached, some 5 to 10 KB a token. Ctrl-C saves; the same
    command goes on from there, to the same result as a run that was never stopped.
    """
    _check_extra()
    import torch

    from hspec_trt.checkpoint.target import load_target
    from hspec_trt.cli.train_display import TrainDisplay
    from hspec_trt.training.run import LOG, TrainJob, train

    if threads:
        torch.set_num_threads(threads)
    shape = ShapeOptions(**{name: values[name] for name in _SHAPE_HELP})
    mix = LossMix(**{name: values[f"{name}_weight"] for name in _MIX_HELP})
    options = TrainOptions(mix=mix, **{name: values[name] for name in _TRAIN_HELP})
    work = work_dir or output.with_name(output.name + "-work")
    checkpoint = load_target(target_path, allow_trailing=allow_trailing)
    job = TrainJob(checkpoint, drafter_type, shape, options, data, output, work, cache)
    with TrainDisplay() as display:
        result = train(job, display)
    if not result.finished:
        raise KeyboardInterrupt
    if importlib.util.find_spec("matplotlib") is not None:
        from hspec_trt.training.plot import plot_log

        plot_log(work / LOG, output / "training.png")
    display.summary(result, output)


def _check_extra() -> None:
    missing = [name for name in _NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        fix = "pip install 'hspec_trt[train]'"
        raise BuildError("B050", f"training needs {', '.join(missing)}", needed="the train extra", fix=fix)

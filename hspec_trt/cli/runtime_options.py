# SPDX-License-Identifier: Apache-2.0
"""The options of every command that loads an engine."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, get_args

import click

from hspec_trt.cli.numbers import BYTES
from hspec_trt.runtime.options import Prepack, RuntimeOptions

_DEFAULTS = RuntimeOptions()
_Result = TypeVar("_Result")
_OPTIONS = (
    click.option("--threads", type=int, help="CPU threads [default: all cores]."),
    click.option(
        "--prepack",
        type=click.Choice(get_args(Prepack)),
        default=_DEFAULTS.prepack,
        show_default=True,
        help="Repack weights: faster steps of several tokens, in memory of this process instead of the mapped file.",
    ),
    click.option(
        "--kv-cache-memory", type=BYTES, help="Memory for KV pages, such as 4GiB [default: a quarter of what is free]."
    ),
    click.option(
        "--trace", type=click.Path(path_type=Path), help="Write a trace of the steps for Chrome's viewer to this file."
    ),
)


def runtime_options(command: Callable[..., _Result]) -> Callable[..., _Result]:
    """Give a command the options above; it gets them as one `RuntimeOptions` named ``runtime``."""

    @functools.wraps(command)
    def collected(
        *, threads: int | None, prepack: Prepack, kv_cache_memory: int | None, trace: Path | None, **others: Any
    ) -> _Result:
        runtime = RuntimeOptions(num_threads=threads, prepack=prepack, kv_cache_memory=kv_cache_memory, trace=trace)
        return command(runtime=runtime, **others)

    decorated: Callable[..., _Result] = collected
    for option in reversed(_OPTIONS):
        decorated = option(decorated)
    return decorated

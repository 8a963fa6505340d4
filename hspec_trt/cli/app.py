# SPDX-License-Identifier: Apache-2.0
"""The command group: loads a command's module only when it is called, and turns errors into messages."""

from __future__ import annotations

import importlib
import io
import json
import os
import signal
import sys
from types import FrameType

import click

from hspec_trt import __version__
from hspec_trt.errors import HspecError

COMMANDS = {
    "build": "Build an engine folder from a target and a drafter.",
    "run": "Generate text and print tokens/s and accepted length.",
    "serve": "Serve an engine over HTTP with OpenAI's interface.",
    "verify": "Check losslessness: drafts on = drafts off.",
    "inspect": "Show what an engine folder holds.",
    "plan": "Memory and speed on paper, before any build.",
    "doctor": "Show what this machine can build and run.",
    "train": "Train a drafter for a target.",
    "bench": "Compare drafters on real prompts.",
    "export-triton": "Write a Triton Inference Server model repository.",
}
"""Command to its one-line help. ``hspec_trt/cli/<command>.py`` holds a click command named ``<command>_command``, with
underscores for dashes."""

EXIT_FAULT = 1
EXIT_BAD_INPUT = 2
EXIT_INTERRUPTED = 130


class _LazyGroup(click.Group):
    """Lists the commands without importing them: ``--help`` stays fast and needs no extras."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        name = cmd_name.replace("-", "_")
        module = importlib.import_module(f"hspec_trt.cli.{name}")
        command: click.Command = vars(module)[f"{name}_command"]
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.group(cls=_LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(__version__, prog_name="hspec-trt")
@click.option("--debug", is_flag=True, help="Show tracebacks.")
def _cli(debug: bool) -> None:
    """A target LLM and a block-parallel drafter in one compiled engine."""


class _Interrupts:
    """Turns polite signals into `KeyboardInterrupt` and remembers that it did.

    A kill or a lost terminal cleans up like Ctrl-C: nothing half-written stays behind. Native modules that are
    interrupted while they load raise errors of their own, so what came first must be known.
    """

    SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

    def __init__(self) -> None:
        self.came = False

    def install(self) -> None:
        """Take the signals, except those that the caller has switched off (``nohup``)."""
        for number in self.SIGNALS:
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, self._handle)

    def _handle(self, _signum: int, _frame: FrameType | None) -> None:
        self.came = True
        raise KeyboardInterrupt


def main(arguments: list[str] | None = None) -> None:
    """Entry point of the console script; always ends by `SystemExit`."""
    arguments = sys.argv[1:] if arguments is None else arguments
    interrupts = _Interrupts()
    interrupts.install()
    _prepare_streams()
    try:
        result = _cli.main(args=arguments, prog_name="hspec-trt", standalone_mode=False)
        sys.stdout.flush()
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except (KeyboardInterrupt, click.Abort):
        _say("interrupted")
        sys.exit(EXIT_INTERRUPTED)
    except BrokenPipeError:
        _forget(1, 2)
        sys.exit(EXIT_FAULT)
    except Exception as error:
        if interrupts.came:
            _say("interrupted")
            sys.exit(EXIT_INTERRUPTED)
        if "--debug" in arguments:
            raise
        sys.exit(_explain(error, as_json="--json" in arguments))
    sys.exit(result if isinstance(result, int) else 0)


def _prepare_streams() -> None:
    """Streams that the caller closed become empty ones; characters that a terminal lacks become question marks."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, mode))  # noqa: PTH123, SIM115 - lives as long as the process
        elif mode == "w" and isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


def _say(text: str, *, err: bool = True) -> bool:
    """Print last words; False where they cannot be written."""
    try:
        click.echo(text, err=err)
        (sys.stderr if err else sys.stdout).flush()
    except OSError:
        _forget(2 if err else 1)
        return False
    return True


def _forget(*numbers: int) -> None:
    """Nobody listens there: let the interpreter flush what is left into nothing instead of failing once more."""
    nothing = os.open(os.devnull, os.O_WRONLY)
    for number in numbers:
        os.dup2(nothing, number)


def _explain(error: Exception, *, as_json: bool) -> int:
    """Say what went wrong, without a traceback; returns the exit code."""
    if isinstance(error, HspecError):
        _report(error, as_json=as_json)
        return EXIT_BAD_INPUT
    words = _in_words(error)
    text = words or f"a fault of ours: {type(error).__name__}: {error}. Please report it; hspec-trt --debug shows where"
    if as_json:
        fault = {"code": "", "found": text, "needed": "", "where": "", "fix": ""}
        as_json = _say(json.dumps({"errors": [fault]}, indent=2), err=False)
    if not as_json:
        _say(f"error: {text}")
    return EXIT_BAD_INPUT if words else EXIT_FAULT


def _in_words(error: Exception) -> str:
    """Faults that are no bugs, though no part of ours has put them in words; empty for bugs."""
    if isinstance(error, ModuleNotFoundError) and error.name and not error.name.startswith("hspec_trt"):
        return f"this command needs the package {error.name}, which is not installed. {_extra(error.name)}"
    if isinstance(error, MemoryError):
        return f"not enough memory. {error}".rstrip()
    if isinstance(error, OSError):
        return f"{error.strerror or error}" + (f": {error.filename}" if error.filename else "")
    return ""


_EXTRAS = {
    "fastapi": "serve",
    "onnxruntime": "cpu",
    "prometheus_client": "serve",
    "torch": "train",
    "transformers": "train",
    "tensorrt_rtx": "rtx",
    "tensorrt": "tensorrt",
    "uvicorn": "serve",
}


def _extra(package: str) -> str:
    extra = _EXTRAS.get(package.partition(".")[0])
    return f"pip install 'hspec_trt[{extra}]'" if extra else f"pip install {package}"


def _report(error: HspecError, *, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps({"errors": [fault.to_dict() for fault in error.faults]}, indent=2))
    else:
        click.echo(str(error), err=True)

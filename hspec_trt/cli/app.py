# SPDX-License-Identifier: Apache-2.0
"""The command group: loads a command's module only when it is called, and turns errors into messages."""

from __future__ import annotations

import importlib
import json
import signal
import sys
from types import FrameType

import click

from hspec_trt import __version__
from hspec_trt.errors import HspecError

COMMANDS = {
    "build": "Build an engine folder from a target and a drafter.",
    "run": "Generate text and print tokens/s and accepted length.",
    "verify": "Check losslessness: drafts on = drafts off.",
    "inspect": "Show what an engine folder holds.",
    "doctor": "Show what this machine can build and run.",
    "train": "Train a drafter for a target.",
    "export-triton": "Write a Triton Inference Server model repository.",
}
"""Command to its one-line help. ``hspec_trt/cli/<command>.py`` holds a click command named ``<command>_command``, with
underscores for dashes."""

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


def _interrupt(_signum: int, _frame: FrameType | None) -> None:
    # A polite kill cleans up like Ctrl-C: nothing half-written stays behind.
    raise KeyboardInterrupt


def main(arguments: list[str] | None = None) -> None:
    """Entry point of the console script; always ends by `SystemExit`."""
    arguments = sys.argv[1:] if arguments is None else arguments
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        result = _cli.main(args=arguments, prog_name="hspec-trt", standalone_mode=False)
    except HspecError as error:
        if "--debug" in arguments:
            raise
        _report(error, as_json="--json" in arguments)
        sys.exit(EXIT_BAD_INPUT)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except (KeyboardInterrupt, click.Abort):
        click.echo("interrupted", err=True)
        sys.exit(EXIT_INTERRUPTED)
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(1)
    except ModuleNotFoundError as error:
        if "--debug" in arguments or error.name is None or error.name.startswith("hspec_trt"):
            raise
        click.echo(f"error: this command needs the package {error.name}, which is not installed. {_extra(error.name)}")
        sys.exit(EXIT_BAD_INPUT)
    sys.exit(result if isinstance(result, int) else 0)


_EXTRAS = {
    "onnxruntime": "cpu",
    "torch": "train",
    "transformers": "train",
    "tensorrt_rtx": "rtx",
    "tensorrt": "tensorrt",
}


def _extra(package: str) -> str:
    extra = _EXTRAS.get(package.partition(".")[0])
    return f"pip install 'hspec_trt[{extra}]'" if extra else f"pip install {package}"


def _report(error: HspecError, *, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps({"errors": [fault.to_dict() for fault in error.faults]}, indent=2))
    else:
        click.echo(str(error), err=True)

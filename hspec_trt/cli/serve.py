# SPDX-License-Identifier: Apache-2.0
"""``hspec-trt serve``."""

from __future__ import annotations

import ipaddress
import logging
from dataclasses import asdict, replace
from pathlib import Path

import click

from hspec_trt.cli.numbers import BYTES
from hspec_trt.cli.runtime_options import runtime_options
from hspec_trt.errors import LoadError
from hspec_trt.runtime.llm import LLM
from hspec_trt.runtime.options import RuntimeOptions, SchedulerOptions
from hspec_trt.serving.openai.logs import LEVELS, set_up_logs
from hspec_trt.serving.openai.options import LOG_FORMATS, TOOL_FORMATS, LogFormat, ServeOptions, ToolFormatName
from hspec_trt.serving.openai.server import open_socket, serve
from hspec_trt.serving.openai.service import Service

_LOG = logging.getLogger("hspec_trt.server")
_SERVE, _RUNTIME = ServeOptions(), RuntimeOptions()
_PATH = click.Path(path_type=Path)


@click.command(name="serve", short_help="Serve an engine over HTTP with OpenAI's interface.")
@click.argument("engine_dir", type=_PATH)
@click.option("--host", default=_SERVE.host, show_default=True, help="Address to listen on.")
@click.option("--port", type=int, default=_SERVE.port, show_default=True, help="0 takes a free one.")
@click.option(
    "--served-model-name", "model_names", multiple=True,
    help="Name of the model in requests; may be given several times [default: the engine folder's name].",
)  # fmt: skip
@click.option(
    "--api-key", "api_keys", multiple=True, envvar="HSPEC_TRT_API_KEY",
    help="Key that requests must carry; may be given several times.",
)  # fmt: skip
@click.option("--api-key-file", type=_PATH, help="File with a key in every line.")
@click.option(
    "--max-answers", type=int, default=_SERVE.max_answers, show_default=True,
    help="Answers open at once, waiting ones included; more are refused.",
)  # fmt: skip
@click.option(
    "--max-body-size", type=BYTES, default=_SERVE.max_body_bytes, show_default=True,
    help="Longest request body, such as 8MiB.",
)  # fmt: skip
@click.option(
    "--read-timeout", type=float, default=_SERVE.read_seconds, show_default=True,
    help="Seconds in which a request must arrive.",
)  # fmt: skip
@click.option(
    "--write-timeout", type=float, default=_SERVE.write_seconds, show_default=True,
    help="Seconds after which a client that reads nothing is given up.",
)  # fmt: skip
@click.option(
    "--drain-timeout", type=float, default=_SERVE.drain_seconds, show_default=True,
    help="Seconds that open requests have after SIGTERM.",
)  # fmt: skip
@click.option(
    "--tool-parser", type=click.Choice(TOOL_FORMATS), default=_SERVE.tool_format, show_default=True,
    help="How the model writes tool calls; auto looks at its chat template.",
)  # fmt: skip
@click.option("--chat-template", type=_PATH, help="Jinja file in place of the model's own template.")
@click.option(
    "--kv-cache-fraction", type=float, default=_RUNTIME.kv_cache_fraction, show_default=True,
    help="Share of free memory for KV pages, where --kv-cache-memory is not given.",
)  # fmt: skip
@click.option("--max-batch-size", type=int, help="Rows of a step at most [default: the engine's].")
@click.option("--max-num-tokens", type=int, help="Tokens of a step at most [default: the engine's].")
@click.option("--no-prefix-cache", is_flag=True, help="Run every prompt from its start.")
@click.option("--metrics-prefix", default=_SERVE.metrics_prefix, show_default=True, help="Such as vllm: for its names.")
@click.option("--log-format", type=click.Choice(LOG_FORMATS), default=LOG_FORMATS[0], show_default=True)
@click.option("--log-level", type=click.Choice(LEVELS), default="info", show_default=True)
@runtime_options
def serve_command(
    engine_dir: Path,
    host: str,
    port: int,
    model_names: tuple[str, ...],
    api_keys: tuple[str, ...],
    api_key_file: Path | None,
    max_answers: int,
    max_body_size: int,
    read_timeout: float,
    write_timeout: float,
    drain_timeout: float,
    tool_parser: ToolFormatName,
    chat_template: Path | None,
    kv_cache_fraction: float,
    max_batch_size: int | None,
    max_num_tokens: int | None,
    no_prefix_cache: bool,
    metrics_prefix: str,
    log_format: LogFormat,
    log_level: str,
    runtime: RuntimeOptions,
) -> None:
    """Serve ENGINE_DIR: completions, chat completions, models, health and metrics, until SIGTERM."""
    options = ServeOptions(
        host=host,
        port=port,
        model_names=model_names,
        api_keys=(*api_keys, *_read_keys(api_key_file)),
        max_answers=max_answers,
        max_body_bytes=max_body_size,
        read_seconds=read_timeout,
        write_seconds=write_timeout,
        drain_seconds=drain_timeout,
        tool_format=tool_parser,
        chat_template=chat_template,
        metrics_prefix=metrics_prefix,
    )
    options.check()
    set_up_logs(log_format, log_level)
    scheduler = SchedulerOptions(max_batch_size, max_num_tokens, prefix_cache=not no_prefix_cache)
    runtime = replace(runtime, kv_cache_fraction=kv_cache_fraction, scheduler=scheduler)
    with open_socket(options) as listener, LLM(engine_dir, runtime) as llm:
        service = Service(llm, options)
        _tell("memory", asdict(llm.memory))
        address, real_port = listener.getsockname()[:2]
        shown = f"[{address}]" if ":" in address else address
        if not (options.api_keys or ipaddress.ip_address(address).is_loopback):
            _LOG.warning("others can reach this address, and no --api-key is set")
        serve(
            service,
            listener,
            lambda: _tell("serving", {"model": service.model_names[0], "url": f"http://{shown}:{real_port}"}),
        )


def _read_keys(path: Path | None) -> list[str]:
    if path is None:
        return []
    try:
        keys = path.read_text().split()
    except (OSError, UnicodeDecodeError) as error:
        raise LoadError("L040", f"the API keys cannot be read: {error}", where=str(path)) from error
    if not keys:
        raise LoadError("L040", "the file of API keys is empty", needed="a key in every line", where=str(path))
    return keys


def _tell(event: str, fields: dict[str, object]) -> None:
    _LOG.info(event, extra={"fields": fields})

# SPDX-License-Identifier: Apache-2.0
"""Options of the server. The only place of their defaults."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from hspec_trt.errors import Faults, LoadError

ToolFormatName = Literal["auto", "hermes", "llama3_json", "none"]
TOOL_FORMATS: tuple[ToolFormatName, ...] = ("auto", "hermes", "llama3_json", "none")
LogFormat = Literal["text", "json"]
LOG_FORMATS: tuple[LogFormat, ...] = ("text", "json")
_PREFIX: Final = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")


@dataclass(frozen=True)
class ServeOptions:
    """How an engine is served.

    Attributes:
        host, port: where to listen; port 0 takes a free one.
        model_names: what requests may call the model; the first is told. Empty takes the engine folder's name.
        api_keys: any of them opens everything but ``/health``; empty asks for none.
        max_answers: answers that may be open at once, waiting ones included; a request has ``n`` for each prompt.
        max_body_bytes: the longest request body.
        read_seconds: a request must have arrived after this time.
        write_seconds: a client that reads nothing for this time is given up.
        drain_seconds: after SIGTERM, what is open may go on for this time.
        tool_format: how the model writes tool calls; "auto" looks at its chat template.
        chat_template: a Jinja file in place of the model's own template.
        metrics_prefix: before the names of all metrics.
    """

    host: str = "127.0.0.1"
    port: int = 8000
    model_names: tuple[str, ...] = ()
    api_keys: tuple[str, ...] = ()
    max_answers: int = 256
    max_body_bytes: int = 8 << 20
    read_seconds: float = 30.0
    write_seconds: float = 60.0
    drain_seconds: float = 30.0
    tool_format: ToolFormatName = "auto"
    chat_template: Path | None = None
    metrics_prefix: str = "hspec_"

    def check(self) -> None:
        """Refuse what no server can run with.

        Raises:
            LoadError: L040 for each, together.
        """
        faults = Faults()
        for ok, name, found, needed in (
            (0 <= self.port < 65_536, "port", str(self.port), "0 (any free one) to 65535"),
            (self.max_answers >= 1, "max_answers", str(self.max_answers), "at least 1"),
            (self.max_body_bytes >= 1024, "max_body_bytes", str(self.max_body_bytes), "at least 1024"),
            (self.read_seconds > 0, "read_seconds", str(self.read_seconds), "above 0"),
            (self.write_seconds > 0, "write_seconds", str(self.write_seconds), "above 0"),
            (self.drain_seconds >= 0, "drain_seconds", str(self.drain_seconds), "at least 0"),
            (
                all(map(_is_key, self.api_keys)),
                "api_keys",
                "an empty one or one with spaces",
                "visible ASCII characters",
            ),
            (all(self.model_names), "model_names", "an empty one", "names"),
            (_PREFIX.fullmatch(self.metrics_prefix), "metrics_prefix", self.metrics_prefix, "letters, digits, _ and :"),
        ):
            if not ok:
                faults.add(LoadError("L040", f"{name} is {found}", needed=needed))
        faults.raise_any()


def _is_key(key: str) -> bool:
    return bool(key) and key.isascii() and key.isprintable() and " " not in key

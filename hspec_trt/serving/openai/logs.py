# SPDX-License-Identifier: Apache-2.0
"""Logs of the server, one line an event, as JSON objects or as text. Prompts and answers are never logged."""

from __future__ import annotations

import json
import logging
from datetime import datetime, timezone
from typing import Final

from hspec_trt.serving.openai.options import LogFormat

LEVELS: Final = ("debug", "info", "warning", "error")


class _JsonLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        """One JSON object: time, level, logger, message, the event's fields, and a traceback where there is one."""
        line: dict[str, object] = {
            "time": _time(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **_fields(record),
        }
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=True, default=str)


class _TextLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        """Time, level, message, and the event's fields as ``name=value``."""
        fields = "".join(f" {name}={value}" for name, value in _fields(record).items() if value not in (None, []))
        line = f"{_time(record)} {record.levelname.lower()} {record.getMessage()}{fields}"
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


def set_up_logs(log_format: LogFormat, level: str) -> None:
    """Send the logs of this process to standard error."""
    handler = logging.StreamHandler()
    handler.setFormatter(_JsonLines() if log_format == "json" else _TextLines())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    logging.getLogger("uvicorn").setLevel(max(logging.WARNING, root.level))  # it repeats what our lines say


def _time(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, timezone.utc).isoformat(timespec="milliseconds")


def _fields(record: logging.LogRecord) -> dict[str, object]:
    fields = record.__dict__.get("fields")
    return fields if isinstance(fields, dict) else {}

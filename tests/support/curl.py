# SPDX-License-Identifier: Apache-2.0
"""Requests by ``curl`` itself, as people type them."""

from __future__ import annotations

import json
import shutil
import subprocess
from typing import Any


def curl(url: str, body: object = None, *options: str) -> subprocess.CompletedProcess[str]:
    """One request; `body` is sent as JSON, or as it is where it is a string. Errors of HTTP end with exit code 22."""
    program = shutil.which("curl")
    assert program is not None, "this test asks with curl, which is not installed (apt install curl)"
    command = [program, "--silent", "--show-error", "--fail-with-body", "--no-buffer", "--max-time", "300", *options]
    if body is not None:
        data = body if isinstance(body, str) else json.dumps(body)
        command += ["--header", "Content-Type: application/json", "--data-binary", data]
    return subprocess.run([*command, url], capture_output=True, text=True, check=False, timeout=330)


def reply_of(result: subprocess.CompletedProcess[str]) -> Any:
    """The object of a reply that came."""
    assert result.returncode == 0, result.stdout + result.stderr
    return json.loads(result.stdout)


def events_of(result: subprocess.CompletedProcess[str]) -> list[Any]:
    """The objects of a stream, which must end with [DONE]."""
    assert result.returncode == 0, result.stdout + result.stderr
    lines = [line for line in result.stdout.split("\n") if line]
    assert all(line.startswith("data: ") for line in lines)
    assert lines.pop() == "data: [DONE]"
    return [json.loads(line[6:]) for line in lines]

# SPDX-License-Identifier: Apache-2.0
"""Ends a model's process when its server has died.

Left alone it would stay, and hold engine and GPU for ever: some calls to the server keep Python's global lock while
they wait for its answer, so nothing in the process could notice. Hence a process of its own, a shell that looks every
second.
"""

from __future__ import annotations

import os
import subprocess
from typing import Final

_SCRIPT: Final = "while kill -0 $0 && kill -0 $1; do sleep 1; done; kill -0 $0 || kill -9 $1"


class ServerGuard:
    """Watches the server from now until `close`."""

    def __init__(self) -> None:
        self._shell = subprocess.Popen(
            ["/bin/sh", "-c", _SCRIPT, str(os.getppid()), str(os.getpid())],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def close(self) -> None:
        """Stop watching."""
        self._shell.kill()
        self._shell.wait()

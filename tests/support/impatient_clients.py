# SPDX-License-Identifier: Apache-2.0
"""Eight clients at once that give up at any time: ``python -m tests.support.impatient_clients PORT MODEL``.

A program of its own, so that the threads of grpc's client can be counted. Exit code 0: every client sent and cancelled
its requests, and no thread of theirs is left.
"""

from __future__ import annotations

import faulthandler
import random
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.support.triton_server import TritonServer, arrays_of

CLIENTS, STREAMS = 8, 12


def give_up(server: TritonServer, model: str, number: int) -> None:
    own = random.Random(number)
    for _ in range(STREAMS):
        with server.stream() as stream:
            prompt, tokens = "a" * own.randint(1, 60), own.choice([1, 2, 5, 40])
            stream.send(model, arrays_of(text_input=prompt, stream=own.random() < 0.8, max_tokens=tokens))
            time.sleep(own.random() * 0.03)


def main() -> None:
    faulthandler.enable()
    port, model = sys.argv[1:]
    server = TritonServer(Path(), {"pid": 0, "http": 0, "metrics": 0, "grpc": port}, Path())
    with ThreadPoolExecutor(CLIENTS) as pool:
        list(pool.map(lambda number: give_up(server, model, number), range(CLIENTS)))
    end = time.monotonic() + 30
    while threading.active_count() > 1:
        if time.monotonic() > end:
            sys.exit(f"threads are left: {threading.enumerate()}")
        time.sleep(0.02)


if __name__ == "__main__":
    main()

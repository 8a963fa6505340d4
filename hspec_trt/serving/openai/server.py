# SPDX-License-Identifier: Apache-2.0
"""Runs the application until it is told to stop, and lets what is open finish first."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import socket
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Final

import uvicorn

from hspec_trt.errors import LoadError
from hspec_trt.serving.openai.app import create_app
from hspec_trt.serving.openai.options import ServeOptions
from hspec_trt.serving.openai.service import Service

_LOG: Final = logging.getLogger("hspec_trt.server")
_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)
_LAST_WORDS_SECONDS: Final = 5
"""Time for clients to take the end of their answers once the drain's time is over."""
_KEEP_ALIVE_SECONDS: Final = 30
_BACKLOG: Final = 1024
_SEND_BYTES: Final = 1 << 17
"""What the system holds for a client that does not read; left alone it grows to megabytes before that is noticed."""


def open_socket(options: ServeOptions) -> socket.socket:
    """Take the address before anything expensive is loaded; nobody can connect yet.

    Raises:
        LoadError: L043, the address cannot be had.
    """
    try:
        kind, _, _, _, address = socket.getaddrinfo(options.host, options.port, type=socket.SOCK_STREAM)[0]
        made = socket.socket(kind, socket.SOCK_STREAM)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BYTES)
        made.bind(address)
    except (OSError, UnicodeError) as error:
        raise _cannot_listen(options, error) from error
    return made


def _cannot_listen(options: ServeOptions, error: OSError | UnicodeError) -> LoadError:
    where = f"--host {options.host} --port {options.port}"
    return LoadError("L043", f"cannot listen: {error}", where=where, fix="Choose another address")


def serve(service: Service, listener: socket.socket, on_ready: Callable[[], None]) -> None:
    """Serve until SIGTERM or SIGINT, then finish what is open; a second signal ends it at once.

    Args:
        on_ready: called once requests are taken.

    Raises:
        LoadError: L043, another process listens at the address by now.
    """
    config = uvicorn.Config(
        create_app(service),
        log_config=None,
        access_log=False,
        server_header=False,
        lifespan="off",
        timeout_keep_alive=_KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=int(service.options.drain_seconds) + _LAST_WORDS_SECONDS,
        backlog=_BACKLOG,
    )
    _Server(config, service, on_ready).run([listener])


class _Server(uvicorn.Server):
    """uvicorn, with our way of stopping."""

    def __init__(self, config: uvicorn.Config, service: Service, on_ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._service, self._on_ready = service, on_ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        try:
            await super().startup(sockets)
        except OSError as error:  # another process took the address too, and was ready first
            raise _cannot_listen(self._service.options, error) from error
        self._on_ready()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Called in the loop once `should_exit` is seen: connections close as their requests end."""
        desk, seconds = self._service.desk, self._service.options.drain_seconds
        _LOG.info("draining", extra={"fields": {"seconds": seconds}})
        desk.drain()
        timer = asyncio.get_running_loop().call_later(seconds, desk.end_all)
        await super().shutdown(sockets)
        timer.cancel()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Take the signals while we serve; ending by one is a good end, so it is not raised again."""
        before = {number: signal.signal(number, self.handle_exit) for number in _SIGNALS}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """The first signal drains, the second ends."""
        if self.should_exit:
            self.force_exit = True
        self.should_exit = True

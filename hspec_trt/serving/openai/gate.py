# SPDX-License-Identifier: Apache-2.0
"""What every HTTP request passes before the application sees it: key, size and time of its body, an id, a count."""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import logging
import re
import secrets
from collections.abc import Mapping
from hashlib import sha256
from typing import Final

from starlette.datastructures import Headers, MutableHeaders
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from hspec_trt.errors import HspecError, RequestError
from hspec_trt.serving.openai.faults import OUR_FAULT, error_reply
from hspec_trt.serving.openai.metrics import Metrics
from hspec_trt.serving.openai.options import ServeOptions

_LOG: Final = logging.getLogger("hspec_trt.http")
_OPEN_PATHS: Final = frozenset({"/health"})
_REQUEST_ID: Final = re.compile(r"[A-Za-z0-9_.:-]{1,128}")
DISCARDED_BYTES: Final = 16 << 20
"""Bytes of a refused body that are read and thrown away, so that a client still writing them gets the reply."""
_DISCARD_SECONDS: Final = 2.0


class Gate:
    """ASGI middleware around the application."""

    def __init__(self, app: ASGIApp, *, options: ServeOptions, metrics: Metrics) -> None:
        self._app, self._options, self._metrics = app, options, metrics
        self._keys = [sha256(key.encode()).digest() for key in options.api_keys]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let one request through, or refuse it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        request_id = headers.get("x-request-id", "")
        if not _REQUEST_ID.fullmatch(request_id):
            request_id = secrets.token_hex(12)
        scope.setdefault("state", {})["request_id"] = request_id
        begun, incoming = False, _Incoming(receive)

        async def send_on(message: Message) -> None:
            nonlocal begun
            if message["type"] == "http.response.start":
                begun = True
                MutableHeaders(scope=message)["x-request-id"] = request_id
                route = scope.get("route")
                path = route.path if isinstance(route, Route) else "other"
                self._metrics.count_reply(path, message["status"])
            await send(message)

        try:
            self._check_key(scope["path"], headers)
            body = await self._read(headers, incoming) if scope["method"] == "POST" else b""
            await self._app(scope, _replay(body, receive), send_on)
        except HspecError as error:
            if error.code != "R434":
                await incoming.discard(headers)
            reply = error_reply(error)
            reply.headers["connection"] = "close"  # what is left of the body is not read
            await reply(scope, receive, send_on)
        except Exception:
            _LOG.exception("a fault of ours", extra={"fields": {"request_id": request_id, "path": scope["path"]}})
            if not begun:
                await error_reply(OUR_FAULT)(scope, receive, send_on)

    def _check_key(self, path: str, headers: Mapping[str, str]) -> None:
        """Compare hashes in constant time, with every key: how far a wrong key was right cannot be measured."""
        if not self._keys or path in _OPEN_PATHS:
            return
        scheme, _, key = headers.get("authorization", "").partition(" ")
        given = sha256(key.strip().encode(errors="surrogateescape")).digest()
        matches = [hmac.compare_digest(given, known) for known in self._keys]
        if scheme.lower() != "bearer" or not any(matches):
            found = "the API key is wrong" if key else "there is no API key"
            raise RequestError("R435", found, needed="the header 'Authorization: Bearer KEY'")

    async def _read(self, headers: Mapping[str, str], incoming: _Incoming) -> bytes:
        kind = headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != "application/json" and not kind.endswith("+json"):
            found = f"the content type is {kind[:80] or 'not given'}"
            raise RequestError("R432", found, needed="application/json", fix="Send -H 'Content-Type: application/json'")
        most, told = self._options.max_body_bytes, headers.get("content-length", "")
        if told.isdigit() and int(told) > most:
            raise _too_large(told, most)
        try:
            return await asyncio.wait_for(incoming.read(most), self._options.read_seconds)
        except asyncio.TimeoutError:
            found = f"the body did not arrive within {self._options.read_seconds:g} s"
            raise RequestError("R434", found) from None


class _Incoming:
    """The body of one request on its way."""

    def __init__(self, receive: Receive) -> None:
        self._receive, self._ended, self._num_bytes = receive, False, 0

    async def read(self, most: int) -> bytes:
        """All of it, at most so many bytes."""
        body = bytearray()
        while not self._ended:
            body += await self._next()
            if len(body) > most:
                raise _too_large(f"more than {most}", most)
        return bytes(body)

    async def discard(self, headers: Mapping[str, str]) -> None:
        """Read on past a body that is refused, where it is short enough and the client is not waiting to be asked."""
        told = headers.get("content-length", "")
        if "expect" in headers or not (told.isdigit() or "transfer-encoding" in headers):
            return
        if told.isdigit() and int(told) > DISCARDED_BYTES:
            return
        with contextlib.suppress(asyncio.TimeoutError, RequestError):
            await asyncio.wait_for(self._skip(), _DISCARD_SECONDS)

    async def _skip(self) -> None:
        while not self._ended and self._num_bytes <= DISCARDED_BYTES:
            await self._next()

    async def _next(self) -> bytes:
        message = await self._receive()
        self._ended = message["type"] == "http.disconnect" or not message.get("more_body", False)
        if message["type"] == "http.disconnect":
            raise RequestError("R434", "the client went away before its body had arrived")
        part: bytes = message.get("body", b"")
        self._num_bytes += len(part)
        return part


def _replay(body: bytes, receive: Receive) -> Receive:
    """The body in one message, then what the client does next."""
    given = False

    async def receive_on() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return receive_on


def _too_large(size: str, most: int) -> RequestError:
    return RequestError("R433", f"the body has {size} bytes", needed=f"at most {most}", fix="Raise --max-body-size")

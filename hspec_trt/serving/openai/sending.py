# SPDX-License-Identifier: Apache-2.0
"""Replies that end their request when the client goes away or stops reading: one object, or a stream of events."""

from __future__ import annotations

import asyncio
import json
from abc import ABC, abstractmethod
from collections.abc import Coroutine
from typing import Any, Final

from pydantic import BaseModel
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from hspec_trt.errors import HspecError
from hspec_trt.serving.openai.desk import Desk, Ticket
from hspec_trt.serving.openai.faults import error_body, error_reply
from hspec_trt.serving.openai.pieces import pieces_of
from hspec_trt.serving.openai.replies import usage_of
from hspec_trt.serving.openai.writers import Writer

_EVENTS: Final = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
]


class Reply(Response, ABC):
    """What both kinds share: the request is released exactly once, whatever happens."""

    def __init__(self, ticket: Ticket, desk: Desk, writer: Writer, write_seconds: float) -> None:
        super().__init__()
        self._ticket, self._desk, self._writer, self._write_seconds = ticket, desk, writer, write_seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, and release the request."""
        outcome = "failed"
        try:
            outcome = await _until_gone(receive, self._answer(scope, receive, send))
        finally:
            self._desk.release(self._ticket, outcome)

    @abstractmethod
    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> str:
        """Send all of it; returns the outcome for the log."""

    async def _send(self, send: Send, message: Message) -> None:
        """Send; a client that does not read ends the task that runs this."""
        task = asyncio.current_task()
        timer = asyncio.get_running_loop().call_later(self._write_seconds, task.cancel) if task else None
        try:
            await send(message)
        finally:
            if timer:
                timer.cancel()


class WholeReply(Reply):
    """One JSON object, once all answers have ended."""

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> str:
        for generation in self._ticket.generations:
            await generation.aresult()
        fault = self._ticket.fault()
        if fault is not None:
            await error_reply(fault)(scope, receive, send)
            return "failed"
        body = _json(self._writer.whole(self._ticket.outputs))
        await self._send(send, _start([(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]))
        await self._send(send, {"type": "http.response.body", "body": body})
        return "done"


class StreamReply(Reply):
    """Server-sent events, ended by ``[DONE]``; a fault on the way is an event of its own.

    Args:
        with_usage: the last object before the end carries the usage.
    """

    def __init__(
        self, ticket: Ticket, desk: Desk, writer: Writer, write_seconds: float, *, with_usage: bool = False
    ) -> None:
        super().__init__(ticket, desk, writer, write_seconds)
        self._with_usage = with_usage

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> str:
        await self._send(send, _start(_EVENTS))
        for opening in self._writer.opening(self._ticket.outputs):
            await self._event(send, _json(opening))
        outcome = "done"
        async for piece in pieces_of(self._ticket.generations):
            if piece.ended is not None and (fault := self._ticket.fault()) is not None:
                await self._event(send, _fault_json(fault))
                outcome = "failed"
                break
            chunk = self._writer.chunk(piece)
            if chunk is not None:
                await self._event(send, _json(chunk))
        if outcome == "done" and self._with_usage:
            await self._event(send, _json(self._writer.closing(usage_of(self._ticket.outputs))))
        await self._event(send, b"[DONE]")
        await self._send(send, {"type": "http.response.body", "body": b""})
        return outcome

    async def _event(self, send: Send, data: bytes) -> None:
        body = b"data: " + data + b"\n\n"
        await self._send(send, {"type": "http.response.body", "body": body, "more_body": True})


async def _until_gone(receive: Receive, work: Coroutine[Any, Any, str]) -> str:
    """Do the work unless the client goes away before it is done."""
    task, gone = asyncio.create_task(work), asyncio.create_task(_wait_until_gone(receive))
    try:
        await asyncio.wait((task, gone), return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            return "disconnected"
        return "stalled" if task.cancelled() else task.result()
    except OSError:
        return "disconnected"
    finally:
        task.cancel()
        gone.cancel()
        await asyncio.gather(task, gone, return_exceptions=True)


async def _wait_until_gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _start(headers: list[tuple[bytes, bytes]]) -> Message:
    return {"type": "http.response.start", "status": 200, "headers": headers}


def _json(model: BaseModel) -> bytes:
    return model.model_dump_json(exclude_unset=True).encode()


def _fault_json(fault: HspecError) -> bytes:
    return json.dumps(error_body(fault)).encode()

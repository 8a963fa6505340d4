# SPDX-License-Identifier: Apache-2.0
"""The updates of one request's answers in the order in which they come, as pieces that nothing changes any more."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Final

from hspec_trt.runtime.generation import Generation
from hspec_trt.runtime.results import CompletionOutput
from hspec_trt.runtime.shaper import TopTokens

_BACKLOG: Final = 64
"""Pieces of a request with several prompts that may wait for a slow reader; the rest waits in the generations."""


@dataclass(frozen=True)
class Piece:
    """What an update added to an answer.

    Attributes:
        choice: the answer's place among all of the request.
        ended: the whole answer, on its last piece.
    """

    choice: int
    text: str
    token_ids: list[int]
    logprobs: list[float]
    top_logprobs: list[TopTokens]
    ended: CompletionOutput | None


async def pieces_of(generations: list[Generation]) -> AsyncIterator[Piece]:
    """The pieces of a request's prompts, as they come."""
    if len(generations) == 1:
        async for piece in _of_one(generations[0], 0):
            yield piece
        return
    queue: asyncio.Queue[Piece | None] = asyncio.Queue(_BACKLOG)

    async def feed(place: int, generation: Generation) -> None:
        async for piece in _of_one(generation, place * len(generation.output.outputs)):
            await queue.put(piece)
        await queue.put(None)

    feeders = [asyncio.create_task(feed(place, one)) for place, one in enumerate(generations)]
    left = len(feeders)
    try:
        while left:
            news = await queue.get()
            if news is None:
                left -= 1
            else:
                yield news
    finally:
        for feeder in feeders:
            feeder.cancel()


async def _of_one(generation: Generation, first_choice: int) -> AsyncIterator[Piece]:
    ended: set[int] = set()
    async for output in generation:
        for answer in output.outputs:
            if answer.index in ended or not (answer.token_ids_diff or answer.finished):
                continue
            if answer.finished:
                ended.add(answer.index)
            yield Piece(
                first_choice + answer.index,
                answer.text_diff,
                answer.token_ids_diff,
                answer.logprobs_diff,
                answer.top_logprobs_diff,
                answer if answer.finished else None,
            )

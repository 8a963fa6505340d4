# SPDX-License-Identifier: Apache-2.0
"""Clients of the load run: mixed chat requests over HTTP, timed as their events come in."""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

PROMPTS = Path(__file__).parents[1] / "prompts.jsonl"
SYSTEM = "You are a helpful assistant. Answer briefly and to the point, in plain words."
NEW_TOKENS = (8, 16, 32, 48)
TEMPERATURES = (0.0, 0.0, 0.7)


@dataclass
class Answer:
    """What one request got; times are seconds since it was sent."""

    text: str = ""
    tokens: int = 0
    steps: int = 0
    emitted: int = 0
    first: float = 0.0
    end: float = 0.0
    gaps: list[float] = field(default_factory=list)


def make_requests(count: int) -> list[dict[str, object]]:
    """The same mix for every run: tasks in turn, lengths and temperatures drawn, half of them with a system message."""
    rows = [json.loads(line)["messages"] for line in PROMPTS.read_text().splitlines()]
    rng, made = np.random.default_rng(0), []
    for number in range(count):
        messages = rows[(number * 7) % len(rows)]
        if number % 2:
            messages = [{"role": "system", "content": SYSTEM}, *messages]
        made.append(
            {
                "messages": messages,
                "max_tokens": int(rng.choice(NEW_TOKENS)),
                "temperature": float(rng.choice(TEMPERATURES)),
                "seed": number,
                "stream": True,
                "stream_options": {"include_usage": True},
            }
        )
    return made


async def ask(port: int, body: dict[str, object]) -> Answer:
    """Send one request and time its events."""
    data = json.dumps(body).encode()
    head = "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Type: application/json\r\n"
    start = time.perf_counter()
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 20)
    writer.write(f"{head}Content-Length: {len(data)}\r\n\r\n".encode() + data)
    answer, last = Answer(), 0.0
    while line := await reader.readline():
        if not line.startswith(b"data: {"):
            continue
        now, event = time.perf_counter() - start, json.loads(line[6:])
        if "error" in event:
            raise RuntimeError(event["error"]["message"])
        if event["usage"]:
            answer.tokens = event["usage"]["completion_tokens"]
            drafts = event["usage"]["drafts"]
            answer.steps, answer.emitted = drafts["steps"], round(drafts["steps"] * drafts["accepted_length"])
        for choice in event["choices"]:
            text = choice["delta"].get("content") or ""
            if text or choice["finish_reason"]:
                if answer.first:
                    answer.gaps.append(now - last)
                answer.first, last = answer.first or now, now
            answer.text += text
    writer.close()
    answer.end = last
    if not answer.tokens:
        raise RuntimeError(f"no answer to {data[:200]!r}")
    return answer


async def run_clients(port: int, bodies: list[dict[str, object]], clients: int) -> tuple[list[Answer], float]:
    """Every client asks its next request once the last is answered; returns answers and seconds for all."""
    answers: list[Answer | None] = [None] * len(bodies)
    line = iter(range(len(bodies)))

    async def client() -> None:
        for number in line:
            answers[number] = await ask(port, bodies[number])

    start = time.perf_counter()
    await asyncio.gather(*(client() for _ in range(clients)))
    return [answer for answer in answers if answer is not None], time.perf_counter() - start


async def read_metrics(port: int, names: tuple[str, ...]) -> dict[str, float]:
    """Sums of some metrics' series."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 20)
    writer.write(b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    text = (await reader.read()).decode()
    writer.close()
    totals = dict.fromkeys(names, 0.0)
    for row in text.splitlines():
        series, _, value = row.rpartition(" ")
        name = series.partition("{")[0]
        if name in totals:
            totals[name] += float(value)
    return totals

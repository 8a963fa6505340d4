# SPDX-License-Identifier: Apache-2.0
"""Several clients at once over gRPC streams: tokens a second, time to the first token, accepted length."""

from __future__ import annotations

import argparse
import json
import queue
import statistics
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import tritonclient.grpc as grpcclient
from tritonclient.utils import np_to_triton_dtype

PROMPTS = (
    "Write a short story about a lighthouse keeper.",
    "List three uses of a paper clip.",
    "Explain why the sky is blue to a child.",
    "Write a Python function that reverses a list.",
)


@dataclass(frozen=True)
class Answer:
    """What one request brought: new tokens, seconds to the first chunk and in all, tokens a step."""

    tokens: int
    first_seconds: float
    seconds: float
    accepted_length: float


def tensor(name: str, value: object, dtype: type) -> grpcclient.InferInput:
    """A tensor of shape [1, 1]."""
    array = np.array([[value]], dtype)
    made = grpcclient.InferInput(name, list(array.shape), np_to_triton_dtype(array.dtype))
    made.set_data_from_numpy(array)
    return made


def ask(
    client: grpcclient.InferenceServerClient, news: queue.Queue, options: argparse.Namespace, number: int
) -> Answer:
    """One request on an open stream."""
    began, first = time.monotonic(), 0.0
    inputs = [
        tensor(
            "messages", json.dumps([{"role": "user", "content": PROMPTS[number % len(PROMPTS)]}]).encode(), np.object_
        ),
        tensor("max_tokens", options.max_tokens, np.int32),
        tensor("temperature", options.temperature, np.float32),
        tensor("seed", number, np.uint64),
        tensor("drafts", options.drafts.encode(), np.object_),
        tensor("stream", True, np.bool_),
        tensor("return_perf_metrics", True, np.bool_),
        tensor("return_num_output_tokens", True, np.bool_),
    ]
    client.async_stream_infer(options.model, inputs, enable_empty_final_response=True)
    while True:
        result, error = news.get()
        if error is not None:
            raise SystemExit(str(error))
        first = first or time.monotonic()
        if result.get_response().parameters["triton_final_response"].bool_param:
            tokens, length = result.as_numpy("num_output_tokens").item(), result.as_numpy("accepted_length").item()
            return Answer(tokens, first - began, time.monotonic() - began, length)


def client_loop(options: argparse.Namespace, numbers: range) -> list[Answer]:
    """One client: its requests one after the other, on one stream."""
    news: queue.Queue = queue.Queue()
    client = grpcclient.InferenceServerClient(options.url)
    client.start_stream(callback=lambda result, error: news.put((result, error)))
    answers = [ask(client, news, options, number) for number in numbers]
    client.close()
    return answers


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--url", default="localhost:8001")
    parser.add_argument("--model", default="hspec")
    parser.add_argument("--concurrency", type=int, default=4)
    parser.add_argument("--requests", type=int, default=16)
    parser.add_argument("--max-tokens", type=int, default=64)
    parser.add_argument("--temperature", type=float, default=0.0)
    parser.add_argument("--drafts", choices=("on", "off", "auto"), default="auto")
    options = parser.parse_args()
    shares = [range(first, options.requests, options.concurrency) for first in range(options.concurrency)]
    began = time.monotonic()
    with ThreadPoolExecutor(options.concurrency) as pool:
        answers = [answer for found in pool.map(lambda share: client_loop(options, share), shares) for answer in found]
    seconds = time.monotonic() - began
    tokens = sum(answer.tokens for answer in answers)
    print(f"{len(answers)} requests, {options.concurrency} at a time, drafts {options.drafts}")
    print(f"tokens/s              {tokens / seconds:8.1f}")
    print(f"first token, median   {statistics.median(answer.first_seconds for answer in answers):8.3f} s")
    print(f"whole answer, median  {statistics.median(answer.seconds for answer in answers):8.3f} s")
    print(f"tokens a step, mean   {statistics.fmean(answer.accepted_length for answer in answers):8.2f}")


if __name__ == "__main__":
    main()

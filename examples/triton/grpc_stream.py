# SPDX-License-Identifier: Apache-2.0
"""Stream one answer over gRPC: text as it comes, then how drafting did. Ctrl-C cancels the request on the server."""

from __future__ import annotations

import argparse
import json
import queue

import numpy as np
import tritonclient.grpc as grpcclient
from tritonclient.utils import np_to_triton_dtype


def tensor(name: str, value: object, dtype: type) -> grpcclient.InferInput:
    """A tensor for one prompt, with its batch dimension: shape [1, 1]."""
    array = np.array([[value]], dtype)
    made = grpcclient.InferInput(name, list(array.shape), np_to_triton_dtype(array.dtype))
    made.set_data_from_numpy(array)
    return made


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("prompt", nargs="?", default="The lighthouse keeper opened the bottle and")
    parser.add_argument("--url", default="localhost:8001")
    parser.add_argument("--model", default="hspec")
    parser.add_argument("--chat", action="store_true", help="ask in the model's chat layout")
    parser.add_argument("--max-tokens", type=int, default=64)
    parser.add_argument("--temperature", type=float, default=0.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--drafts", choices=("on", "off", "auto"), default="auto")
    options = parser.parse_args()
    messages = json.dumps([{"role": "user", "content": options.prompt}])
    prompt = ("messages", messages) if options.chat else ("text_input", options.prompt)
    inputs = [
        tensor(prompt[0], prompt[1].encode(), np.object_),
        tensor("max_tokens", options.max_tokens, np.int32),
        tensor("temperature", options.temperature, np.float32),
        tensor("seed", options.seed, np.uint64),
        tensor("drafts", options.drafts.encode(), np.object_),
        tensor("stream", True, np.bool_),
        tensor("return_perf_metrics", True, np.bool_),
    ]
    answers: queue.Queue[tuple[grpcclient.InferResult, Exception | None]] = queue.Queue()
    client = grpcclient.InferenceServerClient(options.url)
    client.start_stream(callback=lambda result, error: answers.put((result, error)))
    client.async_stream_infer(options.model, inputs, enable_empty_final_response=True)
    try:
        show(answers)
    except KeyboardInterrupt:
        client.stop_stream(cancel_requests=True)
        print("\n[cancelled]")
    client.close()


def show(answers: queue.Queue[tuple[grpcclient.InferResult, Exception | None]]) -> None:
    """Print text until the last response, then its figures."""
    while True:
        result, error = answers.get()
        if error is not None:
            raise SystemExit(str(error))
        text = result.as_numpy("text_output")
        if text is not None:
            print(text[0].decode(), end="", flush=True)
        if result.get_response().parameters["triton_final_response"].bool_param:
            break
    reason, rate = result.as_numpy("finish_reason"), result.as_numpy("acceptance_rate")
    length = result.as_numpy("accepted_length")
    print(f"\n[{reason[0].decode()}; {length.item():.2f} tokens a step, {rate.item():.0%} of the drafts accepted]")


if __name__ == "__main__":
    main()

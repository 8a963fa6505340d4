# SPDX-License-Identifier: Apache-2.0
"""One answer over HTTP, whole (/generate) and streamed (/generate_stream); nothing but the standard library."""

from __future__ import annotations

import argparse
import json
import urllib.error
import urllib.request
from collections.abc import Iterator


def post(url: str, body: dict[str, object]) -> Iterator[str]:
    """Lines of the answer; the server's message where it refuses."""
    request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request) as response:
            for line in response:
                yield line.decode().strip()
    except urllib.error.HTTPError as error:
        raise SystemExit(json.loads(error.read())["error"]) from None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("prompt", nargs="?", default="The lighthouse keeper opened the bottle and")
    parser.add_argument("--url", default="http://localhost:8000")
    parser.add_argument("--model", default="hspec")
    parser.add_argument("--max-tokens", type=int, default=64)
    options = parser.parse_args()
    body = {"text_input": options.prompt, "max_tokens": options.max_tokens, "temperature": 0.0}
    model = f"{options.url}/v2/models/{options.model}"

    whole = json.loads("".join(post(f"{model}/generate", {**body, "return_perf_metrics": True})))
    print(whole["text_output"])
    print(f"[{whole['finish_reason']}; {whole['accepted_length']:.2f} tokens a step]\n")

    for line in post(f"{model}/generate_stream", {**body, "stream": True}):
        if line.startswith("data: "):
            print(json.loads(line.removeprefix("data: "))["text_output"], end="", flush=True)
    print()


if __name__ == "__main__":
    main()

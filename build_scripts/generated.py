# SPDX-License-Identifier: Apache-2.0
"""The command line of scripts that write a generated file: write it, or with ``--check`` say whether it is current."""

from __future__ import annotations

import argparse
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def write_or_check(path: Path, text: str, *, script: str) -> int:
    """Act as the command line asks; returns the exit code, 1 where the file is not current."""
    parser = argparse.ArgumentParser(description=f"Writes {path.relative_to(ROOT)}.")
    parser.add_argument("--check", action="store_true", help="exit 1 when the file is not current")
    if not parser.parse_args().check:
        path.write_text(text, encoding="utf-8")
        return 0
    current = path.is_file() and path.read_text(encoding="utf-8") == text
    print(f"{path.relative_to(ROOT)}: {'current' if current else f'not current, run {script}'}")
    return 0 if current else 1

# SPDX-License-Identifier: Apache-2.0
"""Compiles the GPU kernels ahead of time and writes what the plugin library embeds. Needs no GPU."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from build_scripts.kernel_table import write_header

GENERATED = Path(__file__).resolve().parents[1] / "plugins" / "src" / "generated"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=GENERATED, help="folder of the generated files")
    parser.add_argument("--header-only", action="store_true", help="write kernel_table.h and compile nothing")
    options = parser.parse_args()
    if not options.header_only:
        parser.error("only --header-only is there yet")
    write_header(options.output)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

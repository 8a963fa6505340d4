# SPDX-License-Identifier: Apache-2.0
"""``python -m hspec_trt.cli``: the same as the console script."""

from hspec_trt.cli import main

main()

# SPDX-License-Identifier: Apache-2.0
"""The ``hspec-trt`` command line: one short file per command; our errors become messages and exit code 2."""

from hspec_trt.cli.app import main

__all__ = ["main"]

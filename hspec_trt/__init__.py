# SPDX-License-Identifier: Apache-2.0
"""hspec_trt: a target LLM and a block-parallel drafter in one compiled engine."""

__version__ = "0.1.0"

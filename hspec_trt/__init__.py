# SPDX-License-Identifier: Apache-2.0
"""hspec_trt: a target LLM and a block-parallel drafter in one compiled engine."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hspec_trt.config.sampling import GuidedDecodingParams, SamplingParams
    from hspec_trt.runtime.llm import LLM
    from hspec_trt.runtime.options import RuntimeOptions, SchedulerOptions
    from hspec_trt.runtime.results import CompletionOutput, RequestOutput

__version__ = "0.1.0"
__all__ = [
    "LLM",
    "CompletionOutput",
    "GuidedDecodingParams",
    "RequestOutput",
    "RuntimeOptions",
    "SamplingParams",
    "SchedulerOptions",
    "__version__",
]

_HOMES = {
    "CompletionOutput": "hspec_trt.runtime.results",
    "GuidedDecodingParams": "hspec_trt.config.sampling",
    "LLM": "hspec_trt.runtime.llm",
    "RequestOutput": "hspec_trt.runtime.results",
    "RuntimeOptions": "hspec_trt.runtime.options",
    "SamplingParams": "hspec_trt.config.sampling",
    "SchedulerOptions": "hspec_trt.runtime.options",
}


def __getattr__(name: str) -> object:
    """Import the public names when they are first used: a build, say, needs none of the runtime."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)

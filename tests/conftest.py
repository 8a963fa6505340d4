# SPDX-License-Identifier: Apache-2.0
"""What must hold before any test module is imported."""

from __future__ import annotations

import os

# Kernel tests run under Triton's interpreter, which must be chosen before anything (also transformers) imports Triton.
os.environ["TRITON_INTERPRET"] = "1"

# SPDX-License-Identifier: Apache-2.0
"""What must hold before any test module is imported."""

from __future__ import annotations

import os

# Kernel tests run under Triton's interpreter, which must be chosen before anything (also transformers) imports Triton.
os.environ["TRITON_INTERPRET"] = "1"
# Tests run side by side. Threads of OpenMP and OpenBLAS that wait for one another on cores that others use too take
# fifty times as long. Children inherit it.
for _threads in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_threads, "1")

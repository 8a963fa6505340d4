# SPDX-License-Identifier: Apache-2.0
"""Where a training runs, and how its batches get there.

Owns the choice of the device and PyTorch's settings for it. Random numbers are always drawn on the CPU, so that they do
not depend on the device.
"""

from __future__ import annotations

import os

import torch
from torch import Tensor

from hspec_trt.errors import DrafterError
from hspec_trt.training.options import Device


def choose_device(wanted: Device) -> torch.device:
    """The device for an option.

    Raises:
        DrafterError: D226 for CUDA where PyTorch finds none.
    """
    found = torch.cuda.is_available()
    if wanted == "cuda" and not found:
        why = "PyTorch finds no CUDA device" if torch.version.cuda else "this PyTorch is built without CUDA"
        fix = "Leave --device out, or install a PyTorch with CUDA on a machine with a GPU"
        raise DrafterError("D226", why, needed="a CUDA device", where="--device cuda", fix=fix)
    return torch.device("cuda" if found and wanted != "cpu" else "cpu")


def prepare(device: torch.device) -> None:
    """Ask for the same bits every time, where PyTorch has such a way."""
    if device.type == "cuda":
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        torch.use_deterministic_algorithms(True, warn_only=True)


def move(values: Tensor, device: torch.device) -> Tensor:
    """A CPU tensor on the device; towards a GPU it goes from pinned memory, and nobody waits for it."""
    if device.type == "cuda":
        return values.pin_memory().to(device, non_blocking=True)
    return values.to(device)

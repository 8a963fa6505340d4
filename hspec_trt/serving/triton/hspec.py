# SPDX-License-Identifier: Apache-2.0
"""The model `hspec`: text in, text out, with the tensor names of TensorRT-LLM's ensemble and llmapi models."""

from __future__ import annotations

from collections.abc import Mapping

from hspec_trt.serving.triton.backend import ModelArgs
from hspec_trt.serving.triton.models import Interface, hspec_inputs
from hspec_trt.serving.triton.outputs import TEXT_OUTPUTS
from hspec_trt.serving.triton.served import Form, ServedModel


class HspecModel(ServedModel):
    """One instance of `hspec`."""

    def __init__(self, utils: object, args: Mapping[str, str]) -> None:
        interface: Interface = "ensemble" if ModelArgs.read(args).batched else "llmapi"
        super().__init__(utils, args, Form(hspec_inputs(interface), TEXT_OUTPUTS))

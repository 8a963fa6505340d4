# SPDX-License-Identifier: Apache-2.0
"""The model `tensorrt_llm`: token ids in, token ids out, for clients and ensembles of TensorRT-LLM's model."""

from __future__ import annotations

from collections.abc import Mapping

from hspec_trt.serving.triton.inputs import TOKEN_INPUTS, TOKEN_PROMPT
from hspec_trt.serving.triton.outputs import TOKEN_OUTPUTS
from hspec_trt.serving.triton.served import Form, ServedModel


class TokenModel(ServedModel):
    """One instance of `tensorrt_llm`."""

    def __init__(self, utils: object, args: Mapping[str, str]) -> None:
        form = Form((*TOKEN_PROMPT, *TOKEN_INPUTS), TOKEN_OUTPUTS, complete=True, send_bare_tokens=True)
        super().__init__(utils, args, form)

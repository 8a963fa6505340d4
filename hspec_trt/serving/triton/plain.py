# SPDX-License-Identifier: Apache-2.0
"""A model that answers each request at once with one response: the frame of pre- and postprocessing."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from hspec_trt.errors import HspecError, LoadError
from hspec_trt.serving.triton.backend import Backend, ModelArgs, RequestIn
from hspec_trt.serving.triton.engine import load_tokenizer, open_served
from hspec_trt.serving.triton.models import TOKENIZER_KEY
from hspec_trt.serving.triton.steps import Named, postprocess, preprocess
from hspec_trt.serving.triton.tensors import Array

Step = Callable[[Mapping[str, Array]], Named]


class PlainModel:
    """One instance of a step.

    Args:
        step: input arrays to output arrays; raises `RequestError`.
    """

    def __init__(self, backend: Backend, step: Step) -> None:
        self._backend, self._step = backend, step

    def execute(self, requests: Sequence[RequestIn]) -> list[object]:
        """One response for each request; a bad one does not touch the others."""
        return [self._answer(request) for request in requests]

    def is_ready(self) -> bool:
        """Nothing can break here that loading did not find."""
        return True

    def finalize(self) -> None:
        """Nothing is held."""

    def _answer(self, request: RequestIn) -> object:
        try:
            return self._backend.response(self._step({one.name(): one.as_numpy() for one in request.inputs()}))
        except HspecError as error:
            return self._backend.failure(error)


class PreprocessingModel(PlainModel):
    """Text to token ids."""

    def __init__(self, utils: object, args: Mapping[str, str]) -> None:
        backend, folder = Backend(utils), _TokenizerFolder(utils, args)
        manifest = folder.engine.manifest
        sizes = {"vocab_size": manifest.target.vocab_size, "max_seq_len": manifest.limits.max_seq_len}
        super().__init__(backend, lambda arrays: preprocess(arrays, folder.tokenizer, **sizes))


class PostprocessingModel(PlainModel):
    """Token ids to text."""

    def __init__(self, utils: object, args: Mapping[str, str]) -> None:
        backend, folder = Backend(utils), _TokenizerFolder(utils, args)
        super().__init__(backend, lambda arrays: postprocess(arrays, folder.tokenizer))


class _TokenizerFolder:
    """The engine folder of a step, opened for its tokenizer."""

    def __init__(self, utils: object, args: Mapping[str, str]) -> None:
        backend, found = Backend(utils), ModelArgs.read(args)
        try:
            path = found.parameters.get(TOKENIZER_KEY)
            if not path:
                raise LoadError("L051", f"parameter {TOKENIZER_KEY} is not set", needed="an engine folder")
            self.engine = open_served(found.folder / path)
            self.tokenizer = load_tokenizer(self.engine)
        except HspecError as error:
            raise backend.load_error(error) from error

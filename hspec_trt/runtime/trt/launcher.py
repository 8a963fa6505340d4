# SPDX-License-Identifier: Apache-2.0
"""Launches a step: bound and run, or, for a decode shape that came before, as one recorded CUDA graph.

A decode shape has a context of its own (one for each of two page buffers), because a graph lasts only as long as its
context's bindings stay.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any, Final

from hspec_trt.runtime.trt.buckets import StepShape
from hspec_trt.runtime.trt.cuda import Cuda, CudaError
from hspec_trt.runtime.trt.engine import DECODE_PROFILE, MIXED_PROFILE, EngineError, TrtContext, TrtEngine
from hspec_trt.runtime.trt.layout import Layout
from hspec_trt.runtime.trt.pools import Bindings, PagePools

_LOG: Final = logging.getLogger(__name__)
MAX_SHAPES: Final = 64
"""Decode shapes that are kept; the one unused for longest goes first."""
_NOT_CAPTURABLE: Final = "TensorRT may allocate memory in a step of this plan; build the engine again"


@dataclass
class LaunchCounts:
    """How steps were launched so far.

    Attributes:
        bound: bound and run.
        not_capturable: those of `bound` that TensorRT refuses to record.
    """

    bound: int = 0
    recorded: int = 0
    replayed: int = 0
    not_capturable: int = 0


@dataclass
class _Decoder:
    """What is kept of one decode shape.

    Attributes:
        ran: it ran once with as many pages, which TensorRT asks for before a launch is recorded.
        refused: recording it failed; other shapes may still be recorded.
        graph: the recorded launch.
    """

    context: TrtContext
    ran: bool = False
    refused: bool = False
    graph: Any = None


class Launcher:
    """Launches steps of one engine.

    Attributes:
        capture_fault: why a step could not be recorded, in words, the first time; empty where all could.
    """

    def __init__(self, engine: TrtEngine, cuda: Cuda, pools: PagePools, *, use_graphs: bool) -> None:
        self._engine, self._cuda, self._pools = engine, cuda, pools
        self._use_graphs = use_graphs
        self._mixed = engine.context(MIXED_PROFILE)
        self._decoders: OrderedDict[tuple[StepShape, int], _Decoder] = OrderedDict()
        self.counts = LaunchCounts()
        self.capture_fault = ""

    def launch(self, shape: StepShape, layout: Layout, inputs: int, outputs: Layout, results: int) -> None:
        """Start a step, in the stream's order; afterwards the pools that it wrote are those to read.

        Args:
            layout, inputs: where the inputs lie, and the address of their block.
            outputs, results: the same of the outputs.

        Raises:
            CudaError, EngineError: it cannot be started.
        """
        if shape.decode:
            self._launch_decode(shape, _bindings(layout, inputs), _bindings(outputs, results))
        else:
            self._bind(self._mixed, _bindings(layout, inputs), _bindings(outputs, results))
            self._mixed.run()
            self.counts.bound += 1
        self._pools.swap()

    def forget_addresses(self) -> None:
        """Drop recorded launches: their memory goes away, and other pages may come. Nothing may be running."""
        for decoder in self._decoders.values():
            self._drop_graph(decoder)
            decoder.ran = decoder.refused = False

    def _launch_decode(self, shape: StepShape, inputs: Bindings, outputs: Bindings) -> None:
        decoder = self._decoder(shape)
        if decoder.graph is not None:
            self._cuda.launch(decoder.graph)
            self.counts.replayed += 1
            return
        self._bind(decoder.context, inputs, outputs)
        if self._use_graphs and decoder.ran and not decoder.refused:
            self._try_to_record(decoder)
        if decoder.graph is not None:
            self._cuda.launch(decoder.graph)
        else:
            decoder.context.run()
            decoder.ran = True
            self.counts.bound += 1

    def _decoder(self, shape: StepShape) -> _Decoder:
        key = (shape, self._pools.reading)
        decoder = self._decoders.pop(key, None)
        if decoder is None:
            if len(self._decoders) >= MAX_SHAPES:
                self._cuda.synchronize()
                self._drop_graph(self._decoders.popitem(last=False)[1])
            decoder = _Decoder(self._engine.context(DECODE_PROFILE))
        self._decoders[key] = decoder
        return decoder

    def _bind(self, context: TrtContext, inputs: Bindings, outputs: Bindings) -> None:
        context.bind(inputs | self._pools.inputs(), outputs | self._pools.outputs())

    def _try_to_record(self, decoder: _Decoder) -> None:
        if decoder.context.can_be_captured:
            self._record(decoder)
        else:
            self.counts.not_capturable += 1
            self._report(_NOT_CAPTURABLE)

    def _report(self, fault: str) -> None:
        """Tell the first fault of recording, once."""
        if not self.capture_fault:
            self.capture_fault = fault
            _LOG.warning("a step runs without CUDA graph, more slowly: %s", fault)

    def _record(self, decoder: _Decoder) -> None:
        """Record the launch of what is bound; where that fails, this shape is not tried again."""
        try:
            self._cuda.begin_capture()
            try:
                decoder.context.run()
            finally:
                decoder.graph = self._cuda.end_capture()
        except (CudaError, EngineError) as error:
            self._drop_graph(decoder)
            decoder.refused = True
            self._report(str(error))
        else:
            self.counts.recorded += 1

    def _drop_graph(self, decoder: _Decoder) -> None:
        if decoder.graph is not None:
            self._cuda.destroy_graph(decoder.graph)
            decoder.graph = None


def _bindings(layout: Layout, block: int) -> Bindings:
    return {name: (block + place.offset, place.shape) for name, place in layout.places.items()}

# SPDX-License-Identifier: Apache-2.0
"""What TensorRT parsed of a compiled engine's graph, as it stands in the engine folder."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

LAYERS_FILE: Final = "rank0.layers.json"


@dataclass(frozen=True)
class PluginLayer:
    """A plugin layer as TensorRT parsed it.

    Attributes:
        name: of the layer.
        op: name of the plugin.
        fields: what the plugin was created with.
        inputs, outputs: tensor names.
        aliased: output tensor to the input tensor whose memory it shares.
    """

    name: str
    op: str
    fields: dict[str, int | float]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    aliased: dict[str, str]


@dataclass(frozen=True)
class Parsed:
    """The network stands.

    Attributes:
        layer_counts: TensorRT layer kind to how many there are.
    """

    layer_counts: dict[str, int]
    plugin_layers: tuple[PluginLayer, ...]
    kind: Literal["parsed"] = "parsed"

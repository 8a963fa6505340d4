# SPDX-License-Identifier: Apache-2.0
"""DSpark checkpoints: the speculators format and DeepSpec's. The backbone is DFlash's; this adds the heads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from hspec_trt.checkpoint.fields import Fields
from hspec_trt.checkpoint.formats import block
from hspec_trt.checkpoint.formats.envelope import check_envelope
from hspec_trt.checkpoint.formats.layout import DrafterLayout, DrafterSource
from hspec_trt.checkpoint.formats.weights import Shapes, fit
from hspec_trt.config.drafters_block import MARKOV_TYPES, DSparkConfig, MarkovType

KIND: Final = "dspark"
_KEYS: Final = frozenset(
    {
        "markov_rank",
        "markov_head_type",
        "enable_confidence_head",
        "confidence_head_with_markov",
        "confidence_head_alpha",
    }
)
_MAX_RANK: Final = 1 << 14


@dataclass(frozen=True)
class _Heads:
    rank: int
    kind: MarkovType
    confidence: bool
    confidence_with_markov: bool


def read_speculators(source: DrafterSource) -> DrafterLayout:
    """A checkpoint with ``speculators_model_type`` "dspark".

    Raises:
        DrafterError, CheckpointError: all faults found, as a `FaultGroup` where there are several.
    """
    check_envelope(source, block.SPECULATORS_KEYS | _KEYS)
    return _assemble(source, block.read_speculators(source), _heads(source, source.fields))


def read_original(source: DrafterSource) -> DrafterLayout:
    """DeepSpec's layout, whose slot k predicts position p + k + 1.

    Raises:
        DrafterError, CheckpointError: as `read_speculators`.
    """
    nested = source.fields.object("dspark_config") if source.fields.has("dspark_config") else source.fields
    return _assemble(source, block.read_original(source, from_anchor=True, heads=_KEYS), _heads(source, nested))


def _heads(source: DrafterSource, fields: Fields) -> _Heads:
    rank = fields.integer("markov_rank", 0, _MAX_RANK)
    name = fields.text("markov_head_type", "vanilla" if rank == 0 else "")
    kind = next((known for known in MARKOV_TYPES if known == name), None)
    if kind is None:
        found = f"markov_head_type {name[:80]!r}" if name else "markov_head_type is missing"
        source.fault("D133", found, needed=", ".join(MARKOV_TYPES), name="markov_head_type")
    present = "confidence_head.proj.weight" in source.tensors
    confidence = fields.flag("enable_confidence_head", present)
    with_markov = confidence and _with_markov(source, fields)
    if with_markov and rank == 0:
        found = "confidence_head_with_markov without a Markov head"
        source.fault("D133", found, needed="markov_rank above 0", name="confidence_head_with_markov")
    return _Heads(rank, kind or "vanilla", confidence, with_markov)


def _with_markov(source: DrafterSource, fields: Fields) -> bool:
    """As stated; where it is not, the head's width says so."""
    weight = source.tensors.get("confidence_head.proj.weight")
    wider = weight is not None and weight.shape[-1] != source.target.hidden_size
    return fields.flag("confidence_head_with_markov", wider)


def _assemble(source: DrafterSource, fields: block.BackboneFields, heads: _Heads) -> DrafterLayout:
    if heads.rank and not any(name.startswith("markov_head.") for name in source.tensors):
        fix = "Use --drafter-format dflash if it is one"
        found = f"read as dspark with markov_rank {heads.rank}, but the checkpoint has no markov_head"
        source.fault("D001", found, needed="markov_head.*", fix=fix)
    source.fields.faults.raise_any()
    config = DSparkConfig(
        kind=KIND,
        **fields,
        markov_rank=heads.rank,
        markov_type=heads.kind,
        confidence_head=heads.confidence,
        confidence_with_markov=heads.confidence_with_markov,
    )
    source.notes.append(f"Markov head: {heads.kind}, rank {heads.rank}" if heads.rank else "Markov head: none")
    tensors = fit(source, config, block.block_weights(source, config) | _head_weights(config))
    return DrafterLayout(config, tensors, tuple(source.notes), tuple(source.warnings))


def _head_weights(config: DSparkConfig) -> Shapes:
    rank, hidden = config.markov_rank, config.hidden_size
    shapes: Shapes = {}
    if rank:
        shapes["markov_head.markov_w1.weight"] = (config.vocab_size, rank)
        shapes["markov_head.markov_w2.weight"] = (config.draft_vocab_size, rank)
    if rank and config.markov_type == "gated":
        shapes |= {"markov_head.gate_proj.weight": (rank, hidden + rank), "markov_head.gate_proj.bias": (rank,)}
    if rank and config.markov_type == "rnn":
        shapes["markov_head.joint_proj.weight"] = (3 * rank, 2 * rank + hidden)
        shapes["markov_head.joint_proj.bias"] = (3 * rank,)
    if config.confidence_head:
        shapes["confidence_head.proj.weight"] = (1, config.confidence_width)
        shapes["confidence_head.proj.bias"] = (1,)
    return shapes

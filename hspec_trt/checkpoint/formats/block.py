# SPDX-License-Identifier: Apache-2.0
"""What DFlash and DSpark checkpoints state alike, in the speculators format and in the original ones.

Owns their field names and conventions. Layer ids, mask token, block size, slot layout, causality and windows are
read or asked for, never assumed in silence.
"""

from __future__ import annotations

from typing import Final

from hspec_trt.checkpoint.fields import Fields
from hspec_trt.checkpoint.formats.envelope import MAX_BLOCK, SlotLayout, read_num_drafts, read_slots, speculative_tokens
from hspec_trt.checkpoint.formats.layer_ids import LayerIdRule, check_fusion_width, fused_layers
from hspec_trt.checkpoint.formats.layout import DrafterSource
from hspec_trt.checkpoint.formats.original import check_original
from hspec_trt.checkpoint.formats.transformer import CommonSizes, DraftTransformer, read_transformer
from hspec_trt.checkpoint.formats.vocab import read_draft_vocab, read_mask_token
from hspec_trt.checkpoint.formats.weights import Shapes, decoder_layer, rename, tables
from hspec_trt.checkpoint.json_text import JsonValue
from hspec_trt.config.drafters_block import DFlashConfig
from hspec_trt.contract import MAX_VOCAB_SIZE

SPECULATORS_KEYS: Final = frozenset(
    {
        "aux_hidden_state_layer_ids",
        "block_size",
        "mask_token_id",
        "max_anchors",
        "sample_from_anchor",
        "sliding_window_non_causal",
    }
)
MASK_VECTOR: Final = "mask_embedding"
_SPECULATORS_IDS: Final = LayerIdRule("aux_hidden_state_layer_ids", "input")
_ZLAB_IDS: Final = LayerIdRule("dflash_config.target_layer_ids", "output", lowest=1)
_DEEPSPEC_IDS: Final = LayerIdRule("target_layer_ids", "output", below_last=1)
_NESTED: Final = ("dflash_config", "dspark_config")
_ORIGINAL_KEYS: Final = frozenset(
    {
        "block_size",
        "is_causal",
        "mask_token_id",
        "max_anchors",
        "num_anchors",
        "num_target_layers",
        "sample_from_anchor",
        "target_layer_ids",
    }
)
_NESTED_KEYS: Final = frozenset({"block_size", "causal", "mask_token_id", "swa_window_size", "target_layer_ids"})
_NEUTRAL: Final[dict[str, JsonValue]] = {
    "attention_sink_bias": False,
    "fc_layernorm": False,
    "logit_scale": 1.0,
    "use_swa": False,
}
"""Options that are not built, with the value that asks for nothing."""
_MAX_ID: Final = 1 << 20


class BackboneFields(CommonSizes):
    """The fields of `DFlashConfig`, but for its kind."""

    draft_vocab_size: int
    block_size: int
    num_drafts: int
    mask_token_id: int
    fused_layers: tuple[int, ...]
    windows: tuple[int, ...]
    causal: tuple[bool, ...]
    sample_from_anchor: bool
    attention_bias: bool
    mask_embedding: bool


def read_speculators(source: DrafterSource) -> BackboneFields:
    """The backbone of a speculators checkpoint; faults are noted in `source`."""
    fields = source.fields
    transformer = read_transformer(source, fields.object("transformer_layer_config"))
    layers = fused_layers(source, fields.integers("aux_hidden_state_layer_ids", -_MAX_ID, _MAX_ID), _SPECULATORS_IDS)
    block_size = fields.integer("block_size", 2, MAX_BLOCK) if fields.has("block_size") else None
    stated = fields.flag("sample_from_anchor", False) if fields.has("sample_from_anchor") else None
    bidirectional = fields.flag("sliding_window_non_causal", False)
    if not fields.has("sliding_window_non_causal"):
        _warn_of_causality(source, transformer.windows)
    if bidirectional and any(transformer.windows):
        source.warnings.append(
            "warning[D131] sliding layers are bidirectional inside the block, as trained; vLLM serves them causal"
        )
    return _backbone(
        source,
        transformer,
        layers,
        read_slots(source, block_size, stated),
        causal=tuple(bool(window) and not bidirectional for window in transformer.windows),
        mask=fields.integer("mask_token_id", -_MAX_ID, MAX_VOCAB_SIZE) if fields.has("mask_token_id") else None,
        draft_vocab=fields.integer("draft_vocab_size", 1, MAX_VOCAB_SIZE),
    )


def read_original(
    source: DrafterSource, *, from_anchor: bool | None, heads: frozenset[str] = frozenset()
) -> BackboneFields:
    """The backbone of a z-lab or DeepSpec checkpoint; faults are noted in `source`.

    Args:
        from_anchor: the slot layout that the format fixes; None where the checkpoint or the user must say.
        heads: keys of the heads on top, which stand beside the backbone's.
    """
    fields = source.fields
    check_original(source, _ORIGINAL_KEYS | heads, dict.fromkeys(_NESTED, _NESTED_KEYS | heads), _NEUTRAL)
    nested = next((fields.object(name) for name in _NESTED if fields.has(name)), None)
    transformer = read_transformer(source, fields)
    stated = from_anchor
    if fields.has("sample_from_anchor"):
        stated = fields.flag("sample_from_anchor", False)
    return _backbone(
        source,
        transformer,
        _original_layers(source, nested),
        read_slots(source, _either(source, nested, "block_size", (2, MAX_BLOCK), twice="D124"), stated),
        causal=_original_causality(source, nested, transformer.windows),
        mask=_either(source, nested, "mask_token_id", (-_MAX_ID, MAX_VOCAB_SIZE), twice="D122"),
        draft_vocab=None,
    )


def _original_layers(source: DrafterSource, nested: Fields | None) -> tuple[int, ...]:
    count = source.fields.integer("num_target_layers", 1, 1 << 10, source.target.num_layers)
    if count != source.target.num_layers:
        found = f"num_target_layers {count}, the target has {source.target.num_layers}"
        source.fault("D114", found, needed="the same", fix="This drafter was trained for another target")
    if nested is not None and nested.has("target_layer_ids"):
        return fused_layers(source, nested.integers("target_layer_ids", -_MAX_ID, _MAX_ID), _ZLAB_IDS)
    return fused_layers(source, source.fields.integers("target_layer_ids", -_MAX_ID, _MAX_ID), _DEEPSPEC_IDS)


def _original_causality(source: DrafterSource, nested: Fields | None, windows: tuple[int, ...]) -> tuple[bool, ...]:
    """vLLM's order: ``is_causal``, ``dflash_config.causal``, then the layer type."""
    if source.fields.has("is_causal"):
        return (source.fields.flag("is_causal", False),) * len(windows)
    if nested is not None and nested.has("causal"):
        return (nested.flag("causal", False),) * len(windows)
    _warn_of_causality(source, windows)
    return tuple(bool(window) for window in windows)


def _warn_of_causality(source: DrafterSource, windows: tuple[int, ...]) -> None:
    """The line for sliding layers of which the checkpoint does not say how they see the block."""
    if any(windows):
        source.warnings.append(
            "warning[D131] the checkpoint does not state causality: sliding layers are causal inside the block, "
            "as vLLM serves them"
        )


def _either(
    source: DrafterSource, nested: Fields | None, name: str, bounds: tuple[int, int], *, twice: str
) -> int | None:
    """A number at the top level or in the nested object; None where it is in neither.

    Args:
        twice: code of the fault where the two differ.
    """
    found = [part.integer(name, *bounds) for part in (source.fields, nested) if part is not None and part.has(name)]
    if len(set(found)) > 1:
        source.fault(twice, f"{name} is {found[0]}, but {found[1]} in the nested object", needed="one value", name=name)
    return found[0] if found else None


def _backbone(
    source: DrafterSource,
    transformer: DraftTransformer,
    layers: tuple[int, ...],
    slots: SlotLayout,
    *,
    causal: tuple[bool, ...],
    mask: int | None,
    draft_vocab: int | None,
) -> BackboneFields:
    check_fusion_width(source, layers)
    rename(source, {f"{MASK_VECTOR}.weight": MASK_VECTOR}, shapes={MASK_VECTOR: (source.target.hidden_size,)})
    vector = MASK_VECTOR in source.tensors
    vocab_size = transformer.sizes["vocab_size"]
    for layer, (window, inside) in enumerate(zip(transformer.windows, causal, strict=True)):
        if 0 < window < slots.block_size and not inside:
            found = f"draft layer {layer}: window {window} inside a bidirectional block of {slots.block_size}"
            source.fault("D132", found, needed="a window of at least the block")
    source.notes.extend(_layer_table(transformer.windows, causal))
    source.notes.append(f"mask slots: {f'the vector {MASK_VECTOR}' if vector else 'the embedding of the mask token'}")
    return BackboneFields(
        **transformer.sizes,
        draft_vocab_size=read_draft_vocab(source, draft_vocab, vocab_size),
        block_size=slots.block_size,
        num_drafts=read_num_drafts(source, slots.num_slots, speculative_tokens(source)),
        mask_token_id=read_mask_token(source, mask, vocab_size, own_vector=vector),
        fused_layers=layers,
        windows=transformer.windows,
        causal=causal,
        sample_from_anchor=slots.sample_from_anchor,
        attention_bias=transformer.attention_bias,
        mask_embedding=vector,
    )


def _layer_table(windows: tuple[int, ...], causal: tuple[bool, ...]) -> list[str]:
    return [
        f"draft layer {layer}: {f'window {window}' if window else 'full attention'}, "
        f"{'causal' if inside else 'bidirectional'} inside the block"
        for layer, (window, inside) in enumerate(zip(windows, causal, strict=True))
    ]


def block_weights(source: DrafterSource, config: DFlashConfig) -> Shapes:
    """Names and shapes of the backbone's weights."""
    hidden = config.hidden_size
    shapes: Shapes = {"fc.weight": (hidden, len(config.fused_layers) * hidden), "hidden_norm.weight": (hidden,)}
    for layer in range(len(config.windows)):
        shapes |= decoder_layer(
            f"layers.{layer}.",
            config,
            width_in=hidden,
            qk_norm=True,
            attention_bias=config.attention_bias,
            mlp_bias=False,
        )
    shapes |= {"norm.weight": (hidden,)}
    if config.mask_embedding:
        shapes[MASK_VECTOR] = (hidden,)
    return shapes | tables(source, config)

# SPDX-License-Identifier: Apache-2.0
"""H-Spec's attention over the target's K and V: which layers, and that heads and rotation are the target's.

Owns ``attn_kv_layer_ids`` and ``attn_rope`` of the published configuration.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from hspec_trt.checkpoint.fields import Fields
from hspec_trt.checkpoint.formats.layout import DrafterSource
from hspec_trt.checkpoint.formats.transformer import DraftTransformer
from hspec_trt.checkpoint.hf_rope import read_rope
from hspec_trt.config.drafter import SubLayer
from hspec_trt.config.rope import RopeConfig

MAX_ID: Final = 1 << 20


def read_kv_layers(source: DrafterSource, pattern: Sequence[SubLayer], num_layers: int) -> tuple[int, ...]:
    """Target layer of each attention sub-layer, in order; repeats are allowed (D100, D101, D104).

    Args:
        num_layers: ``num_hidden_layers``, which counts attention sub-layers only.
    """
    name, needed, last = "attn_kv_layer_ids", pattern.count("attention"), source.target.num_layers - 1
    ids = source.fields.integers(name, -MAX_ID, MAX_ID)
    if ids is None:
        fix = "They are never guessed from the number of layers"
        source.fault("D100", f"{name} is missing", needed=f"{needed} target layers", name=name, fix=fix)
        return (0,) * needed
    for layer in (item for item in ids if not 0 <= item <= last):
        found = f"{name}: {layer} is out of range for a {last + 1}-layer target"
        source.fault("D101", found, needed=f"0..{last} (convention: layer number)", name=name)
    if len(ids) != needed:
        found = f"{name} has {len(ids)} entries"
        source.fault("D104", found, needed=f"{needed}, one per attention sub-layer", name=name)
    if num_layers != needed:
        found = f"num_hidden_layers is {num_layers}"
        where = "transformer_layer_config: num_hidden_layers"
        source.fault("D104", found, needed=f"the number of attention sub-layers, {needed}", name=where)
    aux = source.fields.integers("aux_hidden_state_layer_ids", -MAX_ID, MAX_ID)
    if aux is not None and list(aux) != sorted(set(ids)):
        needed_ids = f"the sorted layers of {name}, {sorted(set(ids))}"
        source.fault("D104", f"aux_hidden_state_layer_ids is {list(aux)}", needed=needed_ids, name=name)
    return ids


def check_shared_heads(source: DrafterSource, transformer: DraftTransformer, layer: Fields) -> None:
    """K/V heads and rotation must be the target's, whose keys are read as they lie in the cache (D114, D115, D131)."""
    fix = "This drafter was trained for another target"
    sizes, target = transformer.sizes, source.target
    for name, found, needed in (
        ("num_key_value_heads", sizes["num_kv_heads"], target.num_kv_heads),
        ("head_dim", sizes["head_dim"], target.head_dim),
    ):
        if found != needed:
            source.fault("D114", f"drafter {name} {found}, target {needed}", needed="the same", fix=fix)
    for where, rope in _ropes(source, transformer, layer):
        if rope != target.rope:
            text = f"drafter rope is {_rope_text(rope)}"
            source.fault("D115", text, needed=f"the target's, {_rope_text(target.rope)}", name=where, fix=fix)
            break
    _refuse_target_windows(source, transformer.windows)


def _ropes(source: DrafterSource, transformer: DraftTransformer, layer: Fields) -> list[tuple[str, RopeConfig]]:
    """Rotation per attention sub-layer; ``attn_rope``, where given, has the last word over the layer's own."""
    given = source.fields.values.get("attn_rope")
    entries = [item for item in given if isinstance(item, dict)] if isinstance(given, list) else []
    entries = [item for item in entries if item.get("rope_parameters") is not None]
    if not entries:
        return [("transformer_layer_config", transformer.sizes["rope"])]
    ropes = []
    for index, entry in enumerate(entries):
        inner = entry["rope_parameters"]
        told = isinstance(inner, dict) and "partial_rotary_factor" in inner
        values = entry if told else {"partial_rotary_factor": layer.values.get("partial_rotary_factor"), **entry}
        where = f"attn_rope[{index}]"
        fields = Fields(values, f"{source.fields.where}: {where}", source.fields.faults)
        sizes = transformer.sizes
        ropes.append((where, read_rope(fields, head_dim=sizes["head_dim"], max_position=sizes["max_position"])))
    return ropes


def _refuse_target_windows(source: DrafterSource, windows: Sequence[int]) -> None:
    """A full sub-layer over a sliding target layer would be windowed yet bidirectional: nobody serves that."""
    given = source.fields.values.get("attn_rope")
    for index, (window, entry) in enumerate(zip(windows, given if isinstance(given, list) else [], strict=False)):
        if not window and isinstance(entry, dict) and entry.get("sliding_window") is not None:
            found = f"attn_rope[{index}] has a sliding_window on a full_attention sub-layer"
            source.fault("D131", found, needed="null, or sliding_attention in layer_types", name="attn_rope")


def _rope_text(rope: RopeConfig) -> str:
    plain = RopeConfig()
    names = list(plain.__dataclass_fields__)
    shown = [name for name in names if name in ("rope_type", "theta") or vars(rope)[name] != vars(plain)[name]]
    return ", ".join(f"{name} {vars(rope)[name]}" for name in shown)

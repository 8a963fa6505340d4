# SPDX-License-Identifier: Apache-2.0
"""EAGLE-3 checkpoints: the speculators format, and the original one (``midlayer.*``, ``eagle_config``).

Owns the fields and tables that P-EAGLE shares. Layer ids and the residual rule are read or asked for, never assumed in
silence.
"""

from __future__ import annotations

from typing import Final

from hspec_trt.checkpoint.fields import Fields
from hspec_trt.checkpoint.formats.envelope import check_envelope, read_num_drafts, speculative_tokens
from hspec_trt.checkpoint.formats.layer_ids import LayerIdRule, check_fusion_width, fused_layers
from hspec_trt.checkpoint.formats.layout import DrafterLayout, DrafterSource
from hspec_trt.checkpoint.formats.original import check_original
from hspec_trt.checkpoint.formats.transformer import CommonSizes, DraftTransformer, read_transformer
from hspec_trt.checkpoint.formats.vocab import read_draft_vocab
from hspec_trt.checkpoint.formats.weights import Shapes, decoder_layer, fit, rename, tables
from hspec_trt.checkpoint.json_text import JsonValue
from hspec_trt.config.drafters_eagle import NO_MASK_TOKEN, Eagle3Config
from hspec_trt.contract import MAX_VOCAB_SIZE

KIND: Final = "eagle3"
MARKS: Final = ("midlayer.", "model.midlayer.")
"""Prefixes of the first layer's tensors in the authors' layout."""
KEYS: Final = frozenset(
    {
        "eagle_aux_hidden_state_layer_ids",
        "embed_requires_grad",
        "fc_norm",
        "norm_before_fc",
        "norm_before_residual",
        "norm_output",
    }
)
_ID_KEYS: Final = frozenset({"eagle_aux_hidden_state_layer_ids", "target_layer_ids"})
_NEUTRAL: Final[dict[str, JsonValue]] = {
    "next_layer_regular": True,
    "use_input_layernorm_in_first_layer": True,
    "use_last_layernorm": True,
    "use_mtp_layernorm": False,
}
"""Options of the original layout that are not built, with the value that asks for nothing."""
_IDS: Final = LayerIdRule("eagle_aux_hidden_state_layer_ids", "input")
_DEEPSPEC_IDS: Final = LayerIdRule("target_layer_ids", "output", below_last=1)
_MAX_ID: Final = 1 << 20
_FOREIGN: Final = {"mask_hidden": "peagle", "markov_head.markov_w1.weight": "dspark"}


class EagleFields(CommonSizes):
    """The fields of `Eagle3Config` that P-EAGLE's checkpoints state alike."""

    draft_vocab_size: int
    fused_layers: tuple[int, ...]
    windows: tuple[int, ...]
    qk_norm: bool
    attention_bias: bool
    mlp_bias: bool
    norm_before_residual: bool
    norm_before_fc: bool
    fc_norm: bool
    norm_output: bool
    own_embedding: bool


def read_speculators(source: DrafterSource) -> DrafterLayout:
    """A checkpoint with ``speculators_model_type`` "eagle3".

    Raises:
        DrafterError, CheckpointError: all faults found, as a `FaultGroup` where there are several.
    """
    check_envelope(source, KEYS)
    return _assemble(source, read_fields(source))


def read_original(source: DrafterSource) -> DrafterLayout:
    """The layout of the EAGLE-3 authors and of tools that keep it; raises as `read_speculators`."""
    return _assemble(source, read_original_fields(source))


def read_fields(source: DrafterSource) -> EagleFields:
    """What a speculators checkpoint states; faults are noted in `source`."""
    fields = source.fields
    transformer = read_transformer(source, fields.object("transformer_layer_config"))
    layers = fused_layers(source, fields.integers("eagle_aux_hidden_state_layer_ids", -_MAX_ID, _MAX_ID), _IDS)
    stated = fields.flag("norm_before_residual", False) if fields.has("norm_before_residual") else None
    return _fields(source, transformer, layers, _residual(source, stated))


def read_original_fields(source: DrafterSource, extra: frozenset[str] = frozenset()) -> EagleFields:
    """What an original checkpoint states. Faults are noted in `source`.

    Args:
        extra: keys that the drafter has beside EAGLE-3's.
    """
    check_original(source, KEYS | _ID_KEYS | {"draft_vocab_size"} | extra, {"eagle_config": _ID_KEYS}, _NEUTRAL)
    rename(source, dict.fromkeys(MARKS, "layers.0.") | {"model.": ""})
    fields = source.fields
    transformer = read_transformer(source, fields)
    nested = fields.object("eagle_config") if fields.has("eagle_config") else None
    holder = nested if nested is not None and nested.has("eagle_aux_hidden_state_layer_ids") else fields
    if holder.has("target_layer_ids"):
        layers = fused_layers(source, holder.integers("target_layer_ids", -_MAX_ID, _MAX_ID), _DEEPSPEC_IDS)
    else:
        layers = fused_layers(source, holder.integers("eagle_aux_hidden_state_layer_ids", -_MAX_ID, _MAX_ID), _IDS)
    return _fields(source, transformer, layers, _residual(source, _authors_residual(source)))


def _fields(
    source: DrafterSource, transformer: DraftTransformer, layers: tuple[int, ...], residual: bool
) -> EagleFields:
    fields = source.fields
    check_fusion_width(source, layers)
    before_fc, per_state = fields.flag("norm_before_fc", False), fields.flag("fc_norm", False)
    if before_fc and per_state:
        source.fault("D134", "norm_before_fc and fc_norm are both set", needed="at most one", name="fc_norm")
    vocab_size = transformer.sizes["vocab_size"]
    return EagleFields(
        **transformer.sizes,
        draft_vocab_size=read_draft_vocab(source, _stated_vocab(fields), vocab_size),
        fused_layers=layers,
        windows=transformer.windows,
        qk_norm=transformer.model_type == "qwen3",
        attention_bias=transformer.attention_bias,
        mlp_bias=transformer.mlp_bias,
        norm_before_residual=residual,
        norm_before_fc=before_fc,
        fc_norm=per_state,
        norm_output=fields.flag("norm_output", False),
        own_embedding="embed_tokens.weight" in source.tensors,
    )


def _stated_vocab(fields: Fields) -> int | None:
    return fields.integer("draft_vocab_size", 1, MAX_VOCAB_SIZE) if fields.has("draft_vocab_size") else None


def _authors_residual(source: DrafterSource) -> bool:
    """As stated; else the plain fused state of the authors' code, with a warning: others keep the layout too."""
    stated = source.fields.has("norm_before_residual")
    if not stated and source.options.norm_before_residual is None:
        source.warnings.append(
            "warning[D134] norm_before_residual is not stated: the residual is the plain fused state, as in the "
            "authors' code; else pass --norm-before-residual"
        )
    return source.fields.flag("norm_before_residual", False)


def _residual(source: DrafterSource, stated: bool | None) -> bool:
    option = source.options.norm_before_residual
    answer = stated if option is None else option
    if answer is None:
        fix = "Pass --norm-before-residual or --no-norm-before-residual"
        found = "norm_before_residual is missing: speculators reads that as false, vLLM as true"
        source.fault("D134", found, needed="true or false", fix=fix, name="norm_before_residual")
        return False
    source.notes.append(f"first draft layer: residual is the {'normed' if answer else 'plain'} fused state")
    return answer


def check_foreign(source: DrafterSource, kind: str) -> None:
    """Refuse a checkpoint whose tensors say that it is another drafter (D001)."""
    for name, other in _FOREIGN.items():
        if other != kind and name in source.tensors:
            fix = f"Use --drafter-format {other}"
            source.fault("D001", f"read as {kind}, but the checkpoint has {name}", needed=f"no {name}", fix=fix)


def eagle_weights(source: DrafterSource, config: Eagle3Config) -> Shapes:
    """Names and shapes of the weights; layer 0 reads the embedding beside the fused state."""
    hidden, fused = config.hidden_size, len(config.fused_layers)
    shapes: Shapes = {"fc.weight": (hidden, fused * hidden)}
    if config.norm_before_fc:
        shapes["input_norm.weight"] = (fused * hidden,)
    if config.fc_norm:
        shapes |= {f"fc_norm.{index}.weight": (hidden,) for index in range(fused)}
    for layer in range(len(config.windows)):
        shapes |= decoder_layer(
            f"layers.{layer}.",
            config,
            width_in=hidden if layer else 2 * hidden,
            qk_norm=config.qk_norm,
            attention_bias=config.attention_bias,
            mlp_bias=config.mlp_bias,
        )
    shapes |= {"layers.0.hidden_norm.weight": (hidden,), "norm.weight": (hidden,)}
    return shapes | tables(source, config)


def _assemble(source: DrafterSource, fields: EagleFields) -> DrafterLayout:
    check_foreign(source, KIND)
    drafts = read_num_drafts(source, None, speculative_tokens(source))
    place = "after" if fields["norm_output"] else "before"
    unstated = "" if source.fields.has("norm_output") else " (norm_output is not stated)"
    source.notes.append(f"serial passes: the state fed back is taken {place} the final norm{unstated}")
    source.fields.faults.raise_any()
    config = Eagle3Config(kind=KIND, **fields, block_size=1, num_drafts=drafts, mask_token_id=NO_MASK_TOKEN)
    tensors = fit(source, config, eagle_weights(source, config))
    return DrafterLayout(config, tensors, tuple(source.notes), tuple(source.warnings))

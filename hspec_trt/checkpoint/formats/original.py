# SPDX-License-Identifier: Apache-2.0
"""What the original layouts have in common: a flat Hugging Face configuration, with some keys in an object inside.

Owns which keys such a file may have besides a drafter's own: what the draft layers are read from, what every
transformers configuration carries, and options that are not built. Any other key is reported (D002).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from hspec_trt.checkpoint.fields import Fields
from hspec_trt.checkpoint.formats.envelope import warn_of_unknown
from hspec_trt.checkpoint.formats.layout import DrafterSource
from hspec_trt.checkpoint.json_text import JsonValue

LAYER_KEYS: Final = frozenset(
    {
        "attention_bias",
        "head_dim",
        "hidden_act",
        "hidden_size",
        "intermediate_size",
        "layer_types",
        "max_position_embeddings",
        "mlp_bias",
        "model_type",
        "num_attention_heads",
        "num_hidden_layers",
        "num_key_value_heads",
        "original_max_position_embeddings",
        "partial_rotary_factor",
        "rms_norm_eps",
        "rope_parameters",
        "rope_scaling",
        "rope_theta",
        "sliding_window",
        "use_sliding_window",
        "vocab_size",
    }
)
"""Read by `hspec_trt.checkpoint.formats.transformer`."""
ORDINARY_KEYS: Final = frozenset(
    {
        "_attn_implementation",
        "_name_or_path",
        "architectures",
        "attention_dropout",
        "auto_map",
        "bos_token_id",
        "chunk_size_feed_forward",
        "dtype",
        "eos_token_id",
        "id2label",
        "initializer_range",
        "is_decoder",
        "is_encoder_decoder",
        "label2id",
        "max_window_layers",
        "output_attentions",
        "output_hidden_states",
        "pad_token_id",
        "pretraining_tp",
        "problem_type",
        "return_dict",
        "speculators_config",
        "tie_word_embeddings",
        "torch_dtype",
        "transformers_version",
        "use_cache",
    }
)
"""Change nothing here: types, special tokens and names are the target's or the tensors' own."""
NEUTRAL: Final[dict[str, JsonValue]] = {"is_neox_style": True, "use_aux_hidden_state": True}
"""Options that are not built, with the value that asks for nothing; a format may have more."""


def check_original(
    source: DrafterSource, known: Iterable[str], nested: Mapping[str, Iterable[str]], neutral: Mapping[str, JsonValue]
) -> None:
    """Refuse options that are not built (D132), wherever they stand, and warn of keys that nobody reads (D002).

    Args:
        known: the format's own keys of config.json.
        nested: by name of an object in it, the keys of that object.
        neutral: options of the format that are not built, beside `NEUTRAL`.
    """
    options = NEUTRAL | dict(neutral)
    objects = [(source.fields.object(name), keys) for name, keys in nested.items() if source.fields.has(name)]
    objects.append((source.fields, LAYER_KEYS | ORDINARY_KEYS | set(known) | set(nested)))
    for fields, keys in objects:
        empty = {name for name in fields.values if not fields.has(name)}  # older files list every default as null
        warn_of_unknown(source, fields, {*keys, *options, *empty})
        _refuse_options(source, fields, options)


def _refuse_options(source: DrafterSource, fields: Fields, options: Mapping[str, JsonValue]) -> None:
    for name, neutral in options.items():
        value = fields.values.get(name)
        if value is not None and (isinstance(value, bool) is not isinstance(neutral, bool) or value != neutral):
            found = f"{name} {str(value)[:80]} is not supported"
            source.fault("D132", found, needed=str(neutral), name=name)

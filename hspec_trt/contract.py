# SPDX-License-Identifier: Apache-2.0
"""Step contract, version 1: engine inputs and outputs by name, and the custom ops.

Everything that the graph, a session, a plugin and a C++ runtime must agree on is written here once. The C++ header
in ``plugins/include/hspec_trt`` is generated from this module. It knows nothing of models or backends.

Named dimensions of one step:

====  ==============================================================================================================
N     packed tokens of all rows (tokens at or beyond ``cu_query_lens[R]`` are padding: they write to page 0 only)
R     rows (requests)
T     tokens of the longest row
K     rows of logits wanted, at least 1 (those at or beyond ``cu_verify_lens[R]`` are padding)
D     rows to draft for, 0 when drafting is off in this step
G     drafts a row may carry (engine constant); verify width is G + 1
M     pages of the longest row in this step
P     pages of the pool; page 0 is never allocated
V     vocabulary of the target
E     edited logits; L, J: rows of logits with a token mask, or whose C most likely tokens are wanted (`EXTENSIONS`)
====  ==============================================================================================================
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field, replace
from typing import Final, Literal

CONTRACT_VERSION: Final = 1
OP_DOMAIN: Final = "hspec_trt"
OP_VERSION: Final = 1
PLUGIN_VERSION: Final = "1"

PAGE_SIZES: Final = (16, 32, 64, 128)
NULL_PAGE: Final = 0
"""A page that no request owns: padding reads and writes it."""

KV_DTYPE: Final = "kv"
"""Stands for the engine's own type (float32, float16 or bfloat16) in a `TensorSpec`."""


@dataclass(frozen=True)
class TensorSpec:
    """One engine input or output.

    Attributes:
        dims: named dims (see the module) or fixed sizes, in order; ``G+1`` is the verify width.
        dtype: a name of `hspec_trt.dtypes`, or `KV_DTYPE`.
    """

    name: str
    dtype: str
    dims: tuple[str, ...]
    doc: str


STEP_INPUTS: Final = (
    TensorSpec("input_ids", "int32", ("N",), "tokens of all rows, one row after the other"),
    TensorSpec("cu_query_lens", "int32", ("R+1",), "start of each row in input_ids; an idle row is empty"),
    TensorSpec("context_lens", "int32", ("R",), "tokens of the row already committed to the pages"),
    TensorSpec("query_slots", "int32", ("R", "T"), "packed index of token t of row r; padding is any valid index"),
    TensorSpec("verify_rows", "int32", ("K",), "packed indices whose logits are wanted, row after row"),
    TensorSpec("cu_verify_lens", "int32", ("R+1",), "start of each row in verify_rows; length is drafts + 1, or 0"),
    TensorSpec("draft_rows", "int32", ("D",), "rows to draft for, each with at least one verify row"),
    TensorSpec("page_table", "int32", ("R", "M"), "pages of each row in order; unused entries are page 0"),
    TensorSpec("temperature", "float32", ("R",), "0 is greedy"),
    TensorSpec("top_p", "float32", ("R",), "1 is off"),
    TensorSpec("min_p", "float32", ("R",), "0 is off"),
    TensorSpec("top_k", "int32", ("R",), "0 is off"),
    TensorSpec("seed", "int64", ("R",), "0 <= seed < 2**63"),
)

STEP_OUTPUTS: Final = (
    TensorSpec("emitted_ids", "int32", ("R", "G+1"), "accepted drafts, then the bonus token, then -1"),
    TensorSpec("emitted_lens", "int32", ("R",), "0 (idle or in mid-prefill) to G + 1"),
    TensorSpec("emitted_logprobs", "float32", ("R", "G+1"), "log-probability under the target's raw distribution"),
    TensorSpec("draft_ids", "int32", ("D", "G"), "drafts for the next step, one line per entry of draft_rows"),
    TensorSpec("finite", "bool", ("R",), "false where a verify row had a non-finite logit"),
)

NEXT_IDS: Final = TensorSpec(
    "next_ids", "int32", ("R",), "token that follows the row's last one where it is known (mid-prefill), else any id"
)
"""Further input of engines whose drafter pairs a token with the target's state of the one before."""

DRAFT_CONFIDENCE: Final = TensorSpec(
    "draft_confidence", "float32", ("D", "G"), "chance that each draft is accepted, given that those before it are"
)
"""Further output of engines built to give it."""


@dataclass(frozen=True)
class Extension:
    """Step inputs and outputs that an engine may be built with beyond those above; the manifest lists it by name."""

    name: str
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...] = ()


MAX_TOP_LOGPROBS: Final = 20
"""C: most likely tokens that the extension ``top_logprobs`` reports for a row of logits."""

EXTENSIONS: Final = {
    extension.name: extension
    for extension in (
        Extension(  # E edits of logits, before temperature and filters; log-probabilities stay the raw distribution's
            "logit_edits",
            inputs=(
                TensorSpec("edit_rows", "int32", ("E",), "entry of verify_rows; a pair of row and token stands once"),
                TensorSpec("edit_ids", "int32", ("E",), "token id"),
                TensorSpec("edit_scales", "float32", ("E",), "divides a positive logit, multiplies a negative one"),
                TensorSpec("edit_biases", "float32", ("E",), "added after the scale"),
            ),
        ),
        Extension(  # L rows of logits from which only some tokens may be drawn
            "token_masks",
            inputs=(
                TensorSpec("mask_rows", "int32", ("L",), "entry of verify_rows, each once"),
                TensorSpec("token_masks", "bool", ("L", "V"), "false: the token cannot be drawn"),
            ),
        ),
        Extension(  # J rows of logits whose most likely tokens are wanted
            "top_logprobs",
            inputs=(TensorSpec("top_rows", "int32", ("J",), "entry of verify_rows"),),
            outputs=(
                TensorSpec("top_ids", "int32", ("J", "C"), "most likely tokens of the raw distribution, best first"),
                TensorSpec("top_logprobs", "float32", ("J", "C"), "their log-probabilities"),
            ),
        ),
        Extension(  # inputs of the next step where all rows are drafted for: no host need know them first
            "feedback",
            inputs=(),
            outputs=(
                TensorSpec("next_input_ids", "int32", ("D", "G+1"), "the row's last emitted token, then its drafts"),
                TensorSpec("next_context_lens", "int32", ("R",), "context_lens after this step"),
            ),
        ),
    )
}

_KV_DIMS: Final = ("P", "2", "kv_heads", "page_size", "head_dim")
_DRAFT_KV_DIMS: Final = ("P", "2", "draft_kv_heads", "page_size", "draft_head_dim")


def kv_pages(layer: int, *, drafter: bool = False) -> TensorSpec:
    """The pool that holds K (index 0) and V (index 1) of one layer, updated in place.

    Args:
        layer: 0-based layer number, of the target or (``drafter=True``) of the drafter's own attention layers.
    """
    name = f"draft_kv_pages.{layer}" if drafter else f"kv_pages.{layer}"
    return TensorSpec(name, KV_DTYPE, _DRAFT_KV_DIMS if drafter else _KV_DIMS, "K and V pages of one layer")


def kv_pages_out(layer: int, *, drafter: bool = False) -> TensorSpec:
    """The output that aliases `kv_pages` of the same layer."""
    name = f"draft_kv_pages_out.{layer}" if drafter else f"kv_pages_out.{layer}"
    return TensorSpec(name, KV_DTYPE, _DRAFT_KV_DIMS if drafter else _KV_DIMS, "aliases the input pages")


AttrType = Literal["int", "float"]


@dataclass(frozen=True)
class Operand:
    """Type and shape of one input or output of a custom op.

    Attributes:
        dtype: a name of `hspec_trt.dtypes`, or `KV_DTYPE` (the same type wherever it stands in one op).
        dims: in order; each is a sum of products of attributes, whole numbers and sizes of the call (``N``, ``R``).
    """

    dtype: str
    dims: tuple[str, ...]


def _operand(dtype: str, dims: str) -> Operand:
    return Operand(dtype, tuple(dims.split()))


@dataclass(frozen=True)
class OpSpec:
    """One custom op of domain `OP_DOMAIN`.

    Attributes:
        inputs, outputs: formal names in order; all are always given.
        operands: type and shape of each input and output.
        attributes: name to type; all are always given. Integers fit 32 bits (plugin fields carry no more).
        aliased: output name to the input whose memory it shares.
    """

    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    operands: dict[str, Operand]
    attributes: dict[str, AttrType] = field(default_factory=dict)
    aliased: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if (*self.inputs, *self.outputs) != tuple(self.operands):
            raise ValueError(f"{self.name}: operands must be the inputs and outputs, in order")


PAGED_ATTENTION: Final = OpSpec(
    "PagedAttention",
    inputs=(
        "query",
        "key",
        "value",
        "kv_pages",
        "cu_query_lens",
        "context_lens",
        "page_table",
        "query_slots",
        "token_rows",  # the row of each packed token; R for padding
        "token_positions",  # position of each packed token in its sequence
    ),
    outputs=("output", "kv_pages_out"),
    operands={
        "query": _operand(KV_DTYPE, "N num_heads head_dim"),
        "key": _operand(KV_DTYPE, "N num_kv_heads head_dim"),
        "value": _operand(KV_DTYPE, "N num_kv_heads head_dim"),
        "kv_pages": _operand(KV_DTYPE, "P 2 num_kv_heads page_size head_dim"),
        "cu_query_lens": _operand("int32", "R+1"),
        "context_lens": _operand("int32", "R"),
        "page_table": _operand("int32", "R M"),
        "query_slots": _operand("int32", "R T"),
        "token_rows": _operand("int32", "N"),
        "token_positions": _operand("int32", "N"),
        "output": _operand(KV_DTYPE, "N num_heads head_dim"),
        "kv_pages_out": _operand(KV_DTYPE, "P 2 num_kv_heads page_size head_dim"),
    },
    attributes={
        "num_heads": "int",
        "num_kv_heads": "int",
        "head_dim": "int",
        "page_size": "int",
        "scale": "float",
        "window": "int",  # 0: none; W: a query at position t sees positions > t - W
    },
    aliased={"kv_pages_out": "kv_pages"},
)

APPEND_KV: Final = OpSpec(
    # The first half of PagedAttention alone: a drafter's cache is filled from other states than its queries.
    "AppendKv",
    inputs=("key", "value", "kv_pages", "page_table", "token_rows", "token_positions"),
    outputs=("kv_pages_out",),
    operands={
        "key": _operand(KV_DTYPE, "N num_kv_heads head_dim"),
        "value": _operand(KV_DTYPE, "N num_kv_heads head_dim"),
        "kv_pages": _operand(KV_DTYPE, "P 2 num_kv_heads page_size head_dim"),
        "page_table": _operand("int32", "R M"),
        "token_rows": _operand("int32", "N"),
        "token_positions": _operand("int32", "N"),
        "kv_pages_out": _operand(KV_DTYPE, "P 2 num_kv_heads page_size head_dim"),
    },
    attributes={"num_kv_heads": "int", "head_dim": "int", "page_size": "int"},
    aliased={"kv_pages_out": "kv_pages"},
)

SHARED_KV_ATTENTION: Final = OpSpec(
    # Block slot k sits at position prefix_lens + k. Pages are read only (positions < prefix_lens).
    "SharedKvAttention",
    inputs=(
        "query",
        "key",
        "value",
        "kv_pages",  # the target layer's kv_pages_out
        "page_table",
        "prefix_lens",  # with no_context = 1 nothing of the pages is read
    ),
    outputs=("output",),
    operands={
        "query": _operand(KV_DTYPE, "D B num_heads head_dim"),
        "key": _operand(KV_DTYPE, "D B num_kv_heads head_dim"),
        "value": _operand(KV_DTYPE, "D B num_kv_heads head_dim"),
        "kv_pages": _operand(KV_DTYPE, "P 2 num_kv_heads page_size head_dim"),
        "page_table": _operand("int32", "D M"),
        "prefix_lens": _operand("int32", "D"),
        "output": _operand(KV_DTYPE, "D B num_heads head_dim"),
    },
    attributes={
        "num_heads": "int",
        "num_kv_heads": "int",
        "head_dim": "int",
        "page_size": "int",
        "scale": "float",
        "window": "int",  # 0: none; W: slot k sees positions > prefix_lens + k - W
        "causal": "int",  # 1: slot k sees block slots <= k; 0: the whole block
        "no_context": "int",  # 1: attend inside the block only (ablation disable_target_kv_reuse)
    },
)

MAMBA2_BLOCK_SCAN: Final = OpSpec(
    # Zero conv history; computed in float32.
    "Mamba2BlockScan",
    inputs=("xbc", "dt", "conv_weight", "conv_bias", "dt_bias", "a_log", "d", "state"),
    outputs=("output",),
    operands={
        "xbc": _operand(KV_DTYPE, "D block_size num_heads*head_dim+2*n_groups*state_size"),
        "dt": _operand(KV_DTYPE, "D block_size num_heads"),
        "conv_weight": _operand(KV_DTYPE, "num_heads*head_dim+2*n_groups*state_size 1 conv_kernel"),
        "conv_bias": _operand(KV_DTYPE, "num_heads*head_dim+2*n_groups*state_size"),
        "dt_bias": _operand("float32", "num_heads"),
        "a_log": _operand("float32", "num_heads"),
        "d": _operand("float32", "num_heads"),
        "state": _operand("float32", "D num_heads head_dim state_size"),
        "output": _operand(KV_DTYPE, "D block_size num_heads*head_dim"),
    },
    attributes={
        "num_heads": "int",
        "head_dim": "int",
        "state_size": "int",
        "n_groups": "int",
        "conv_kernel": "int",
        "block_size": "int",
    },
)

SAMPLE_TOKENS: Final = OpSpec(
    "SampleTokens",
    inputs=(
        "logits",
        "token_ids",  # the target id of each column
        "row_ids",
        "positions",
        "temperature",
        "top_p",
        "min_p",
        "top_k",
        "seed",
    ),
    outputs=(
        "ids",  # target ids
        "logprobs",  # under the raw distribution (temperature 1, unfiltered)
        "finite",
    ),
    operands={
        "logits": _operand("float32", "K V"),
        "token_ids": _operand("int32", "V"),
        "row_ids": _operand("int32", "K"),
        "positions": _operand("int32", "K"),
        "temperature": _operand("float32", "R"),
        "top_p": _operand("float32", "R"),
        "min_p": _operand("float32", "R"),
        "top_k": _operand("int32", "R"),
        "seed": _operand("int64", "R"),
        "ids": _operand("int32", "K"),
        "logprobs": _operand("float32", "K"),
        "finite": _operand("bool", "K"),
    },
)

ANCHOR_WINDOW_ATTENTION: Final = replace(SHARED_KV_ATTENTION, name="AnchorWindowAttention")
"""SharedKvAttention with the window of training: every slot sees positions >= prefix_lens - W and its whole block (or
the slots up to itself). For comparison with trained behaviour."""

FUNCTION_OPS: Final = {op.name: op for op in (ANCHOR_WINDOW_ATTENTION,)}
"""Ops that are functions of standard ops only: no backend has a kernel for them."""

OPS: Final = {op.name: op for op in (PAGED_ATTENTION, APPEND_KV, SHARED_KV_ATTENTION, MAMBA2_BLOCK_SCAN, SAMPLE_TOKENS)}

# The counter-based noise g(seed, position, token id). All arithmetic modulo NOISE_PRIME in 64-bit integers, where
# cubing is a permutation (the prime is 2 modulo 3). cube(x) = ((x * x mod P) * x) mod P. Per logits row:
#   k  = cube(seed mod P + C1); k = cube(k + (seed div 65536) mod P + C2); k = cube(k + position + C3)
#   m  = cube(k + C1);          k3 = cube(m + C2)
# and per token: x = cube((token_id * (m + 1) + k) mod P); x = cube(x + k3)
#   u  = ((x div 256) + 0.5) * 2**-23;  noise = -log(-log(u))        (each sum is reduced modulo P first)
NOISE_PRIME: Final = 2147483579
NOISE_C1: Final = 1540483477
NOISE_C2: Final = 1103515245
NOISE_C3: Final = 826366247
NOISE_UNIT: Final = 2.0**-23

# Filters act on z = (logit - max) / temperature. A threshold is searched in [FILTER_FLOOR, 0]; tokens below it are out.
FILTER_FLOOR: Final = -40.0
MAX_VOCAB_SIZE: Final = 262_144


def ops_digest() -> str:
    """First 16 hex digits of the SHA-256 of all that a kernel must agree on; a plugin library carries the same."""
    noise = (NOISE_PRIME, NOISE_C1, NOISE_C2, NOISE_C3, NOISE_UNIT, FILTER_FLOOR)
    text = repr((CONTRACT_VERSION, OP_VERSION, PLUGIN_VERSION, sorted(OPS.items()), noise))
    return hashlib.sha256(text.encode()).hexdigest()[:16]

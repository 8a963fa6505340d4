# SPDX-License-Identifier: Apache-2.0
"""PagedAttention and SharedKvAttention as functions, against attention written token by token in float64."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from tests.support.op_body import Arrays, run_op
from tests.support.tolerance import assert_close, assert_golden

PAGE = 4


@dataclass(frozen=True)
class Shape:
    heads: int
    kv_heads: int
    head_dim: int = 8

    @property
    def attributes(self) -> dict[str, int | float]:
        return {
            "num_heads": self.heads,
            "num_kv_heads": self.kv_heads,
            "head_dim": self.head_dim,
            "page_size": PAGE,
            "scale": self.head_dim**-0.5,
        }


SHAPES = (Shape(4, 2), Shape(3, 3), Shape(6, 1))


def attend(query: np.ndarray, keys: np.ndarray, values: np.ndarray, visible: np.ndarray) -> np.ndarray:
    """One query [heads, d] over keys and values [kv_heads, S, d] where visible [S]."""
    heads, kv_heads = query.shape[0], keys.shape[0]
    out = np.empty_like(query, dtype=np.float64)
    for head in range(heads):
        kv = head // (heads // kv_heads)
        scores = keys[kv].astype(np.float64) @ query[head].astype(np.float64) / np.sqrt(query.shape[1])
        weights = np.where(visible, np.exp(scores - scores[visible].max()), 0.0)
        out[head] = weights @ values[kv].astype(np.float64) / weights.sum()
    return out


@dataclass
class Step:
    """Rows of given contexts and query lengths (an idle row has none), with padding tokens at the end."""

    shape: Shape
    contexts: tuple[int, ...]
    lens: tuple[int, ...]
    padding: int = 0
    spare_pages: int = 0

    def __post_init__(self) -> None:
        self.rng = np.random.default_rng(7)
        num_rows = len(self.lens)
        most = max(c + n for c, n in zip(self.contexts, self.lens, strict=True))
        self.num_pages_per_row = -(-most // PAGE) + self.spare_pages
        order = 1 + self.rng.permutation(num_rows * self.num_pages_per_row)
        self.table = order.reshape(num_rows, -1).astype(np.int32)
        self.pages = self._random(1 + order.size, 2, self.shape.kv_heads, PAGE, self.shape.head_dim)

    def _random(self, *dims: int) -> np.ndarray:
        return self.rng.normal(size=dims).astype(np.float32)

    def inputs(self) -> Arrays:
        shape, num_tokens = self.shape, sum(self.lens) + self.padding
        cu = np.concatenate([[0], np.cumsum(self.lens)]).astype(np.int32)
        rows = np.repeat(np.arange(len(self.lens)), self.lens)
        positions = np.concatenate([c + np.arange(n) for c, n in zip(self.contexts, self.lens, strict=True)])
        slots = np.zeros((len(self.lens), max(self.lens)), np.int32)
        for row, length in enumerate(self.lens):
            slots[row, :length] = cu[row] + np.arange(length)
        pad = (0, self.padding)
        return {
            "query": self._random(num_tokens, shape.heads, shape.head_dim),
            "key": self._random(num_tokens, shape.kv_heads, shape.head_dim),
            "value": self._random(num_tokens, shape.kv_heads, shape.head_dim),
            "kv_pages": self.pages,
            "cu_query_lens": cu,
            "context_lens": np.array(self.contexts, np.int32),
            "page_table": self.table,
            "query_slots": slots,
            "token_rows": np.pad(rows, pad, constant_values=len(self.lens)).astype(np.int32),
            "token_positions": np.pad(positions, pad).astype(np.int32),
        }

    def reference(self, inputs: Arrays, window: int) -> tuple[np.ndarray, np.ndarray]:
        """Output of the real tokens, and the pages but for the null page."""
        pages = self.pages.copy()
        tokens = range(sum(self.lens))
        for token in tokens:
            row, position = inputs["token_rows"][token], inputs["token_positions"][token]
            page = self.table[row, position // PAGE]
            pages[page, 0, :, position % PAGE] = inputs["key"][token]
            pages[page, 1, :, position % PAGE] = inputs["value"][token]
        outputs = []
        for token in tokens:
            row, position = inputs["token_rows"][token], inputs["token_positions"][token]
            keys, values = (np.concatenate(list(pages[self.table[row], part]), axis=1) for part in (0, 1))
            at = np.arange(keys.shape[1])
            visible = (at <= position) & ((at > position - window) if window else True)
            outputs.append(attend(inputs["query"][token], keys, values, visible))
        return np.array(outputs), pages[1:]


STEPS = {
    "one token": ((0,), (1,), 0, 0),
    "prompt": ((0,), (11,), 0, 0),
    "full page": ((3,), (5,), 0, 2),
    "mixed": ((0, 9, 4, 17), (6, 1, 0, 3), 0, 1),
    "padding": ((2, 7), (3, 2), 4, 0),
}


@pytest.mark.parametrize("window", [0, 1, 5])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("name", STEPS)
def test_paged_attention(name: str, shape: Shape, window: int) -> None:
    step = Step(shape, *STEPS[name])
    inputs = step.inputs()
    out = run_op("PagedAttention", inputs, **shape.attributes, window=window)
    want, pages = step.reference(inputs, window)
    assert_close(out["output"][: len(want)], want, what=name)
    assert (out["kv_pages_out"][1:] == pages).all()
    assert out["output"].shape == inputs["query"].shape
    assert np.isfinite(out["output"]).all()


def block_reference(inputs: Arrays, *, window: int, causal: bool, no_context: bool) -> np.ndarray:
    out = np.empty(inputs["query"].shape, np.float64)
    rows, block = out.shape[:2]
    for row in range(rows):
        prefix = int(inputs["prefix_lens"][row])
        pages = inputs["kv_pages"][inputs["page_table"][row]]
        keys, values = (
            np.concatenate([*pages[:, part], inputs[name][row].transpose(1, 0, 2)], axis=1)
            for part, name in ((0, "key"), (1, "value"))
        )
        length = len(pages) * PAGE
        context, slots = np.arange(length), np.arange(block)
        for slot in range(block):
            position = prefix + slot
            seen = (context < prefix) & ((context > position - window) if window else True) & (not no_context)
            own = ((slots <= slot) | (not causal)) & ((slots > slot - window) if window else True)
            out[row, slot] = attend(inputs["query"][row, slot], keys, values, np.concatenate([seen, own]))
    return out


@pytest.mark.parametrize(
    "window, causal, no_context", [(0, 0, 0), (0, 1, 0), (6, 1, 0), (3, 1, 0), (0, 0, 1), (3, 1, 1)]
)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_shared_kv_attention(shape: Shape, window: int, causal: int, no_context: int) -> None:
    rng = np.random.default_rng(11)
    rows, block, num_pages = 3, 5, 4

    def random(*dims: int) -> np.ndarray:
        return rng.normal(size=dims).astype(np.float32)

    inputs: Arrays = {
        "query": random(rows, block, shape.heads, shape.head_dim),
        "key": random(rows, block, shape.kv_heads, shape.head_dim),
        "value": random(rows, block, shape.kv_heads, shape.head_dim),
        "kv_pages": random(20, 2, shape.kv_heads, PAGE, shape.head_dim),
        "page_table": rng.permutation(np.arange(1, 20))[: rows * num_pages].reshape(rows, -1).astype(np.int32),
        "prefix_lens": np.array([1, 16, 7], np.int32),
    }
    attributes = shape.attributes | {"window": window, "causal": causal, "no_context": no_context}
    out = run_op("SharedKvAttention", inputs, **attributes)["output"]
    want = block_reference(inputs, window=window, causal=bool(causal), no_context=bool(no_context))
    assert_golden(out, want, "attention")

    nothing = {name: values if name == "kv_pages" else values[:0] for name, values in inputs.items()}
    assert run_op("SharedKvAttention", nothing, **attributes)["output"].shape == (0, *out.shape[1:])

# SPDX-License-Identifier: Apache-2.0
"""Head and embedding: tied, stored twice, different; more or fewer rows than the vocabulary; element types."""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from hspec_trt.checkpoint.target import load_target
from tests.support.faults import codes_of, report_of
from tests.support.tiny_models import DROP, TinyTarget, edit_config, random_weights, write_target

EMBEDDING, HEAD = "model.embed_tokens.weight", "lm_head.weight"
UP = "model.layers.0.mlp.up_proj.weight"


def test_tied_head_is_absent(tmp_path: Path) -> None:
    opened = load_target(write_target(tmp_path, TinyTarget(tied=True)))
    assert opened.config.tie_word_embeddings and HEAD not in opened.tensors


@pytest.mark.parametrize("stored", [np.float32, np.float16])
def test_tied_head_that_is_stored_too(tmp_path: Path, stored: type) -> None:
    weights = random_weights(TinyTarget(tied=True))
    weights[EMBEDDING] = weights[EMBEDDING].astype(np.float16).astype(np.float32)
    weights[HEAD] = weights[EMBEDDING].astype(stored)
    opened = load_target(write_target(tmp_path, TinyTarget(tied=True), weights))
    assert opened.config.tie_word_embeddings and HEAD not in opened.tensors


def test_tied_head_that_differs(tmp_path: Path) -> None:
    """Case A10."""
    weights = random_weights(TinyTarget(tied=True))
    weights[HEAD] = weights[EMBEDDING].copy()
    weights[HEAD][60, 63] += 1
    report = report_of(lambda: load_target(write_target(tmp_path, TinyTarget(tied=True), weights)))
    norms = [f"{np.linalg.norm(weights[name].astype(np.float64)):.6g}" for name in (HEAD, EMBEDDING)]
    assert report.startswith("error[C024]") and f"norms {norms[0]} and {norms[1]}" in report


def test_tied_head_of_another_shape(tmp_path: Path) -> None:
    weights = random_weights(TinyTarget(tied=True))
    weights[HEAD] = np.zeros((64, 64), np.float32)
    assert codes_of(lambda: load_target(write_target(tmp_path, TinyTarget(tied=True), weights))) == ["C024"]


def test_head_of_its_own_where_nothing_is_said(tmp_path: Path) -> None:
    folder = write_target(tmp_path)
    edit_config(folder, tie_word_embeddings=DROP)
    opened = load_target(folder)
    assert HEAD in opened.tensors and not opened.config.tie_word_embeddings


def test_more_rows_than_the_vocabulary(tmp_path: Path) -> None:
    for tied in (False, True):
        config = load_target(write_target(tmp_path / str(tied), TinyTarget(embedding_rows=64, tied=tied))).config
        assert (config.vocab_size, config.embedding_rows) == (61, 64)


def test_fewer_rows_than_the_vocabulary(tmp_path: Path) -> None:
    """Case A16."""
    report = report_of(lambda: load_target(write_target(tmp_path / "tiny", TinyTarget(embedding_rows=60))))
    needed = "needed: at least vocab_size, 61"
    assert report == f"error[C034]: model.embed_tokens.weight has 60 rows; {needed} (tiny)"


def test_head_with_other_rows_than_the_embedding(tmp_path: Path) -> None:
    weights = random_weights(TinyTarget())
    weights[HEAD] = np.zeros((64, 64), np.float32)
    report = report_of(lambda: load_target(write_target(tmp_path, weights=weights)))
    assert report.startswith("error[C022]: lm_head.weight has shape [64, 64]; needed: [61, 64]")


@pytest.mark.parametrize("shape", [(61,), (61, 64, 1), (0, 64), ()])
def test_embedding_of_a_strange_shape(tmp_path: Path, shape: tuple[int, ...]) -> None:
    weights = random_weights(TinyTarget()) | {EMBEDDING: np.zeros(shape, np.float32)}
    assert set(codes_of(lambda: load_target(write_target(tmp_path, weights=weights)))) <= {"C022", "C034"}


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float64])
def test_mixed_float_types_are_noted(tmp_path: Path, dtype: type) -> None:
    """Case A22."""
    weights = random_weights(TinyTarget())
    weights[UP] = weights[UP].astype(dtype)
    opened = load_target(write_target(tmp_path, weights=weights))
    name = np.dtype(dtype).name
    note = f"weights are stored in several types (38 float32, 1 {name}), e.g. {UP} in {name}; all are cast"
    assert opened.warnings == (note,)
    assert opened.tensors[UP].read().dtype == dtype


@pytest.mark.parametrize("dtype", [np.int64, np.int8, np.uint8, np.bool_])
def test_integer_as_a_weight(tmp_path: Path, dtype: type) -> None:
    """Case A22."""
    weights = random_weights(TinyTarget())
    weights[UP] = weights[UP].astype(dtype)
    report = report_of(lambda: load_target(write_target(tmp_path, weights=weights)))
    assert report.startswith(f"error[C025]: {UP} is stored as {np.dtype(dtype).name}")

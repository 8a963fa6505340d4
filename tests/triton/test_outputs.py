# SPDX-License-Identifier: Apache-2.0
"""Pieces of answers to output tensors: which are sent, and their shapes, types and values."""

from __future__ import annotations

import numpy as np
import pytest

from hspec_trt.serving.triton.outputs import (
    ENSEMBLE_OUTPUTS,
    FINISH_REASONS,
    TEXT_OUTPUTS,
    TOKEN_OUTPUTS,
    Output,
    Writing,
    write_response,
)
from hspec_trt.serving.triton.requests import ResponseOptions
from hspec_trt.serving.triton.results import Ending, Piece
from hspec_trt.serving.triton.tensors import NUMPY_TYPES, Array

TEXT = Writing(TEXT_OUTPUTS, batched=True)
FLAT = Writing(TEXT_OUTPUTS, batched=False)
TOKENS = Writing(TOKEN_OUTPUTS, batched=True, complete=True)
ALL_FLAGS = ResponseOptions(
    log_probs=True, perf_metrics=True, num_input_tokens=True, num_output_tokens=True, token_ids=True
)
ENDING = Ending(
    reason="stop_string",
    stop="END",
    num_input_tokens=70,
    num_output_tokens=3,
    reused_pages=1,
    total_pages=2,
    arrived=1.0,
    scheduled=1.5,
    first_token=2.0,
    last_token=2.25,
    drafted=8,
    accepted=2,
    accepted_length=1.5,
)
GOES_ON = Piece(0, 0, "né", (4, 5), (-0.5, -0.25))
ENDS = Piece(0, 0, "!", (6,), (-1.0,), ENDING)


def write(
    pieces: list[Piece],
    options: ResponseOptions = ResponseOptions(),  # noqa: B008  (frozen)
    named: frozenset[str] = frozenset(),
    writing: Writing = TEXT,
) -> dict[str, Array]:
    response = write_response(pieces, options, named, writing)
    assert all(array.dtype == np.dtype(NUMPY_TYPES[tensor.dtype]) for tensor, array in response)
    return {tensor.name: array for tensor, array in response}


def test_text_that_goes_on_brings_only_what_clients_need() -> None:
    sent = write([GOES_ON])
    assert set(sent) == {"text_output", "batch_index", "sequence_index"}
    assert sent["text_output"].tolist() == ["né".encode()]
    assert sent["batch_index"].tolist() == [[0]]


def test_an_ending_says_why() -> None:
    sent = write([ENDS])
    assert set(sent) == {"text_output", "batch_index", "sequence_index", "finish_reason", "stop_reason"}
    assert sent["finish_reason"].tolist() == [b"stop"]
    assert sent["stop_reason"].tolist() == [b"END"]


def test_figures_come_with_the_ending_where_flags_ask_for_them() -> None:
    assert "acceptance_rate" not in write([GOES_ON], ALL_FLAGS)
    sent = write([ENDS], ALL_FLAGS)
    assert set(sent) == {output.tensor.name for output in TEXT_OUTPUTS}
    figures = {
        "kv_cache_alloc_new_blocks": 1,
        "kv_cache_reused_blocks": 1,
        "kv_cache_alloc_total_blocks": 2,
        "arrival_time_ns": 1_000_000_000,
        "first_scheduled_time_ns": 1_500_000_000,
        "first_token_time_ns": 2_000_000_000,
        "last_token_time_ns": 2_250_000_000,
        "acceptance_rate": 0.25,
        "total_accepted_draft_tokens": 2,
        "total_draft_tokens": 8,
        "accepted_length": 1.5,
        "num_input_tokens": 70,
        "num_output_tokens": 3,
    }
    assert {name: sent[name].tolist() for name in figures} == {name: [[value]] for name, value in figures.items()}


def test_outputs_asked_for_by_name_need_no_flag() -> None:
    named = frozenset({"acceptance_rate", "text_output"})
    assert set(write([ENDS], named=named)) == named
    assert set(write([GOES_ON], named=named)) == {"text_output"}


def test_log_probabilities_and_ids_are_padded_to_the_longest_answer() -> None:
    other = Piece(0, 1, "x", (7,), (-2.0,), ENDING)
    sent = write([GOES_ON, other], ALL_FLAGS)
    assert sent["output_log_probs"].tolist() == [[[-0.5, -0.25], [-2.0, 0.0]]]
    assert sent["output_ids"].tolist() == [[[4, 5], [7, 0]]]
    assert sent["cum_log_probs"].tolist() == [[-0.75, -2.0]]
    assert sent["cumulative_logprob"].tolist() == [-0.75, -2.0]


def test_shapes_of_two_prompts_with_two_answers() -> None:
    pieces = [Piece(b, s, f"{b}{s}", (b, s, 1), (0.0, 0.0, 0.0), ENDING) for b in (0, 1) for s in (0, 1)]
    sent = write(pieces, ALL_FLAGS)
    assert sent["text_output"].tolist() == [b"00", b"01", b"10", b"11"]
    assert sent["batch_index"].tolist() == [[0], [0], [1], [1]]
    assert sent["sequence_index"].tolist() == [[0], [1], [0], [1]]
    assert sent["output_ids"].shape == (2, 2, 3)
    assert sent["cum_log_probs"].shape == (2, 2)
    assert sent["acceptance_rate"].shape == (4, 1)


def test_shapes_without_batch_dimension() -> None:
    sent = write([ENDS], ALL_FLAGS, writing=FLAT)
    assert sent["text_output"].shape == sent["finish_reason"].shape == sent["acceptance_rate"].shape == (1,)
    assert sent["cumulative_logprob"].shape == sent["batch_index"].shape == (1,)
    assert sent["output_log_probs"].shape == (1, 1)


def test_a_model_inside_an_ensemble_sends_every_output_every_time() -> None:
    sent = write([GOES_ON], writing=TOKENS)
    assert set(sent) == {output.tensor.name for output in TOKEN_OUTPUTS}
    assert sent["output_ids"].tolist() == [[[4, 5]]]
    assert sent["sequence_length"].tolist() == [[2]]
    assert sent["output_text"].tolist() == [["né".encode()]]
    assert sent["acceptance_rate"].tolist() == [[0.0]]


def test_a_piece_without_tokens() -> None:
    sent = write([Piece(0, 0, "", (), (), ENDING)], writing=TOKENS)
    assert sent["output_ids"].shape == (1, 1, 0)
    assert sent["sequence_length"].tolist() == [[0]]


def test_the_prompt_may_come_before_the_answer() -> None:
    piece = Piece(0, 0, " b", (4,), (-1.0,), ENDING, prompt_text="a", prompt_ids=(2, 3))
    sent = write([piece], ALL_FLAGS, writing=TOKENS)
    assert sent["output_text"].tolist() == [[b"a b"]]
    assert sent["output_ids"].tolist() == [[[2, 3, 4]]]
    assert sent["sequence_length"].tolist() == [[3]]
    assert sent["output_log_probs"].tolist() == [[[-1.0]]], "only new tokens have one"
    assert write([piece])["text_output"].tolist() == [b"a b"]


@pytest.mark.parametrize("outputs", [TEXT_OUTPUTS, TOKEN_OUTPUTS, ENSEMBLE_OUTPUTS])
def test_every_output_stands_once(outputs: tuple[Output, ...]) -> None:
    names = [output.tensor.name for output in outputs]
    assert len(set(names)) == len(names)


def test_no_drafts_no_division() -> None:
    assert Ending("eos").acceptance_rate == 0.0
    assert set(FINISH_REASONS) == {"eos", "stop_token", "stop_string", "length", "cancelled", "error"}

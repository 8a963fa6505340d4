# SPDX-License-Identifier: Apache-2.0
"""Input tensors to prompts and options, for the text model in both forms and for the token model."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from hspec_trt.config.sampling import SamplingParams
from hspec_trt.errors import FaultGroup, RequestError
from hspec_trt.serving.triton import inputs
from hspec_trt.serving.triton.inputs import Use
from hspec_trt.serving.triton.models import hspec_inputs
from hspec_trt.serving.triton.requests import Ask, Reading, ResponseOptions, read_request
from hspec_trt.serving.triton.tensors import Array

WORDS = {"cat": [5], "a dog": [6, 7], "": []}
TEXTS = {(5,): "cat", (6, 7): "a dog", (2,): ""}


def encode(text: str) -> list[int]:
    return WORDS[text]


def decode(ids: object) -> str:
    return TEXTS[tuple(ids)]  # type: ignore[arg-type]


BATCHED = Reading(hspec_inputs("ensemble"), True, encode, decode)
FLAT = Reading(hspec_inputs("llmapi"), False, encode, decode)
TOKENS = Reading((*inputs.TOKEN_PROMPT, *inputs.TOKEN_INPUTS), True, encode, decode)


def strings(*items: object) -> Array:
    return np.array([item.encode() if isinstance(item, str) else item for item in items], np.object_)


def prompts(*items: str) -> Array:
    return strings(*items).reshape(-1, 1)


def one(**named: Array) -> Ask:
    """A request with one prompt for the batched text model: every array gets the batch dimension."""
    (ask,) = read_request({"text_input": prompts("hi"), **{name: a[None] for name, a in named.items()}}, BATCHED)
    return ask


def i32(*items: int) -> Array:
    return np.array(items, np.int32)


def f32(*items: float) -> Array:
    return np.array(items, np.float32)


def flag(value: bool) -> Array:
    return np.array([value])


def code(**named: Array) -> str:
    with pytest.raises(RequestError) as caught:
        one(**named)
    return caught.value.code


def test_unset_options_are_those_of_sampling_params() -> None:
    assert one() == Ask("hi", (), SamplingParams(), ResponseOptions())


def test_every_option_of_the_ensemble() -> None:
    ask = one(
        max_tokens=i32(9),
        bad_words=strings("x"),
        stop_words=strings("END", "b,c"),
        top_k=i32(4),
        top_p=f32(0.5),
        temperature=f32(0.25),
        repetition_penalty=f32(1.5),
        min_tokens=i32(2),
        presence_penalty=f32(0.5),
        frequency_penalty=f32(0.125),
        seed=np.array([2**40], np.uint64),
        num_return_sequences=i32(3),
        end_id=i32(7),
        stream=flag(True),
        return_log_probs=flag(True),
        return_perf_metrics=flag(True),
        return_num_input_tokens=flag(True),
        return_num_output_tokens=flag(True),
        exclude_input_in_output=flag(False),
        embedding_bias_words=strings("cat", "a dog"),
        embedding_bias_weights=f32(2.0, -1.0),
        beam_width=i32(1),
        length_penalty=f32(0.7),
        pad_id=i32(0),
        return_context_logits=flag(False),
    )
    assert ask.params == SamplingParams(
        max_tokens=9,
        bad_words=("x",),
        stop=("END", "b,c"),
        top_k=4,
        top_p=0.5,
        temperature=0.25,
        repetition_penalty=1.5,
        min_tokens=2,
        presence_penalty=0.5,
        frequency_penalty=0.125,
        seed=2**40,
        n=3,
        stop_token_ids=(7,),
        logit_bias=((5, 2.0), (6, -1.0), (7, -1.0)),
    )
    assert ask.response == ResponseOptions(
        stream=True,
        exclude_input=False,
        log_probs=True,
        perf_metrics=True,
        num_input_tokens=True,
        num_output_tokens=True,
    )


def test_every_option_of_the_llmapi_model_without_batch_dimension() -> None:
    (ask,) = read_request(
        {
            "text_input": strings("hi"),
            "streaming": flag(True),
            "sampling_param_best_of": i32(1),
            "sampling_param_temperature": f32(0.0),
            "sampling_param_top_k": i32(1),
            "sampling_param_top_p": f32(0.5),
            "sampling_param_frequency_penalty": f32(0.5),
            "sampling_param_presence_penalty": f32(0.25),
            "sampling_param_max_tokens": i32(5),
            "sampling_param_stop": strings("A", "B"),
            "sampling_param_seed": np.array([3], np.uint64),
            "sampling_param_exclude_input_from_output": flag(True),
            "sampling_param_return_perf_metrics": flag(True),
            "return_finish_reason": flag(True),
            "return_cumulative_logprob": flag(True),
        },
        FLAT,
    )
    assert ask.text == "hi"
    assert ask.params == SamplingParams(
        max_tokens=5,
        temperature=0.0,
        top_k=1,
        top_p=0.5,
        frequency_penalty=0.5,
        presence_penalty=0.25,
        stop=("A", "B"),
        seed=3,
    )
    assert ask.response == ResponseOptions(stream=True, exclude_input=True, perf_metrics=True, log_probs=True)


def test_own_options_and_names_of_older_releases() -> None:
    ask = one(
        min_p=f32(0.25),
        ignore_eos=flag(True),
        drafts=strings("off"),
        draft_source=strings("prompt_lookup"),
        num_draft_tokens=i32(3),
        stop_token_ids=i32(4, 5),
        random_seed=np.array([8], np.uint64),
        min_length=i32(6),
        end_id=i32(9),
    )
    assert ask.params == SamplingParams(
        min_p=0.25,
        ignore_eos=True,
        drafts="off",
        draft_source="prompt_lookup",
        num_drafts=3,
        stop_token_ids=(4, 5, 9),
        seed=8,
        min_tokens=6,
    )


def test_values_that_mean_something_else_in_tensorrt_llm() -> None:
    assert one(top_p=f32(0.0)).params == SamplingParams()
    assert one(top_p=f32(0.0), top_k=i32(1)).params == SamplingParams(top_k=1)
    assert one(top_p=f32(0.0), top_k=i32(0)).params == SamplingParams(temperature=0.0)
    assert one(end_id=i32(-1)).params == SamplingParams(ignore_eos=True)
    assert one(bad_words=strings(""), stop_words=strings("")).params == SamplingParams()


def test_two_names_for_one_option_must_agree() -> None:
    assert one(max_tokens=i32(5), sampling_param_max_tokens=i32(5)).params.max_tokens == 5
    assert code(max_tokens=i32(5), sampling_param_max_tokens=i32(6)) == "R421"


def test_prompts_of_one_request_each_have_their_own_options() -> None:
    asks = read_request(
        {
            "text_input": prompts("a", "b"),
            "max_tokens": np.array([[1], [2]], np.int32),
            "stop_words": np.array([[b"x", b""], [b"y", b"z"]], np.object_),
        },
        BATCHED,
    )
    assert [(ask.text, ask.params.max_tokens, ask.params.stop) for ask in asks] == [
        ("a", 1, ("x",)),
        ("b", 2, ("y", "z")),
    ]


def test_prompts_of_one_request_want_one_kind_of_response() -> None:
    with pytest.raises(RequestError, match="R424"):
        read_request({"text_input": prompts("a", "b"), "stream": np.array([[True], [False]])}, BATCHED)


UNSUPPORTED = {
    "beam_width": i32(4),
    "return_context_logits": flag(True),
    "return_generation_logits": flag(True),
    "prompt_embedding_table": np.ones((2, 3), np.float16),
    "lora_task_id": np.array([7], np.uint64),
    "lora_weights": np.ones((2, 3), np.float16),
    "decoder_text_input": strings("x"),
    "sampling_param_best_of": i32(2),
    "lora_name": strings("x"),
}


@pytest.mark.parametrize("name", UNSUPPORTED)
def test_what_cannot_be_done_is_refused_by_name(name: str) -> None:
    with pytest.raises(RequestError, match=name) as caught:
        one(**{name: UNSUPPORTED[name]})
    assert caught.value.code == "R210"


def test_what_cannot_be_done_is_accepted_where_it_asks_for_nothing() -> None:
    ask = one(
        lora_task_id=np.array([0], np.uint64),
        lora_weights=np.zeros((0, 3), np.float16),
        guided_decoding_guide=strings(""),
        guided_decoding_guide_type=strings(""),
        lora_name=strings(""),
    )
    assert ask.params == SamplingParams()


def test_all_faults_of_a_request_are_reported_together() -> None:
    with pytest.raises(FaultGroup) as caught:
        one(beam_width=i32(4), lora_name=strings("x"), max_tokens=i32(1, 2))
    assert sorted(fault.code for fault in caught.value.faults) == ["R210", "R210", "R422"]


def test_text_that_is_not_utf_8() -> None:
    with pytest.raises(RequestError, match="R423"):
        read_request({"text_input": strings(b"\xff").reshape(1, 1)}, BATCHED)
    assert code(stop_words=strings(b"\xff")) == "R423"


def test_tensors_of_the_wrong_size() -> None:
    with pytest.raises(RequestError, match="R422"):
        read_request({"text_input": prompts("a", "b"), "max_tokens": np.array([[1]], np.int32)}, BATCHED)
    with pytest.raises(RequestError, match="R422"):
        read_request({"text_input": np.zeros((0, 1), np.object_)}, BATCHED)
    with pytest.raises(RequestError, match="R422"):
        read_request({"text_input": strings("a", "b")}, FLAT)
    assert code(embedding_bias_words=strings("cat"), embedding_bias_weights=f32(1.0, 2.0)) == "R422"
    assert code(embedding_bias_words=strings("cat")) == "R422"


def tokens(**named: Array) -> Ask:
    base = {"input_ids": np.array([[3, 4, 0]], np.int32), "input_lengths": i32(2), "request_output_len": i32(6)}
    (ask,) = read_request({**base, **named}, TOKENS)
    return ask


def test_the_token_model_reads_ids_up_to_their_length() -> None:
    ask = tokens()
    assert ask == Ask(None, (3, 4), SamplingParams(max_tokens=6), ResponseOptions())
    with pytest.raises(RequestError, match="R422"):
        tokens(input_lengths=i32(4))


def test_the_token_model_takes_words_as_ids() -> None:
    ask = tokens(
        stop_words_list=np.array([[[5, 6, 7, 2, 0], [1, 3, 4, -1, -1]]], np.int32),
        bad_words_list=np.array([[[6, 7], [2, -1]]], np.int32),
    )
    assert ask.params.stop == ("cat", "a dog")
    assert ask.params.stop_token_ids == (2,), "an id without text stays an id"
    assert ask.params.bad_words == ("a dog",)
    assert tokens(stop_words_list=np.array([[[0], [-1]]], np.int32)).params.stop == ()
    with pytest.raises(RequestError, match="R422"):
        tokens(stop_words_list=np.array([[[5, 6], [3, -1]]], np.int32))
    with pytest.raises(RequestError, match="R422"):
        tokens(bad_words_list=np.array([[[2], [1]]], np.int32))


def test_the_token_model_takes_a_dense_bias() -> None:
    assert tokens(embedding_bias=f32(0, 2, 0, -1)[None]).params.logit_bias == ((1, 2.0), (3, -1.0))
    assert tokens(embedding_bias=np.zeros((1, 0), np.float32)).params.logit_bias == ()


def test_the_token_model_takes_scalars_without_dims_and_its_own_names() -> None:
    ask = tokens(
        runtime_top_k=i32(5),
        runtime_top_p=f32(0.5),
        streaming=flag(True),
        stop=flag(True),
        len_penalty=f32(1.0),
        runtime_top_p_decay=f32(1.0),
    )
    assert ask.params == SamplingParams(max_tokens=6, top_k=5, top_p=0.5)
    assert ask.response == ResponseOptions(stream=True, stop=True)
    with pytest.raises(RequestError, match="draft_input_ids"):
        tokens(draft_input_ids=i32(4)[None])


@pytest.mark.parametrize("reading", [BATCHED, FLAT, TOKENS], ids=["batched", "flat", "tokens"])
def test_tables_name_every_input_once_and_only_fields_that_exist(reading: Reading) -> None:
    names = [spec.tensor.name for spec in reading.inputs]
    assert len(set(names)) == len(names)
    sampling, response = vars(SamplingParams()), vars(ResponseOptions())
    for spec in reading.inputs:
        assert spec.field in {Use.SAMPLING: sampling, Use.RESPONSE: response}.get(spec.use, {"": None})


def test_a_conversation_instead_of_a_text() -> None:
    talk, tools = '[{"role": "user", "content": "Hi"}]', '[{"name": "clock"}]'
    (ask,) = read_request({"messages": prompts(talk), "tools": prompts(tools)}, BATCHED)
    assert (ask.text, ask.messages, ask.tools) == (None, ({"role": "user", "content": "Hi"},), ({"name": "clock"},))
    (ask,) = read_request({"text_input": prompts(""), "messages": prompts(talk)}, BATCHED)
    assert ask.messages
    assert one(messages=strings("")).text == "hi"
    assert code(messages=strings(talk)) == "R421"


@pytest.mark.parametrize("bad", ["[{", "{}", "[1]", '"x"'])
def test_a_conversation_that_is_none(bad: str) -> None:
    with pytest.raises(RequestError, match="R423"):
        read_request({"messages": prompts(bad)}, BATCHED)


def test_a_request_without_a_prompt() -> None:
    with pytest.raises(RequestError, match="R422"):
        read_request({"max_tokens": i32(4)[None]}, BATCHED)
    (ask,) = read_request({"stop": np.array([[True]])}, BATCHED)
    assert ask.response.stop


def test_words_need_a_tokenizer() -> None:
    blind = replace(TOKENS, encode=None, decode_word=None)
    arrays = {"input_ids": i32(3)[None], "input_lengths": i32(1), "request_output_len": i32(6)}
    words = {"stop_words_list": np.array([[[5, 6], [2, -1]]], np.int32)}
    with pytest.raises(RequestError, match="R422"):
        read_request({**arrays, **words}, blind)

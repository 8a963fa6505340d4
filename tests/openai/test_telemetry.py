# SPDX-License-Identifier: Apache-2.0
"""Metrics, logs and the trace of a server that runs: their sums are those of the answers."""

from __future__ import annotations

import json

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.support.openai_server import Server
from tests.support.waiting import wait_until

C = "/v1/completions"
NAMES = """
num_requests_running num_requests_waiting kv_cache_usage_perc kv_cache_pages mean_accepted_length prompt_tokens
generation_tokens prefix_cache_hits num_preemptions request_success spec_decode_num_drafts spec_decode_num_draft_tokens
spec_decode_num_accepted_tokens spec_decode_num_accepted_tokens_per_pos spec_decode_accepted_length steps_without_drafts
engine_steps engine_step_seconds iteration_tokens_total time_to_first_token_seconds inter_token_latency_seconds
e2e_request_latency_seconds request_queue_time_seconds request_prefill_time_seconds request_decode_time_seconds
request_time_per_output_token_seconds request_prompt_tokens request_generation_tokens http_requests
drafting_by_context_steps drafting_by_context_emitted drafting_by_context_drafted drafting_by_context_accepted
build_info
"""


def families(server: Server) -> dict[str, list]:
    text = server.ask("GET", "/metrics").body.decode()
    return {family.name: family.samples for family in text_string_to_metric_families(text)}


def test_every_family_is_there_and_can_be_read(server: Server) -> None:
    server.post(C, {"prompt": "hello", "max_tokens": 12, "drafts": "on"})
    found = {name for name in families(server) if not name.endswith("_created")}
    assert found == {f"hspec_{name}" for name in NAMES.split()}


def test_sums_are_those_of_the_answers(server: Server) -> None:
    names = ("prompt_tokens_total", "generation_tokens_total", "spec_decode_num_draft_tokens_total",
             "spec_decode_num_accepted_tokens_total", "request_success_total", "time_to_first_token_seconds_count",
             "e2e_request_latency_seconds_count", "request_generation_tokens_sum", "request_prompt_tokens_sum",
             "spec_decode_accepted_length_count", "spec_decode_accepted_length_sum",
             "inter_token_latency_seconds_count")  # fmt: skip
    server.wait_until_idle()
    before = {name: server.metric(f"hspec_{name}") for name in names}
    bodies = [
        {"prompt": f"number {seed}", "seed": seed, "max_tokens": 30, "ignore_eos": True, "drafts": "on"}
        for seed in range(5)
    ]
    usages = [server.post(C, body).json["usage"] for body in bodies]
    server.wait_until_idle()
    wait_until(lambda: server.metric("hspec_e2e_request_latency_seconds_count") - before[names[6]] == 5)
    added = {name: server.metric(f"hspec_{name}") - before[name] for name in names}
    prompt = sum(usage["prompt_tokens"] - usage["prompt_tokens_details"]["cached_tokens"] for usage in usages)
    steps = sum(usage["drafts"]["steps"] for usage in usages)
    assert added["prompt_tokens_total"] == prompt
    assert added["generation_tokens_total"] == added["request_generation_tokens_sum"] == 150
    assert added["spec_decode_num_draft_tokens_total"] == sum(usage["drafts"]["verified"] for usage in usages)
    assert added["spec_decode_num_accepted_tokens_total"] == sum(usage["drafts"]["accepted"] for usage in usages)
    assert added["request_success_total"] == added["time_to_first_token_seconds_count"] == 5
    assert added["spec_decode_accepted_length_count"] == steps
    assert added["inter_token_latency_seconds_count"] == steps
    assert added["spec_decode_accepted_length_sum"] == pytest.approx(150 - 5)


def test_histograms_rise_to_their_count(server: Server) -> None:
    server.post(C, {"prompt": "hello", "max_tokens": 12, "drafts": "on"})
    for name, samples in families(server).items():
        buckets = [sample.value for sample in samples if sample.name.endswith("_bucket")]
        if buckets:
            assert buckets == sorted(buckets), name
            assert buckets[-1] == next(sample.value for sample in samples if sample.name.endswith("_count")), name


def test_replies_are_counted(server: Server) -> None:
    before = server.metric("hspec_http_requests_total", handler=C, status="400")
    server.post(C, {"prompt": []})
    assert server.metric("hspec_http_requests_total", handler=C, status="400") == before + 1
    assert server.metric("hspec_http_requests_total", status="200") > 0


def test_log_lines_tell_figures_and_no_text(server: Server) -> None:
    body = {"prompt": "a very private prompt", "max_tokens": 5, "ignore_eos": True}
    server.post(C, body, headers={"x-request-id": "private"})
    wait_until(lambda: any(line["request_id"] == "private" for line in server.lines("request")))
    (line,) = [line for line in server.lines("request") if line["request_id"] == "private"]
    assert (line["path"], line["outcome"], line["new_tokens"]) == (C, "done", 5)
    assert line["prompt_tokens"] == len("a very private prompt")
    assert line["finish_reasons"] == ["length"]
    assert line["seconds"] >= line["first_token_seconds"] > 0
    assert {"time", "level", "logger"} <= set(line)
    assert "private prompt" not in server.log.read_text()
    assert all(json.loads(one) for one in server.log.read_text().splitlines())


def test_the_trace_can_be_read_while_it_is_written(server: Server) -> None:
    path = server.log.with_name("trace.json")
    steps = [event["args"]["step"] for event in json.loads(path.read_text()) if event["name"] == "step"]
    server.post(C, {"prompt": "hello", "max_tokens": 4})
    more = [event["args"]["step"] for event in json.loads(path.read_text()) if event["name"] == "step"]
    assert more[: len(steps)] == steps
    assert len(more) > len(steps)
    assert more == list(range(1, len(more) + 1))

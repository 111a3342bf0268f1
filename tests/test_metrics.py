"""What Prometheus is told: parses, is documented, keeps to the conventions, and balances."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from headrace.serve import metrics
from http_support import GateRunner, Live, serving
from server_process import picture_bytes, until

COUNTS = {
    "headrace_batch_size",
    "headrace_build_info",
    "headrace_ready",
    "headrace_requests_inside",
    "headrace_stage_busy_images",
    "headrace_stage_queue_length",
    "headrace_stage_workers",
}
"""Gauges and histograms of plain numbers, which have no unit to name."""

Labels = frozenset[tuple[str, str]]


@dataclass
class Scrape:
    """One exposition, parsed."""

    types: dict[str, str] = field(default_factory=dict)
    says: dict[str, str] = field(default_factory=dict)
    samples: dict[str, dict[Labels, float]] = field(default_factory=lambda: defaultdict(dict))

    def value(self, sample: str, **labels: str) -> float:
        found = [value for key, value in self.samples[sample].items() if set(labels.items()) <= key]
        assert len(found) == 1, (sample, labels, found)
        return found[0]

    def own(self) -> Iterator[str]:
        return (name for name in self.types if name.startswith("headrace_"))


def scrape(live: Live) -> Scrape:
    text = metrics.render(metrics.exposition(live.engine, live.app.counters, "demo")).decode()
    result = Scrape()
    for family in text_string_to_metric_families(text):
        assert family.name not in result.types, f"{family.name} twice"
        result.types[family.name], result.says[family.name] = family.type, family.documentation
        for sample in family.samples:
            labels = frozenset(sample.labels.items())
            assert labels not in result.samples[sample.name], sample
            result.samples[sample.name][labels] = sample.value
    return result


def traffic(live: Live, runner: GateRunner) -> None:
    """Every kind of end: predictions, a failed model, bytes that are no image, a damaged one, a wrong path and method."""
    good = picture_bytes(600)
    for _ in range(3):
        assert live.post(good).status == 200
    runner.fails = True
    assert live.post(good).status == 500
    runner.fails = False
    assert live.post(b"no image").status == 415
    assert live.post(good[:700]).status == 422
    runner.gate.clear()
    assert live.post(good, x_request_timeout_ms="30").status == 504
    runner.gate.set()
    assert live.get("/nowhere").status == 404
    assert live.get("/predict").status == 405
    until(lambda: live.engine.inside == 0, "every image has ended")


@pytest.fixture(scope="module")
def before_and_after() -> Iterator[tuple[Scrape, Scrape]]:
    runner = GateRunner()
    with serving(runner) as live:
        before = scrape(live)
        traffic(live, runner)
        first = scrape(live)
        traffic(live, runner)
        assert_grown(first, scrape(live))
        yield before, scrape(live)


@pytest.fixture
def after(before_and_after: tuple[Scrape, Scrape]) -> Scrape:
    return before_and_after[1]


def assert_grown(first: Scrape, second: Scrape) -> None:
    """Counters and histograms only grow, and no series of them goes away."""
    for name, kind in first.types.items():
        if kind in ("counter", "histogram"):
            for sample, series in first.samples.items():
                if re.fullmatch(f"{name}(_total|_bucket|_count|_sum)", sample):
                    for labels, value in series.items():
                        assert second.samples[sample][labels] >= value, (sample, labels)


def test_families_are_the_same_before_and_after_traffic(before_and_after: tuple[Scrape, Scrape]) -> None:
    before, after = before_and_after
    assert before.types == after.types
    assert before.says == after.says
    assert_grown(before, after)


def test_every_family_says_what_it_is(after: Scrape) -> None:
    for name in after.own():
        assert re.fullmatch(r".{5,}\.", after.says[name]), (name, after.says[name])


def test_names_follow_the_conventions(after: Scrape) -> None:
    for name, kind in after.types.items():
        assert re.fullmatch(r"(headrace|process)_[a-z_]+", name)
        assert not re.search(r"_(ms|millis|milliseconds|us|kb|mb|percent|count|sum|bucket)$", name), name
        if name.startswith("headrace_") and kind != "counter" and name not in COUNTS:
            assert re.search(r"_(seconds|bytes|ratio)$", name), f"{name} names no unit"
        if kind == "counter":
            assert any(sample == f"{name}_total" for sample in after.samples) or name.startswith("process_")


def test_what_is_a_ratio_is_one(after: Scrape) -> None:
    for name in after.own():
        if name.endswith("_ratio"):
            assert all(0 <= value <= 1 for value in after.samples[name].values())


def test_every_value_is_a_number_that_is_not_negative(after: Scrape) -> None:
    for name, series in after.samples.items():
        for labels, value in series.items():
            assert math.isfinite(value) and value >= 0, (name, labels, value)


def test_every_own_sample_names_the_model_and_few_other_labels(after: Scrape) -> None:
    allowed = {"model", "stage", "direction", "endpoint", "status", "reason", "device", "le"}
    for name, series in after.samples.items():
        if name.startswith("headrace_"):
            for labels in series:
                keys = {key for key, _ in labels}
                assert ("model", "demo") in labels, name
                assert keys <= allowed or name == "headrace_build_info", (name, keys)


def test_series_do_not_grow_with_what_clients_send(live_twice: tuple[int, int]) -> None:
    assert live_twice[0] == live_twice[1]


@pytest.fixture
def live_twice() -> Iterator[tuple[int, int]]:
    with serving(GateRunner()) as live:
        sizes = []
        for turn in range(2):
            for number in range(10):
                assert live.get(f"/unknown/{turn}/{number}").status == 404
            sizes.append(sum(len(series) for series in scrape(live).samples.values()))
        yield sizes[0], sizes[1]


def test_buckets_are_cumulative_and_end_with_the_count(after: Scrape) -> None:
    histograms = [name for name in after.own() if after.types[name] == "histogram"]
    assert len(histograms) >= 6
    for name in histograms:
        by_series: Mapping[Labels, list[tuple[float, float]]] = defaultdict(list)
        for labels, value in after.samples[f"{name}_bucket"].items():
            bound = float(dict(labels)["le"])
            by_series[frozenset(pair for pair in labels if pair[0] != "le")].append((bound, value))
        assert by_series, name
        for labels, buckets in by_series.items():
            buckets.sort()
            counts = [count for _, count in buckets]
            assert counts == sorted(counts), (name, labels)
            assert buckets[-1] == (math.inf, after.samples[f"{name}_count"][labels])
            assert (after.samples[f"{name}_sum"][labels] > 0) <= (counts[-1] > 0)


def stages(found: Scrape) -> set[str]:
    return {dict(labels)["stage"] for labels in found.samples["headrace_stage_workers"]}


def test_books_balance_for_every_stage(after: Scrape) -> None:
    assert stages(after) == {"decode", "resize", "batch", "infer"}
    for stage in stages(after):
        way = {
            direction: after.value("headrace_stage_items_total", stage=stage, direction=direction)
            for direction in ("entered", "left", "failed", "dropped")
        }
        inside = after.value("headrace_stage_queue_length", stage=stage)
        inside += after.value("headrace_stage_busy_images", stage=stage)
        assert way["entered"] == way["left"] + way["failed"] + way["dropped"] + inside, (stage, way)
        assert way["entered"] > 0
    assert after.value("headrace_stage_items_total", stage="decode", direction="failed") == 2
    assert after.value("headrace_stage_items_total", stage="infer", direction="failed") == 2
    assert after.value("headrace_requests_inside") == 0


def test_what_leaves_one_stage_enters_the_next(after: Scrape) -> None:
    order = ("decode", "resize", "batch", "infer")
    for earlier, later in pairwise(order):
        left = after.value("headrace_stage_items_total", stage=earlier, direction="left")
        entered = after.value("headrace_stage_items_total", stage=later, direction="entered")
        assert left == entered, (earlier, later)


def test_durations_are_counted_for_everything_that_was_worked_on(after: Scrape) -> None:
    for stage in stages(after):
        worked = sum(
            after.value("headrace_stage_items_total", stage=stage, direction=direction)
            for direction in ("left", "failed")
        )
        assert after.value("headrace_stage_duration_seconds_count", stage=stage) == worked


def test_requests_balance_and_every_error_has_its_reason(after: Scrape) -> None:
    answers = after.samples["headrace_responses_total"]
    gone = after.value("headrace_requests_gone_total")
    assert after.value("headrace_requests_total") == sum(answers.values()) + gone
    assert after.value("headrace_responses_total", endpoint="predict", status="200") == 6
    errors = sum(value for labels, value in answers.items() if dict(labels)["status"][0] in "45")
    assert errors == 12 == sum(after.samples["headrace_rejected_total"].values())
    for reason in (
        "inference_failed",
        "unsupported_media",
        "undecodable",
        "deadline_exceeded",
        "not_found",
        "method_not_allowed",
    ):
        assert after.value("headrace_rejected_total", reason=reason) >= 2
    for name in ("duration", "fetch", "reply"):
        assert after.value(f"headrace_request_{name}_seconds_count") == 6


def test_batches_hold_every_image_that_reached_the_model(after: Scrape) -> None:
    assert after.value("headrace_batch_size_sum") == after.value(
        "headrace_stage_items_total", stage="infer", direction="entered"
    )


def test_one_image_is_inside_while_the_model_works() -> None:
    runner = GateRunner()
    with serving(runner) as live:
        runner.gate.clear()
        connection = live.connect()
        body = picture_bytes()
        connection.sendall(b"POST /predict HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body))
        connection.sendall(body)
        busy: Any = until(
            lambda: (
                (found := scrape(live)).value("headrace_stage_busy_images", stage="decode") == 0
                and found.value("headrace_stage_items_total", stage="infer", direction="entered") == 1
                and found
            ),
            "the image is with the model",
        )
        assert busy.value("headrace_requests_inside") == 1
        assert busy.value("headrace_ready") == 1
        runner.gate.set()
        until(lambda: scrape(live).value("headrace_requests_inside") == 0, "the image has left")
        connection.close()


def test_it_is_not_ready_while_it_warms_up() -> None:
    with serving(GateRunner(), start=False) as live:
        assert scrape(live).value("headrace_ready") == 0


def test_the_process_shows_its_memory_and_time(after: Scrape) -> None:
    assert after.value("process_resident_memory_bytes") > 2**20
    assert after.value("process_cpu_seconds_total") > 0

"""Prometheus figures: read from the books at the moment of a scrape, so that serving pays next to nothing for them.

Base units, histograms instead of averages, the model as a label. The names are the product's interface; the page
docs/reference/metrics.md lists them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from headrace import __version__
from headrace.core.stats.histogram import BATCH_BOUNDS, Histogram
from headrace.serve.engine.books import BookReading
from headrace.serve.engine.engine import Engine

if TYPE_CHECKING:
    from headrace.serve.http.counters import Counters

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def exposition(engine: Engine, counters: Counters, model: str) -> CollectorRegistry:
    """A registry of everything this server shows."""
    registry = CollectorRegistry()
    registry.register(_EngineFigures(engine, model))
    registry.register(_HttpFigures(counters, model))
    ProcessCollector(registry=registry)
    return registry


def render(registry: CollectorRegistry) -> bytes:
    return generate_latest(registry)


class _EngineFigures(Collector):
    """Stages, batches and the device."""

    def __init__(self, engine: Engine, model: str) -> None:
        self._engine = engine
        self._model = model

    def collect(self) -> Iterator[Metric]:
        readings = [book.read() for book in self._engine.books]
        yield from _stage_histograms(readings, self._model)
        yield from _stage_gauges(readings, self._model)
        yield from _stage_counters(readings, self._model)
        yield from self._device()
        yield from self._state()

    def _device(self) -> Iterator[Metric]:
        runner, labels = self._engine.runner, ["model", "device"]
        busy, values = runner.busy(), [self._model, runner.device]
        for name, says, value in (
            ("headrace_device_busy_seconds", "Time with at least one batch on the device.", busy.busy_s),
            ("headrace_device_launches", "Batches run on the device.", float(busy.launches)),
            ("headrace_device_images", "Images run on the device, warm-up included.", float(busy.images)),
        ):
            family = CounterMetricFamily(name, says, labels=labels)
            family.add_metric(values, value)
            yield family
        share = GaugeMetricFamily(
            "headrace_device_busy_ratio",
            "Share of the last seconds (headrace_device_busy_window_seconds) with a batch on the device.",
            labels=labels,
        )
        window_s, ratio = self._engine.inference.device_busy_share()
        share.add_metric(values, ratio)
        yield share
        window = GaugeMetricFamily(
            "headrace_device_busy_window_seconds",
            "How far back headrace_device_busy_ratio looks.",
            labels=labels,
        )
        window.add_metric(values, window_s)
        yield window
        sizes = HistogramMetricFamily("headrace_batch_size", "Images in a batch.", labels=["model"])
        _add(sizes, [self._model], _batch_sizes(self._engine.inference.batches()))
        yield sizes

    def _state(self) -> Iterator[Metric]:
        engine = self._engine
        yield _gauge("headrace_requests_inside", "Images inside the engine.", self._model, engine.inside)
        yield _gauge(
            "headrace_ready", "1 when requests are admitted.", self._model, float(engine.readiness.ready)
        )
        info = GaugeMetricFamily(
            "headrace_build_info", "Constant 1.", labels=["version", "model", "path", "device", "emulated"]
        )
        runner = engine.runner
        info.add_metric(
            [__version__, self._model, engine.plan.path, runner.device, str(runner.emulated).lower()], 1
        )
        yield info


class _HttpFigures(Collector):
    """What clients saw."""

    def __init__(self, counters: Counters, model: str) -> None:
        self._counters = counters
        self._model = model

    def collect(self) -> Iterator[Metric]:
        yield from self._requests()
        yield from self._times()

    def _requests(self) -> Iterator[Metric]:
        for name, says, count in (
            ("headrace_requests", "Requests whose head was complete.", self._counters.seen),
            (
                "headrace_requests_gone",
                "Requests whose client went away before an answer.",
                self._counters.gone,
            ),
        ):
            family = CounterMetricFamily(name, says, labels=["model"])
            family.add_metric([self._model], count)
            yield family
        answers = CounterMetricFamily(
            "headrace_responses", "Answers by endpoint and status.", labels=["model", "endpoint", "status"]
        )
        for (endpoint, status), count in sorted(self._counters.answers.items()):
            answers.add_metric([self._model, endpoint, str(status)], count)
        yield answers
        rejected = CounterMetricFamily(
            "headrace_rejected", "Images and requests not served, by reason.", labels=["model", "reason"]
        )
        for reason, count in sorted(self._counters.errors.items()):
            rejected.add_metric([self._model, reason], count)
        yield rejected

    def _times(self) -> Iterator[Metric]:
        for name, says, histogram in (
            (
                "headrace_request_duration_seconds",
                "Predictions: from the head of the request to the answer.",
                self._counters.latency_s,
            ),
            (
                "headrace_request_fetch_seconds",
                "Predictions: from the head of the request until its body was there and taken apart.",
                self._counters.fetch_s,
            ),
            (
                "headrace_request_reply_seconds",
                "Predictions: from the end of the model's run to the answer.",
                self._counters.reply_s,
            ),
        ):
            family = HistogramMetricFamily(name, says, labels=["model"])
            _add(family, [self._model], histogram)
            yield family


def _stage_histograms(readings: list[BookReading], model: str) -> Iterator[Metric]:
    for name, says, field in (
        ("headrace_stage_duration_seconds", "Time a stage worked on an image.", "service_s"),
        ("headrace_stage_wait_seconds", "Time an image waited for a stage.", "wait_s"),
    ):
        family = HistogramMetricFamily(name, says, labels=["model", "stage"])
        for reading in readings:
            _add(family, [model, reading.stage], getattr(reading, field))
        yield family


def _stage_gauges(readings: list[BookReading], model: str) -> Iterator[Metric]:
    for name, says, field in (
        ("headrace_stage_queue_length", "Images waiting for a stage.", "queued"),
        ("headrace_stage_busy_images", "Images a stage is working on.", "busy"),
        (
            "headrace_stage_workers",
            "Threads of a stage; 0 where it only waits.",
            "workers",
        ),
    ):
        family = GaugeMetricFamily(name, says, labels=["model", "stage"])
        for reading in readings:
            family.add_metric([model, reading.stage], getattr(reading, field))
        yield family


def _stage_counters(readings: list[BookReading], model: str) -> Iterator[Metric]:
    family = CounterMetricFamily(
        "headrace_stage_items",
        "Images by stage and direction; entered = left + failed + dropped + those inside.",
        labels=["model", "stage", "direction"],
    )
    for reading in readings:
        for direction in ("entered", "left", "failed", "dropped"):
            family.add_metric([model, reading.stage, direction], getattr(reading, direction))
    yield family


def _gauge(name: str, says: str, model: str, value: float) -> Metric:
    family = GaugeMetricFamily(name, says, labels=["model"])
    family.add_metric([model], value)
    return family


def _add(family: HistogramMetricFamily, labels: list[str], histogram: Histogram) -> None:
    total, buckets = 0, []
    for bound, count in zip((*map(str, histogram.bounds), "+Inf"), histogram.counts, strict=True):
        total += count
        buckets.append((bound, total))
    family.add_metric(labels, buckets, histogram.total)


def _batch_sizes(batches: dict[int, tuple[int, float]]) -> Histogram:
    histogram = Histogram(BATCH_BOUNDS)
    for images, (count, _) in batches.items():
        histogram.add(images, count)
    return histogram

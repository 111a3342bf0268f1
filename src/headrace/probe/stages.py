"""The stages and the device of a headrace server, by its metrics page."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from headrace.clock import monotonic_s
from headrace.probe.metrics_page import Page, PageWatch, Sample
from headrace.probe.probe import Row
from headrace.probe.unseen import UnseenOnce
from headrace.records.capture import Unseen
from headrace.records.rows.service import DeviceRow, StageRow

_SERVICE, _WAIT = "headrace_stage_duration_seconds_sum", "headrace_stage_wait_seconds_sum"
_ITEMS = "headrace_stage_items_total"
_QUEUE, _WORKING = "headrace_stage_queue_length", "headrace_stage_busy_images"
_WORKERS = "headrace_stage_workers"
_BUSY, _LAUNCHES = "headrace_device_busy_seconds_total", "headrace_device_launches_total"
_IMAGES = "headrace_device_images_total"
_BUILD, _STARTED = "headrace_build_info", "process_start_time_seconds"
_ENDS = {"fetch": "headrace_request_fetch_seconds", "reply": "headrace_request_reply_seconds"}
"""The two stages outside the engine have no queue and no books, only a histogram of their times."""

NAMES = (
    *(_SERVICE, _WAIT, _ITEMS, _QUEUE, _WORKING, _WORKERS, _BUSY, _LAUNCHES, _IMAGES, _BUILD, _STARTED),
    *(f"{name}_{part}" for name in _ENDS.values() for part in ("sum", "count")),
)

_MOST, _MOST_NAMES = 2**30, 32
"""No server does more in a second, or has more stages; a page that says so is not believed."""

Key: TypeAlias = tuple[str, str]
"""Metric, and the stage, the stage and direction, or the device it is about."""


@dataclass(frozen=True, slots=True)
class _Reading:
    """A page by what it says of what; several models are summed."""

    at_s: float
    values: Mapping[Key, float]
    emulated: bool

    def names(self, metric: str) -> list[str]:
        return [about for name, about in self.values if name == metric][:_MOST_NAMES]


class StageProbe:
    """One `StageRow` a stage and one `DeviceRow`, for the time between two pages of the server.

    `url` is the server's metrics page, as in http://127.0.0.1:8002/metrics. Raises UsageError for a bad one.
    """

    name = "stages"

    def __init__(self, url: str, *, period_s: float = 1.0) -> None:
        self.period_s = period_s
        self._pages = PageWatch(url, NAMES, period_s)
        self._before: _Reading | None = None
        self._unseen = UnseenOnce(self.name)

    def read(self, now_s: float) -> Iterable[Row]:
        page = self._pages.take()
        if isinstance(page, str):
            self._unseen.add(f"stages at {self._pages.url}", page)
        if not isinstance(page, Page):
            return ()
        after = _reading(page)
        if not after.names(_SERVICE):
            self._unseen.add(
                f"stages at {self._pages.url}",
                "this is not the metrics page of a headrace server; --progress metric:URL#NAME counts its work by one of its metrics",
            )
            return ()
        before, self._before = self._before, after
        if before is None or not _comparable(before, after):
            return ()
        return tuple(_rows(before, after, now_s - monotonic_s()))

    def unseen(self) -> Sequence[Unseen]:
        return self._unseen.all()

    def close(self) -> None:
        self._pages.close()


def _reading(page: Page) -> _Reading:
    values: dict[Key, float] = {}
    emulated = False
    for sample in filter(lambda sample: math.isfinite(sample.value), page.samples):
        key = (sample.name, _about(sample))
        values[key] = values.get(key, 0.0) + sample.value
        emulated = emulated or (sample.name == _BUILD and sample.labels.get("emulated") == "true")
    return _Reading(page.at_s, values, emulated)


def _about(sample: Sample) -> str:
    if sample.name == _ITEMS:
        return f"{sample.labels.get('stage', '')} {sample.labels.get('direction', '')}"
    return sample.labels.get("stage") or sample.labels.get("device") or ""


def _comparable(before: _Reading, after: _Reading) -> bool:
    """False when another process answers now, or when a counter did what none does: nothing is known of the time between."""
    if before.values.get((_STARTED, "")) != after.values.get((_STARTED, "")):
        return False
    counters = [key for key in before.values if key[0].endswith(("_sum", "_total", "_count"))]
    return all(0 <= after.values.get(key, 0.0) - before.values[key] < _MOST for key in counters)


def _rows(before: _Reading, after: _Reading, capture_began_s: float) -> Iterator[Row]:
    """`capture_began_s`: what to add to the monotonic clock to have the capture's time."""
    t_s, window_s = after.at_s + capture_began_s, after.at_s - before.at_s
    change = _Change(before, after)
    for stage in after.names(_SERVICE):
        done, wait_us = change.count(_ITEMS, f"{stage} left"), change.microseconds(_WAIT, stage)
        service_us = change.microseconds(_SERVICE, stage)
        failed, dropped = change.count(_ITEMS, f"{stage} failed"), change.count(_ITEMS, f"{stage} dropped")
        if done is None or wait_us is None or service_us is None:
            continue
        yield StageRow(
            t_s,
            window_s,
            stage,
            done,
            wait_us,
            service_us,
            workers=change.level(_WORKERS, stage),
            waiting=change.level(_QUEUE, stage),
            working=change.level(_WORKING, stage),
            lost=None if failed is None or dropped is None else failed + dropped,
        )
    for stage, metric in _ENDS.items():
        done, service_us = change.count(f"{metric}_count"), change.microseconds(f"{metric}_sum")
        if done is not None and service_us is not None:
            yield StageRow(t_s, window_s, stage, done, 0, service_us, None, None, None, None)
    for device in after.names(_BUSY):
        busy_us = change.microseconds(_BUSY, device)
        launches, images = change.count(_LAUNCHES, device), change.count(_IMAGES, device)
        if busy_us is not None and launches is not None and images is not None:
            yield DeviceRow(t_s, window_s, device, busy_us, launches, images, after.emulated)


@dataclass(frozen=True, slots=True)
class _Change:
    """From one reading to the next; None: the page does not say."""

    before: _Reading
    after: _Reading

    def count(self, metric: str, about: str = "") -> int | None:
        grown = self._grown(metric, about)
        return None if grown is None else round(grown)

    def microseconds(self, metric: str, about: str = "") -> int | None:
        grown_s = self._grown(metric, about)
        return None if grown_s is None else round(grown_s * 1e6)

    def level(self, metric: str, about: str) -> int | None:
        value = self.after.values.get((metric, about), -1.0)
        return round(value) if 0 <= value < _MOST else None

    def _grown(self, metric: str, about: str) -> float | None:
        """A counter that was not there before began at 0."""
        value = self.after.values.get((metric, about))
        grown = -1.0 if value is None else value - self.before.values.get((metric, about), 0.0)
        return grown if 0 <= grown < _MOST else None

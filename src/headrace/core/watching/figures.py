"""What the measures of a recording come to: now, on the whole, and how bursty. Memory does not grow with time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from headrace.core.watching.measures import Measure, measures
from headrace.records.rows.process import TaskRow

IDLE_BELOW = 0.05
FULL_ABOVE = 0.95
"""A window whose ratio is below or above counts as idle or full: with the device's own windows of 1/6 s to 1 s these are the
ends that a mean hides (docs/measuring.md)."""
MOST_SERIES = 8_192
"""About 10 MB."""
_BUCKETS = 100


class Series:
    """One measure over time. Means are weighted by the windows; those without a length count alike."""

    __slots__ = ("_buckets", "_weight", "_weighted", "first_window_s", "high", "last")

    def __init__(self) -> None:
        self.last = self.high = self._weighted = self._weight = 0.0
        self.first_window_s = 0.0
        self._buckets = [0.0] * (_BUCKETS + 1)

    def add(self, measure: Measure) -> None:
        weight = measure.window_s or 1.0
        self.last = measure.value
        self.high = measure.value if not self._weight else max(self.high, measure.value)
        self.first_window_s = self.first_window_s or measure.window_s
        self._weighted += measure.value * weight
        self._weight += weight
        self._buckets[min(_BUCKETS, max(0, int(measure.value * _BUCKETS)))] += weight

    @property
    def total(self) -> float:
        """Value times seconds."""
        return self._weighted

    @property
    def seconds(self) -> float:
        """That were covered."""
        return self._weight

    @property
    def mean(self) -> float:
        return self._weighted / self._weight

    def share_below(self, ratio: float) -> float:
        """Share of the time with a ratio below this one, to a hundredth. Means something for ratios only."""
        return sum(self._buckets[: int(ratio * _BUCKETS)]) / self._weight

    def share_from(self, ratio: float) -> float:
        return sum(self._buckets[int(ratio * _BUCKETS) :]) / self._weight

    def quantile(self, share: float) -> float:
        """The ratio that was not exceeded for this share of the time, to a hundredth."""
        left = share * self._weight
        for bucket, weight in enumerate(self._buckets):
            left -= weight
            if left <= 1e-9:
                return bucket / _BUCKETS
        return 1.0


@dataclass(frozen=True, slots=True)
class Busiest:
    """A thread that took CPU."""

    pid: int
    tid: int
    name: str
    now_ratio: float
    """Of one core, at its last reading."""
    mean_ratio: float
    """Of one core, over the whole recording."""
    wait_ratio: float
    """Ready and waiting for a core, over the whole recording."""


class Figures:
    """Told all rows in the order they come. Not synchronised."""

    def __init__(self) -> None:
        self.series: dict[str, Series] = {}
        self.end_s = 0.0
        self._names: dict[tuple[int, int], str] = {}

    def tell(self, rows: Iterable[Any], now_s: float) -> None:
        self.end_s = now_s
        for kind, group in groupby(rows, type):
            found = list(group)
            if kind is TaskRow:
                self._names.update({(row.pid, row.tid): row.name for row in found})
            for measure in measures(found):
                series = self.series.get(measure.name)
                if series is None:
                    series = self._new_series(measure.name)
                series.add(measure)

    def _new_series(self, name: str) -> Series:
        if len(self.series) >= MOST_SERIES:
            self._forget_idle_threads()
        series = self.series[name] = Series()
        return series

    def _forget_idle_threads(self) -> None:
        """Services that start a thread for each request would fill the memory: the half that took least CPU goes."""
        threads = sorted(self.named("thread.", ".cpu_ratio").items(), key=lambda item: item[1].total)
        for key, _ in threads[: len(threads) // 2 + 1]:
            self.series.pop(f"thread.{key}.cpu_ratio", None)
            self.series.pop(f"thread.{key}.wait_ratio", None)
            pid, tid = map(int, key.split("/"))
            self._names.pop((pid, tid), None)

    def named(self, start: str, end: str = "") -> Mapping[str, Series]:
        """Those whose names begin and end so, by what stands between."""
        return {
            name[len(start) : len(name) - len(end)]: series
            for name, series in self.series.items()
            if name.startswith(start) and name.endswith(end)
        }

    def busiest(self, most: int) -> list[Busiest]:
        """The threads that took most CPU so far."""
        ordered = sorted(self.named("thread.", ".cpu_ratio").items(), key=lambda item: -item[1].total)
        return [self._busiest(key, series) for key, series in ordered[:most]]

    def _busiest(self, key: str, series: Series) -> Busiest:
        pid, tid = map(int, key.split("/"))
        wait = self.series.get(f"thread.{key}.wait_ratio")
        length_s = max(self.end_s, 1e-9)
        return Busiest(
            pid,
            tid,
            self._names.get((pid, tid), ""),
            series.last,
            series.total / length_s,
            wait.total / length_s if wait else 0.0,
        )

    def as_dict(self) -> dict[str, Any]:
        """For the capture's end: every measure but those of single threads, and the busiest threads."""
        return {
            "seconds": self.end_s,
            "measures": {
                name: _as_dict(name, series)
                for name, series in sorted(self.series.items())
                if not name.startswith("thread.")
            },
            "busiest_threads": [
                {name: getattr(thread, name) for name in Busiest.__dataclass_fields__}
                for thread in self.busiest(10)
            ],
        }


def _as_dict(name: str, series: Series) -> dict[str, float]:
    told = {"mean": series.mean, "last": series.last, "max": series.high, "window_s": series.first_window_s}
    if name.endswith("_ratio"):
        told |= {
            "p50": series.quantile(0.5),
            "p95": series.quantile(0.95),
            "idle_share": series.share_below(IDLE_BELOW),
            "full_share": series.share_from(FULL_ABOVE),
        }
    return told

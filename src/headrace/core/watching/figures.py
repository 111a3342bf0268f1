"""What the measures of a recording come to: now, on the whole, and how bursty. Memory does not grow with time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict
from itertools import groupby
from typing import Any

from headrace.core.watching.busiest import SLACK_S, Busiest, Threads
from headrace.core.watching.measures import Measure, measures
from headrace.records.rows.process import TaskRow, ThreadRow

IDLE_BELOW = 0.05
FULL_ABOVE = 0.95
"""A window whose ratio is below or above counts as idle or full: with the device's own windows of 1/6 s to 1 s these are the
ends that a mean hides (docs/measuring.md)."""
MOST_SERIES = 4_096
"""About 5 MB. Beyond, what is new has no figures; its rows are kept all the same."""
_BUCKETS = 100


class Series:
    """One measure over time. Means are weighted by the windows; those without a length count alike."""

    __slots__ = ("_buckets", "_weight", "_weighted", "first_window_s", "good_until_s", "high", "last")

    def __init__(self) -> None:
        self.last = self.high = self._weighted = self._weight = 0.0
        self.first_window_s = 0.0
        self.good_until_s = 0.0
        """Later, `last` is no longer what is: a page that answers no more, say."""
        self._buckets = [0.0] * (_BUCKETS + 1)

    def add(self, measure: Measure, now_s: float = 0.0) -> None:
        weight = measure.window_s or 1.0
        self.good_until_s = now_s + measure.window_s + SLACK_S
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


class Figures:
    """Told all rows in the order they come. Not synchronised."""

    def __init__(self) -> None:
        self.series: dict[str, Series] = {}
        self.start_s: float | None = None
        """When the first reading came, with which nothing could be compared yet."""
        self.end_s = 0.0
        self.threads = Threads()

    def tell(self, rows: Iterable[Any], now_s: float) -> None:
        self.start_s = now_s if self.start_s is None else self.start_s
        self.end_s = now_s
        for kind, group in groupby(rows, type):
            found = list(group)
            if kind is TaskRow:
                self.threads.name(found)
            elif kind is ThreadRow:
                self.threads.tell(found, now_s)
            for measure in measures(found):
                if (series := self.series.get(measure.name)) is None:
                    if len(self.series) >= MOST_SERIES:
                        continue
                    series = self.series[measure.name] = Series()
                series.add(measure, now_s)

    def named(self, start: str, end: str = "") -> Mapping[str, Series]:
        """Those whose names begin and end so, by what stands between."""
        return {
            name[len(start) : len(name) - len(end)]: series
            for name, series in self.series.items()
            if name.startswith(start) and name.endswith(end)
        }

    def now(self, series: Series) -> float | None:
        """Its last value; None when that is too long ago."""
        return series.last if self.end_s <= series.good_until_s else None

    @property
    def threads_cores(self) -> float:
        """CPU time a second of all threads that were seen."""
        return self.threads.cpu_s / self._length_s

    @property
    def _length_s(self) -> float:
        return max(self.end_s - (self.start_s or 0.0), 1e-9)

    def busiest(self, most: int) -> list[Busiest]:
        """The threads that took most CPU so far."""
        return self.threads.busiest(most, self.end_s, self._length_s)

    def as_dict(self) -> dict[str, Any]:
        """For the capture's end: every measure, and the busiest threads."""
        return {
            "seconds": self.end_s,
            "measures": {name: _as_dict(name, series) for name, series in sorted(self.series.items())},
            "busiest_threads": [asdict(thread) for thread in self.busiest(10)],
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

"""When requests came: how fast, and how unevenly."""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from math import floor, isfinite

import numpy as np
import numpy.typing as npt

WINDOWS_S = (1, 10, 60)
_FEWEST_WINDOWS = 10
"""Fewer say nothing about how much they differ."""
_BUFFERED = 1 << 16
_FARTHEST_S = 1e11
"""From 1970: more than any clock says."""


@dataclass(frozen=True, slots=True)
class Arrivals:
    """Rates are per second of the whole span, seconds without a request included."""

    first_s: float
    last_s: float
    """Seconds as the log counts them, usually since 1970."""
    requests: int
    mean_per_s: float
    peak_1s: int
    """Requests in the busiest second."""
    dispersion: dict[int, float]
    """Window in seconds -> variance of the requests in it divided by their mean (index of dispersion). 1: arrivals independent of
    each other; more: they come in bursts. Windows of which the span has fewer than ten are left out."""
    longest_gap_s: float
    """Between a second with requests and the next one."""

    @property
    def span_s(self) -> float:
        """First to last request, in whole seconds begun."""
        return floor(self.last_s) - floor(self.first_s) + 1.0

    @property
    def peak_to_mean(self) -> float:
        return self.peak_1s / self.mean_per_s


class ArrivalCounter:
    """Told the time of every request, in any order; its memory grows with the seconds that had any, not with the requests."""

    __slots__ = ("_counts", "_first_s", "_last_s", "_new", "_seconds")

    def __init__(self) -> None:
        self._new = array("d")
        self._seconds = np.empty(0, np.int64)
        self._counts = np.empty(0, np.int64)
        self._first_s, self._last_s = float("inf"), float("-inf")

    def add(self, time_s: float) -> None:
        """A time that is NaN, infinite or absurd is not counted."""
        if isfinite(time_s) and abs(time_s) < _FARTHEST_S:
            self._new.append(time_s)
            if len(self._new) >= _BUFFERED:
                self._merge()

    def _merge(self) -> None:
        if not self._new:
            return
        times = np.array(self._new)
        self._first_s = min(self._first_s, float(times.min()))
        self._last_s = max(self._last_s, float(times.max()))
        seconds, counts = np.unique(np.floor(times).astype(np.int64), return_counts=True)
        self._seconds, self._counts = _summed(
            np.concatenate((self._seconds, seconds)), np.concatenate((self._counts, counts))
        )
        self._new = array("d")

    def arrivals(self) -> Arrivals | None:
        """None when no request had a time."""
        self._merge()
        if not len(self._seconds):
            return None
        span_s = int(self._seconds[-1] - self._seconds[0]) + 1
        requests = int(self._counts.sum())
        return Arrivals(
            first_s=self._first_s,
            last_s=self._last_s,
            requests=requests,
            mean_per_s=requests / span_s,
            peak_1s=int(self._counts.max()),
            dispersion={
                window: self._dispersion(window, span_s // window)
                for window in WINDOWS_S
                if span_s // window >= _FEWEST_WINDOWS
            },
            longest_gap_s=float(np.diff(self._seconds).max()) if span_s > 1 else 0.0,
        )

    def _dispersion(self, window_s: int, windows: int) -> float:
        """Over whole windows from the first second on; empty ones need no memory."""
        places, counts = _summed((self._seconds - self._seconds[0]) // window_s, self._counts)
        counts = counts[places < windows]
        mean = float(counts.sum()) / windows
        return (float(np.square(counts).sum()) / windows - mean**2) / mean


def _summed(
    places: npt.NDArray[np.int64], counts: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Counts of equal places added up; places rise."""
    unique, inverse = np.unique(places, return_inverse=True)
    return unique, np.bincount(inverse, counts, len(unique)).astype(np.int64)

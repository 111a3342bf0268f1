"""A cumulative histogram of durations or sizes: counts in fixed buckets and a sum."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable

DURATION_BOUNDS_S = (
    0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0,
)  # fmt: skip
"""Upper bounds in seconds, 0.1 ms to 30 s in steps of about 2.5."""

BATCH_BOUNDS = (1, 2, 4, 8, 16, 32, 64, 128)
"""Upper bounds in images."""


class Histogram:
    """Not synchronised: its owner holds the lock."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: Iterable[float]) -> None:
        self.bounds = tuple(bounds)
        self.counts = [0] * (len(self.bounds) + 1)
        self.total = 0.0

    def add(self, value: float, count: int = 1) -> None:
        self.counts[bisect_left(self.bounds, value)] += count
        self.total += value * count

    def copy(self) -> Histogram:
        twin = Histogram(self.bounds)
        twin.counts = self.counts.copy()
        twin.total = self.total
        return twin

    @property
    def count(self) -> int:
        return sum(self.counts)

    def quantile(self, share: float) -> float:
        """The value below which `share` (0..1) of the samples lie, by linear interpolation in its bucket; NaN when there are none."""
        wanted = share * self.count
        seen, low = 0.0, 0.0
        for count, high in zip(self.counts, (*self.bounds, self.bounds[-1]), strict=True):
            if count and seen + count >= wanted:
                return low + (high - low) * (wanted - seen) / count
            seen, low = seen + count, high
        return float("nan")

"""Latencies by the million in a fixed room: a log-linear histogram, its quantiles and how sure they are.

Up to 256 us every microsecond has a bucket of its own; above, each doubling is cut into 128 equal ones, so that a bucket is narrower than
0.8 % of the values in it (the layout HdrHistogram made usual).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from headrace.core.stats.order_statistics import quantile_ranks
from headrace.records.rows.load import LatencyRow

Microseconds = npt.NDArray[np.int64]

MOST_US = 3_600_000_000
"""One hour; what is longer counts as this."""
BUCKET_ERROR = 1 / 128
"""A bucket's width divided by the smallest value in it is at most this."""
_EXACT_BITS = 8
_PER_DOUBLING = 1 << (_EXACT_BITS - 1)


class Interval(NamedTuple):
    """Where a quantile of all latencies to come lies, with the confidence that was asked for; NaN where the sample sets no bound."""

    low_us: float
    high_us: float


def buckets_of(values_us: Microseconds) -> npt.NDArray[np.intp]:
    """The bucket of each value, from int64[n] in microseconds; out of range counts as 0 or as `MOST_US`."""
    values = np.clip(values_us, 0, MOST_US)
    bits = np.frexp(values.astype(np.float64))[1]
    shift = np.maximum(bits - _EXACT_BITS, 0)
    return np.asarray(shift * _PER_DOUBLING + (values >> shift), np.intp)


def bucket_low_us(bucket: int) -> int:
    """The smallest value of a bucket; the next bucket's is where it ends."""
    shift = max(0, bucket // _PER_DOUBLING - 1)
    return (bucket - shift * _PER_DOUBLING) << shift


BUCKETS = int(buckets_of(np.array([MOST_US]))[0]) + 1


class Latencies:
    """Counts by bucket. Not synchronised."""

    __slots__ = ("_buckets",)

    def __init__(self) -> None:
        self._buckets = np.zeros(BUCKETS, np.int64)

    @classmethod
    def from_rows(cls, rows: Iterable[LatencyRow]) -> Latencies:
        """What `rows` told, of any phase and kind; a row of other buckets counts at its smallest value."""
        found = cls()
        told = [(row.low_us, row.requests) for row in rows]
        if told:
            lows, requests = np.array(told, np.int64).T
            np.add.at(found._buckets, buckets_of(lows), requests)
        return found

    @property
    def count(self) -> int:
        return int(self._buckets.sum())

    def add_many(self, values_us: Microseconds) -> None:
        """int64[n], in microseconds."""
        self._buckets += np.bincount(buckets_of(values_us), minlength=BUCKETS)

    def merge(self, other: Latencies) -> None:
        self._buckets += other._buckets

    def above(self, value_us: float) -> int:
        """How many lie in higher buckets than `value_us`."""
        return int(self._buckets[int(buckets_of(np.array([int(value_us)]))[0]) + 1 :].sum())

    def quantile(self, share: float) -> float:
        """The value that at least `share` (0 < share <= 1) of the latencies do not pass, in microseconds: the middle of its bucket, so
        within 0.4 %. NaN when there are none."""
        count = self.count
        return self._middle_us(max(1, math.ceil(share * count - 1e-9))) if count else math.nan

    def interval(self, share: float, confidence: float = 0.95, dependence: float = 1.0) -> Interval:
        """The interval of a quantile by order statistics, widened to the edges of its buckets.

        Requests that resemble their neighbours tell less than independent ones: `dependence` is by how many times (>= 1).
        """
        count = self.count
        independent = int(count / dependence) if dependence >= 1 else 0
        low, high = quantile_ranks(independent, share, confidence)
        return Interval(
            self._edges_us(max(1, math.floor(low * count / independent)))[0] if low else math.nan,
            self._edges_us(math.ceil(high * count / independent))[1] - 1 if high else math.nan,
        )

    def rows(self, phase: str, kind: str) -> Iterator[LatencyRow]:
        """The buckets that hold something, for a capture."""
        for bucket in map(int, np.flatnonzero(self._buckets)):
            low_us, high_us = bucket_low_us(bucket), bucket_low_us(bucket + 1)
            yield LatencyRow(phase, kind, low_us, high_us, int(self._buckets[bucket]))

    def _edges_us(self, rank: int) -> tuple[int, int]:
        bucket = int(np.searchsorted(np.cumsum(self._buckets), rank))
        return bucket_low_us(bucket), bucket_low_us(bucket + 1)

    def _middle_us(self, rank: int) -> float:
        low_us, high_us = self._edges_us(rank)
        return (low_us + high_us - 1) / 2


def supported(share: float, count: int) -> bool:
    """Whether `count` requests say anything of a quantile: more than one is expected above it. p99.9 needs more than 1,000."""
    return count * (1 - share) > 1 + 1e-9

"""How far apart two prepared images are, in levels of 0..255, from a histogram that adds up over any number of images."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from headrace.records.image import Uint8Array

Histogram = npt.NDArray[np.int64]
"""int64[256]: how many values differ by 0, 1, ... 255."""


@dataclass(frozen=True, slots=True)
class Difference:
    """Absolute differences of all values. Percentiles are the smallest level that this share of the values does not exceed."""

    mean: float
    p99: int
    p999: int
    maximum: int


def histogram(one: Uint8Array, other: Uint8Array) -> Histogram:
    """Absolute differences counted. Raises ValueError when the shapes differ."""
    if one.shape != other.shape:
        raise ValueError(f"{one.shape} and {other.shape} cannot be compared")
    apart = np.maximum(one, other) - np.minimum(one, other)
    return np.bincount(apart.ravel(), minlength=256).astype(np.int64)


def summarise(counts: Histogram) -> Difference:
    """Raises ValueError when nothing was counted."""
    total = int(counts.sum())
    if not total:
        raise ValueError("no values to compare")
    reached = np.cumsum(counts)
    return Difference(
        mean=float(counts @ np.arange(256)) / total,
        p99=_level(reached, total, 990),
        p999=_level(reached, total, 999),
        maximum=int(np.flatnonzero(counts)[-1]),
    )


def compare(one: Uint8Array, other: Uint8Array) -> Difference:
    """The difference of two arrays of one shape."""
    return summarise(histogram(one, other))


def _level(reached: Histogram, total: int, thousandths: int) -> int:
    return int(np.searchsorted(reached, -(-total * thousandths // 1000)))

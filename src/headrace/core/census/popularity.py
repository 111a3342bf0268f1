"""Which keys are asked for most, and how steeply demand falls off."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

MOST_COUNTED = 10_000
"""Keys with a counter: what has more than a 10,000th of the requests is never missed."""
_LONGEST_NAME = 200
_FEWEST_REQUESTS = 10
"""Of a key whose rank says something about the exponent: a count of ten is off by a third."""
_FEWEST_RANKS = 20


@dataclass(frozen=True, slots=True)
class Top:
    """The keys asked for most, most first."""

    names: tuple[str, ...]
    """Cut after 200 characters."""
    counts: tuple[int, ...]
    """Requests of each, too few by at most `short_by`."""
    short_by: int
    requests: int

    def share(self, first: int) -> float:
        """Of all requests, those of the `first` keys; NaN when there are none."""
        return sum(self.counts[:first]) / self.requests if self.requests else float("nan")


class TopKeys:
    """Counts keys in bounded memory (Misra and Gries, Science of Computer Programming 1982): exact up to 10,000 different ones."""

    __slots__ = ("_counts", "_most", "_names", "_requests", "_short_by")

    def __init__(self, most: int = MOST_COUNTED) -> None:
        self._most = most
        self._counts: dict[int, int] = {}
        self._names: dict[int, str] = {}
        self._requests = 0
        self._short_by = 0

    def add(self, key: int, name: str) -> None:
        """`key` tells keys apart, `name` is what people call it."""
        self._requests += 1
        if key in self._counts:
            self._counts[key] += 1
            return
        self._counts[key] = 1
        self._names[key] = name[:_LONGEST_NAME]
        if len(self._counts) > 2 * self._most:
            self._drop_rare()

    def _drop_rare(self) -> None:
        """Takes from every key as many requests as the first one past the limit has; at least half of the keys end at none."""
        taken = sorted(self._counts.values(), reverse=True)[self._most]
        self._short_by += taken
        self._counts = {key: count - taken for key, count in self._counts.items() if count > taken}
        self._names = {key: self._names[key] for key in self._counts}

    def top(self, most: int) -> Top:
        ranked = sorted(self._counts.items(), key=lambda item: (-item[1], self._names[item[0]]))[:most]
        return Top(
            names=tuple(self._names[key] for key, _ in ranked),
            counts=tuple(count for _, count in ranked),
            short_by=self._short_by,
            requests=self._requests,
        )


def zipf_exponent(counts: Sequence[int]) -> float | None:
    """The exponent a with which requests fall off by rank as rank^-a, from counts, most first.

    Least squares on logarithms (Breslau et al., INFOCOM 1999); each rank weighs 1/rank, so that every decade of ranks counts the same.
    None when fewer than twenty keys have ten requests each.
    """
    ranked = np.array([count for count in counts if count >= _FEWEST_REQUESTS], np.float64)
    if len(ranked) < _FEWEST_RANKS:
        return None
    ranks = np.arange(1, len(ranked) + 1)
    slope, _ = np.polyfit(np.log(ranks), np.log(ranked), 1, w=1 / np.sqrt(ranks))
    return max(0.0, -float(slope))

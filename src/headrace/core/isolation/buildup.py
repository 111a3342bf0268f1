"""Where a chain falls off, when its links were added one at a time. Pure.

The steps of one round are measured shortly one after the other, so a round's ratio of two steps is free of what drifts from round to
round. A difference counts only when every round agrees on its direction (which chance alone does once in 2^(rounds - 1) pairs) and it is
larger than half the range of its rounds and than `LEAST`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

import numpy as np

LEAST = 0.05
"""Smaller changes are not called one, however surely they are there."""
ALONE = "model"


@dataclass(frozen=True, slots=True)
class Window:
    """A step, measured once."""

    rate_per_s: float
    """Images a second."""
    images: int
    """That the rate is from."""
    busy: float | None
    """Share of the time with a batch on the device; None where nobody counts."""
    cores: float | None
    """CPU time of the process under test, in cores."""


@dataclass(frozen=True, slots=True)
class Step:
    """The chain up to one link."""

    link: str
    """What is new on this step."""
    contains: str
    """What is measured, in words."""
    windows: tuple[Window, ...] = ()
    """One a round; every step of a buildup has as many, or none."""
    absent: str = ""
    """Why there is nothing to measure; empty when there is."""

    @property
    def rate_per_s(self) -> float:
        return median(window.rate_per_s for window in self.windows)

    @property
    def spread(self) -> tuple[float, float]:
        """The slowest and the fastest round."""
        rates = [window.rate_per_s for window in self.windows]
        return min(rates), max(rates)

    @property
    def busy(self) -> float | None:
        return _median([window.busy for window in self.windows])

    @property
    def cpu_s(self) -> float | None:
        """CPU seconds an image."""
        return _median(
            [None if window.cores is None else window.cores / window.rate_per_s for window in self.windows]
        )


@dataclass(frozen=True, slots=True)
class Change:
    """What a link does to the rate."""

    link: str
    before: str
    """The step it is added to."""
    share: float
    """Of the rate before; -0.71 is a fall by 71 %. Median over rounds of the paired ratios."""
    low: float
    high: float
    """Smallest and largest of the rounds."""
    counts: bool
    """More than noise."""


@dataclass(frozen=True, slots=True)
class Buildup:
    """The judged chain."""

    changes: tuple[Change, ...]
    """One for each measured step after the first, in order."""
    fall: Change | None
    """The largest fall that counts; None when no link costs more than the noise."""
    ceilings: dict[str, float]
    """By link: the share that the whole chain could win at most if the link, and all outside it, cost nothing."""
    noise: float
    """Half the range of the paired ratios, at the link where it is widest."""


def judge(steps: Sequence[Step]) -> Buildup:
    """The steps from the model outwards; those without windows are passed over. Raises ValueError with fewer than two."""
    measured = [step for step in steps if step.windows]
    if len(measured) < 2:
        raise ValueError("one step is no buildup")
    changes = tuple(compare(before, after) for before, after in pairwise(measured))
    falls = [change for change in changes if change.counts and change.share < 0.0]
    whole = measured[-1]
    ceilings = {
        after.link: max(0.0, median(_ratios(whole, before)) - 1.0) for before, after in pairwise(measured)
    }
    return Buildup(
        changes,
        min(falls, key=lambda change: change.share, default=None),
        ceilings,
        max((change.high - change.low) / 2.0 for change in changes),
    )


def compare(before: Step, after: Step) -> Change:
    """Both measured in the same rounds."""
    shares = [ratio - 1.0 for ratio in _ratios(before, after)]
    share, low, high = median(shares), min(shares), max(shares)
    agreed = high < 0.0 or low > 0.0
    counts = agreed and abs(share) >= max(LEAST, (high - low) / 2.0)
    return Change(after.link, before.link, share, low, high, counts)


def rate_of(ends_s: Sequence[float]) -> float:
    """Images a second from the moments at which images were done, in any order; NaN when they are all at once.

    The slope of their count over time by least squares: images that are done by the batch come in steps, and a step cut off at either
    end would weigh as a whole batch in a plain quotient.
    """
    ends = np.sort(np.asarray(ends_s, np.float64))
    if len(ends) < 2 or ends[0] == ends[-1]:
        return float("nan")
    times = ends - ends.mean()
    return float(times @ np.arange(len(ends)) / (times @ times))


def _ratios(before: Step, after: Step) -> list[float]:
    return [
        late.rate_per_s / early.rate_per_s for early, late in zip(before.windows, after.windows, strict=True)
    ]


def _median(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return median(known) if known else None

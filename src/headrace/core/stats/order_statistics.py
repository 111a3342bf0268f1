"""Which two of n sorted values enclose a quantile of where they came from, whatever its distribution.

Hahn and Meeker, Statistical Intervals (1991), chapter 5: the number of values below the quantile is binomial, so its own quantiles are
the ranks. Exact where few values lie beyond the quantile; the normal approximation where many do.
"""

from __future__ import annotations

import math
from statistics import NormalDist

_EXACT_UP_TO = 100.0
"""Variance of the binomial above which it is as good as normal."""


def quantile_ranks(count: int, share: float, confidence: float = 0.95) -> tuple[int | None, int | None]:
    """Ranks from 1 to `count` whose values enclose the `share` quantile with at least `confidence`, half of the doubt on each side.

    None where even the first or last value sets no bound. The values are independent.
    """
    if count < 1:
        return None, None
    if share < 0.5:
        low, high = quantile_ranks(count, 1 - share, confidence)
        return (None if high is None else count + 1 - high), (None if low is None else count + 1 - low)
    doubt = (1 - confidence) / 2
    beyond, variance = 1 - share, count * share * (1 - share)
    few, many = (
        _exact(count, beyond, doubt) if variance <= _EXACT_UP_TO else _normal(count, beyond, variance, doubt)
    )
    low_rank, high_rank = count - many, count - few
    return (low_rank if low_rank >= 1 else None), (high_rank if high_rank <= count else None)


def _exact(count: int, beyond: float, doubt: float) -> tuple[int, int]:
    """Of Binomial(count, beyond): the most that is reached with at most `doubt` (-1: nothing is), the least that is passed with at most
    `doubt`."""
    few, at = -1, 0
    term = math.exp(count * math.log1p(-beyond))
    total = term
    while total < 1 - doubt and at < count:
        few = at if total <= doubt else few
        term *= (count - at) / (at + 1) * beyond / (1 - beyond)
        at += 1
        total += term
    return few, at


def _normal(count: int, beyond: float, variance: float, doubt: float) -> tuple[int, int]:
    away = NormalDist().inv_cdf(1 - doubt) * math.sqrt(variance)
    middle = count * beyond
    return math.floor(middle - away - 0.5), math.ceil(middle + away - 0.5)

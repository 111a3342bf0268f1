"""Recorded requests, made ready to be replayed."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from headrace.errors import UsageError

Times = npt.NDArray[np.float64]
Images = npt.NDArray[np.int64]

MOST_REQUESTS = 20_000_000


class Recorded(NamedTuple):
    """What a log tells."""

    times_s: Times
    """float64[n] seconds since the first, rising."""
    images: Images
    """int64[n]: which image each asked for, numbered from 0 in the order they are first asked for."""
    remarks: tuple[str, ...]
    """What was made of it."""


def recorded(requests: Iterable[tuple[float, str]]) -> Recorded:
    """Time in seconds on any clock, and what was asked for.

    A log of whole seconds would send the requests of each second at once: they are spread over it evenly. Raises UsageError when there
    are fewer than two times or too many.
    """
    found: list[float] = []
    asked: list[int] = []
    numbers: dict[str, int] = {}
    for time_s, key in requests:
        if len(found) == MOST_REQUESTS:
            raise UsageError(f"the log has more than {MOST_REQUESTS:,} requests; cut a part out of it")
        if math.isfinite(time_s):
            found.append(time_s)
            asked.append(numbers.setdefault(key, len(numbers)))
    if len(found) < 2:
        raise UsageError("the log has no two requests with a time")
    times = np.array(found)
    order = np.argsort(times, kind="stable")
    times, images = times[order], np.array(asked)[order]
    if (times != np.floor(times)).any():
        return Recorded(times - times[0], images, ())
    remark = "the log knows whole seconds only: the requests of each are spread over it evenly"
    return Recorded(_spread(times) - times[0], images, (remark,))


def _spread(times: Times) -> Times:
    _, counts = np.unique(times, return_counts=True)
    place = np.arange(len(times)) - np.repeat(np.cumsum(counts) - counts, counts)
    return np.asarray(times + place / np.repeat(counts, counts))

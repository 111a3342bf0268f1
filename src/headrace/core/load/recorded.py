"""Recorded times of requests, made ready to be replayed."""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from headrace.errors import UsageError

Times = npt.NDArray[np.float64]

MOST_REQUESTS = 20_000_000


def replay_times(times_s: Iterable[float]) -> tuple[Times, tuple[str, ...]]:
    """float64[n] seconds since the first, rising, and remarks on what was made of them.

    A log of whole seconds would send the requests of each second at once: they are spread over it evenly. Raises UsageError when there
    are fewer than two times or too many.
    """
    found: list[float] = []
    for time_s in times_s:
        if len(found) == MOST_REQUESTS:
            raise UsageError(f"the log has more than {MOST_REQUESTS:,} requests; cut a part out of it")
        if math.isfinite(time_s):
            found.append(time_s)
    if len(found) < 2:
        raise UsageError("the log has no two requests with a time")
    times = np.sort(np.array(found))
    if (times != np.floor(times)).any():
        return times - times[0], ()
    return _spread(times) - times[0], (
        "the log knows whole seconds only: the requests of each are spread over it evenly",
    )


def _spread(times: Times) -> Times:
    _, counts = np.unique(times, return_counts=True)
    place = np.arange(len(times)) - np.repeat(np.cumsum(counts) - counts, counts)
    return np.asarray(times + place / np.repeat(counts, counts))

"""When requests are meant to be sent: rising times in seconds since the run began.

Every pattern is one mapping of a process of rate 1, regular (0, 1, 2, ...) or Poisson, through the inverse of the expected number of
arrivals up to a time (inversion of a non-homogeneous process: Cinlar, Introduction to Stochastic Processes, 1975, ch. 4.7). So the
n-th regular arrival is computed from n and cannot drift, and rates are exact also across steps. With a `generator` the arrivals are
Poisson, as those of many people who do not know of each other; without one they are regular, as no real traffic is.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from headrace.errors import UsageError

Times = NDArray[np.float64]
Inverse = Callable[[Times], Times]

_CHUNK = 1024
"""Arrivals computed together: numpy's overhead is shared, and a chunk takes well under 0.1 ms."""


def constant(rate: float) -> Iterator[float]:
    """`rate` a second for ever, the n-th at n / rate. Raises UsageError for a rate that is not positive."""
    _check(rate, "rate", above=0.0)
    return _times(None, lambda units: units / rate, math.inf)


def poisson(rate: float, generator: np.random.Generator) -> Iterator[float]:
    """Poisson arrivals of mean `rate` a second for ever. Raises UsageError for a rate that is not positive."""
    _check(rate, "rate", above=0.0)
    return _times(generator, lambda units: units / rate, math.inf)


def bursts(rate: float, size: int, generator: np.random.Generator | None = None) -> Iterator[float]:
    """`size` arrivals at one moment, again and again, `rate` arrivals a second in the mean. With a generator the bursts are Poisson."""
    _check(rate, "rate", above=0.0)
    if size < 1:
        raise UsageError(f"a burst of {size} requests is none; give 1 or more")
    moments = _times(generator, lambda units: units * (size / rate), math.inf)
    return (moment for moment in moments for _ in range(size))


def steps(
    plan: Sequence[tuple[float, float]], generator: np.random.Generator | None = None
) -> Iterator[float]:
    """(rate, duration_s) one after the other; a rate of 0 is a pause. Each step has rate * duration_s arrivals, to within one."""
    for rate, duration_s in plan:
        _check(rate, "rate")
        _check(duration_s, "duration", above=0.0)
    ends_s = np.cumsum([0.0] + [duration_s for _, duration_s in plan])
    counts = np.cumsum([0.0] + [rate * duration_s for rate, duration_s in plan])
    return _times(generator, lambda units: _along_steps(units, ends_s, counts), counts[-1])


def _along_steps(units: Times, ends_s: Times, counts: Times) -> Times:
    """A time at which `units` arrivals are expected; behind a pause, where several are."""
    step = np.searchsorted(counts, units, side="right") - 1
    rates = np.diff(counts) / np.diff(ends_s)
    return ends_s[step] + (units - counts[step]) / rates[step]


def ramp(
    begin_rate: float, end_rate: float, duration_s: float, generator: np.random.Generator | None = None
) -> Iterator[float]:
    """A rate that grows or falls in a straight line from `begin_rate` to `end_rate` within `duration_s`."""
    _check(begin_rate, "rate")
    _check(end_rate, "rate")
    _check(duration_s, "duration", above=0.0)
    slope = (end_rate - begin_rate) / duration_s

    def inverse(units: Times) -> Times:
        # Root of begin_rate * t + slope * t^2 / 2 = units in the form that does not cancel for small slopes.
        root = np.sqrt(np.maximum(0.0, begin_rate**2 + 2.0 * slope * units))
        return np.divide(2.0 * units, begin_rate + root, out=np.zeros_like(units), where=units > 0.0)

    return _times(generator, inverse, (begin_rate + end_rate) / 2.0 * duration_s)


def replay(times_s: Iterable[float], speed: float = 1.0) -> Iterator[float]:
    """Recorded times, the first one as 0, `speed` times as fast.

    A time before the one before it (a log written by several workers) counts as the same moment. Times that are not numbers are
    left out.
    """
    _check(speed, "speed", above=0.0)
    return _replayed(iter(times_s), speed)


def _replayed(times_s: Iterator[float], speed: float) -> Iterator[float]:
    finite = filter(math.isfinite, times_s)
    first_s = next(finite, None)
    if first_s is None:
        return
    for time_s in itertools.accumulate(itertools.chain([first_s], finite), max):
        yield (time_s - first_s) / speed


def _times(generator: np.random.Generator | None, inverse: Inverse, expected: float) -> Iterator[float]:
    """Arrivals of the process whose expected number grows to `expected` in all."""
    for units in _regular() if generator is None else _random(generator):
        inside = units[units < expected]
        yield from inverse(inside).tolist()
        if len(inside) < len(units):
            return


def _regular() -> Iterator[Times]:
    for first in itertools.count(0, _CHUNK):
        yield np.arange(first, first + _CHUNK, dtype=np.float64)


def _random(generator: np.random.Generator) -> Iterator[Times]:
    last = 0.0
    while True:
        units = last + np.cumsum(generator.exponential(size=_CHUNK))
        last = units[-1]
        yield units


def _check(value: float, name: str, above: float = -math.inf) -> None:
    if not math.isfinite(value) or value < 0.0 or value <= above:
        raise UsageError(
            f"a {name} of {value:g} cannot be; give a {'positive ' if above == 0.0 else ''}number"
        )

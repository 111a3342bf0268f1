"""How requests are spread in time, as the command line names it, and the phases that follow from it."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from itertools import chain, pairwise
from typing import NamedTuple, TypeAlias

import numpy as np

from headrace.core.load import arrivals
from headrace.core.load.figures import Phase
from headrace.core.load.recorded import Images, Times
from headrace.errors import UsageError
from headrace.units import parse_duration_s

WARM_UP, RUN = "warm-up", "run"
RAMP_PARTS = 10
"""Phases that a ramp is told in."""
MOST_RATE = 1_000_000.0
_PER_S = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0}
_RATE = re.compile(r"(?P<poisson>poisson:)?(?P<number>\d+(\.\d*)?|\.\d+)(/(?P<per>[smh]))?")


class Clients(NamedTuple):
    """Closed loop: each sends its next request when it has its answer."""

    clients: int


class Rate(NamedTuple):
    """Open loop at one rate; `burst` requests at a time."""

    rate: float
    """Requests a second."""
    poisson: bool = False
    burst: int = 1


class Steps(NamedTuple):
    """Open loop, rates one after the other."""

    rates: Sequence[float]
    each_s: float
    poisson: bool = False


class Ramp(NamedTuple):
    """Open loop at a rate that grows or falls evenly."""

    begin: float
    end: float
    poisson: bool = False


class Replay(NamedTuple):
    """Open loop at recorded times."""

    times_s: Times
    """float64[n] seconds, rising from 0."""
    images: Images
    """int64[n]: which image each asked for, numbered from 0."""
    speed: float = 1.0
    remarks: Sequence[str] = ()
    """What was made of the log."""


Open: TypeAlias = Rate | Steps | Ramp | Replay


def parse_rate(text: str) -> Rate:
    """`200`, `200/s`, `12000/m`, `poisson:200/s`. Raises UsageError."""
    found = _RATE.fullmatch(text.strip())
    rate = float(found["number"]) / _PER_S[found["per"] or ""] if found else 0.0
    if found is None or not 0 < rate <= MOST_RATE:
        raise UsageError(
            f"the rate {text!r} cannot be; write it like 200/s, 30/m or poisson:200/s, above 0 and up to {MOST_RATE:,.0f}/s"
        )
    return Rate(rate, bool(found["poisson"]))


def parse_steps(text: str) -> Steps:
    """`50,100,200x30s`: rates a second, and how long each lasts. Raises UsageError."""
    rates, _, each = text.partition("x")
    try:
        each_s = parse_duration_s(each)
    except ValueError:
        each_s = 0.0
    if each_s <= 0:
        raise UsageError(f"the steps {text!r} do not say how long each lasts; write them like 50,100,200x30s")
    found = [parse_rate(rate) for rate in rates.split(",")]
    return Steps([rate.rate for rate in found], each_s, found[0].poisson)


def parse_ramp(text: str) -> Ramp:
    """`10..500`: from the first rate a second to the last. Raises UsageError."""
    begin, dots, end = text.partition("..")
    if not dots:
        raise UsageError(f"the ramp {text!r} cannot be; write it like 10..500")
    first = parse_rate(begin)
    return Ramp(first.rate, parse_rate(end).rate, first.poisson)


def phases_of(pattern: Clients | Open, warm_up_s: float, run_s: float, name: str = RUN) -> list[Phase]:
    """Warm-up, then the run or its steps; what takes no time is no phase. `name`: of a run without steps."""
    spans = [Phase(WARM_UP, warm_up_s)] if warm_up_s > 0 else []
    if isinstance(pattern, Steps):
        names = _numbered([f"{rate:g}/s" for rate in pattern.rates])
        return spans + [Phase(name, warm_up_s + pattern.each_s * n) for n, name in enumerate(names, 1)]
    if isinstance(pattern, Ramp):
        edges = np.linspace(pattern.begin, pattern.end, RAMP_PARTS + 1)
        names = _numbered([f"{low:.3g}..{high:.3g}/s" for low, high in pairwise(edges)])
        return spans + [Phase(name, warm_up_s + run_s * n / RAMP_PARTS) for n, name in enumerate(names, 1)]
    return [*spans, Phase(name, warm_up_s + run_s)] if run_s > 0 else spans


def arrivals_of(
    pattern: Open, warm_up_s: float, run_s: float, random: np.random.Generator
) -> Iterator[float]:
    """Intended times in seconds since the beginning, the warm-up at the first rate included. A replay ends with its log, all others go on
    at least to the end of the last phase."""
    if isinstance(pattern, Replay):
        return arrivals.replay(pattern.times_s, pattern.speed)
    generator = random if pattern.poisson else None
    if isinstance(pattern, Rate):
        return arrivals.bursts(pattern.rate, pattern.burst, generator)
    first = pattern.rates[0] if isinstance(pattern, Steps) else pattern.begin
    warm_up = arrivals.steps([(first, warm_up_s)], generator) if warm_up_s > 0 else iter(())
    if isinstance(pattern, Steps):
        climb = arrivals.steps([(rate, pattern.each_s) for rate in pattern.rates], generator)
    else:
        climb = arrivals.ramp(pattern.begin, pattern.end, run_s, generator)
    return chain(warm_up, (warm_up_s + time_s for time_s in climb), (math.inf,))


def described(pattern: Clients | Open) -> str:
    """For people."""
    drawn = "Poisson, " if getattr(pattern, "poisson", False) else ""
    match pattern:
        case Clients(clients):
            return f"closed loop, {clients} clients"
        case Rate(rate, _, burst):
            return f"open loop, {drawn}{rate:g}/s" + (f" in bursts of {burst}" if burst > 1 else "")
        case Steps(rates, each_s):
            return f"open loop, {drawn}steps of {each_s:g} s at {', '.join(f'{rate:g}' for rate in rates)}/s"
        case Ramp(begin, end):
            return f"open loop, {drawn}from {begin:g} to {end:g}/s"
        case Replay(times_s, _, speed):
            return f"open loop, replay of {len(times_s):,} recorded times at speed {speed:g}"


def _numbered(names: Sequence[str]) -> list[str]:
    """The same names, those that come again told apart."""
    return [
        f"{name} ({names[:at].count(name) + 1})" if name in names[:at] else name
        for at, name in enumerate(names)
    ]

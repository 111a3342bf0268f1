"""What a service spends its time on, from how it answers different requests: nothing but its endpoint is known. Pure.

The same picture at several sizes tells what goes with its pixels; a body that is no image tells what HTTP takes alone; identical bytes
tell whether answers are kept; more clients tell how many it works for at once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np

from headrace.core.isolation.buildup import LEAST

GARBAGE, LARGE_GARBAGE, TINY, FULL = "no image", "no image, as long", "tiny", "full"
SAME, OWN = "same bytes", "own images"
MOST = 0.5
"""A part is named when it is at least half."""
CACHED = 1.25
"""Identical bytes that are answered this many times as fast are not worked on anew."""


@dataclass(frozen=True, slots=True)
class Answers:
    """One kind of request at one number of clients, a value for each round."""

    kind: str
    clients: int
    megapixels: float
    body_bytes: int
    rates_per_s: tuple[float, ...]
    latencies_s: tuple[float, ...]
    """Median of the round."""

    @property
    def rate_per_s(self) -> float:
        return median(self.rates_per_s)

    @property
    def latency_s(self) -> float:
        return median(self.latencies_s)


@dataclass(frozen=True, slots=True)
class Part:
    """A share of the time an image takes."""

    name: str
    seconds: float
    """Median over rounds, at least 0."""
    share: float
    low: float
    high: float
    """The share in the round where it was smallest, and largest."""

    @property
    def counts(self) -> bool:
        """More than noise: there in every round, and larger than half their range."""
        return self.low > 0.0 and self.share >= (self.high - self.low) / 2.0


@dataclass(frozen=True, slots=True)
class Fit:
    """latency = fixed + per_megapixel x megapixels, one client, least squares."""

    fixed_s: float
    per_megapixel_s: float
    worst_s: float
    """The largest distance of a size from the line: a service that decodes at reduced scale has none straight."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the figures say."""

    clients: int
    """The most that asked at once."""
    parts: tuple[Part, ...]
    """Of the time an image takes with that many (one over the rate), largest first. Where links work side by side, only what the slowest
    takes more than the others shows: the share is what could be won."""
    alone: tuple[Part, ...]
    """Of the latency with the fewest clients, largest first: what one request goes through."""
    slowest: Part | None
    """The one of `parts` that is at least half; None when none is."""
    fit: Fit | None
    scaling: Mapping[int, float]
    """Rate at that number of clients over the rate of one."""
    cached: float | None
    """How many times as fast identical bytes are answered, where that is more than noise."""


def judge(answers: Sequence[Answers]) -> Verdict:
    """Needs FULL with the fewest and the most clients, and TINY with the most. Raises ValueError without."""
    by = {(each.kind, each.clients): each for each in answers}
    numbers = sorted({each.clients for each in answers if each.kind == FULL})
    if not numbers or (TINY, numbers[-1]) not in by:
        raise ValueError("the full picture and the tiny one were not both answered")
    most, fewest = numbers[-1], numbers[0]
    parts = _parts(by, most, _per_image)
    return Verdict(
        clients=most,
        parts=parts,
        alone=_parts(by, fewest, _latencies) if (TINY, fewest) in by else (),
        slowest=parts[0] if parts[0].share >= MOST and parts[0].counts else None,
        fit=_fit([each for each in answers if each.clients == fewest and each.megapixels > 0.0]),
        scaling={
            clients: _paired(by[FULL, clients].rates_per_s, by[FULL, fewest].rates_per_s)
            for clients in numbers
        },
        cached=_cached(by, fewest),
    )


PIXELS, BODY, FIXED, HTTP = "pixels", "body", "fixed", "http"
SAYS = {
    PIXELS: ("decode and resize", "goes with the number of pixels"),
    BODY: ("the network", "goes with the bytes of the body, image or not"),
    FIXED: ("the model and what else is done once an image", "is the same whatever the size of the picture"),
    HTTP: ("HTTP itself", "is what a body takes that is no image"),
}
"""What a part is, and how it is known."""


Times = Callable[[Answers], Sequence[float]]
"""Seconds of each round."""


def _per_image(answers: Answers) -> Sequence[float]:
    return [1.0 / rate for rate in answers.rates_per_s]


def _latencies(answers: Answers) -> Sequence[float]:
    return answers.latencies_s


def _parts(by: Mapping[tuple[str, int], Answers], clients: int, times_of: Times) -> tuple[Part, ...]:
    """Differences of times, from the smallest request to the full one."""
    times = {kind: times_of(each) for (kind, number), each in by.items() if number == clients}
    whole = times[FULL]
    none = [0.0] * len(whole)
    http = times.get(GARBAGE, none)
    body = _more(times[LARGE_GARBAGE], http) if LARGE_GARBAGE in times and GARBAGE in times else none
    parts = {
        HTTP: http,
        BODY: body,
        FIXED: _more(times[TINY], http),
        PIXELS: _more(_more(whole, times[TINY]), body),
    }
    shares = (_part(name, own, whole) for name, own in parts.items() if own is not none)
    return tuple(sorted(shares, key=lambda part: -part.share))


def _more(long: Sequence[float], short: Sequence[float]) -> list[float]:
    return [max(0.0, slow - fast) for slow, fast in zip(long, short, strict=True)]


def _part(name: str, own_s: Sequence[float], whole_s: Sequence[float]) -> Part:
    shares = [min(1.0, own / whole) for own, whole in zip(own_s, whole_s, strict=True)]
    return Part(name, median(own_s), median(shares), min(shares), max(shares))


def _fit(answers: Sequence[Answers]) -> Fit | None:
    """None with fewer than three sizes: two are always on a line."""
    sizes = [each for each in answers if each.kind not in (SAME, OWN)]
    pixels = np.array([each.megapixels for each in sizes])
    if len(set(pixels.tolist())) < 3:
        return None
    times = np.array([each.latency_s for each in sizes])
    slope, fixed = np.polyfit(pixels, times, 1)
    worst = float(np.max(np.abs(fixed + slope * pixels - times)))
    return Fit(max(0.0, float(fixed)), float(slope), worst)


def _cached(by: Mapping[tuple[str, int], Answers], clients: int) -> float | None:
    if (SAME, clients) not in by or (FULL, clients) not in by:
        return None
    same, anew = by[SAME, clients].latencies_s, by[FULL, clients].latencies_s
    ratios = [slow / fast for slow, fast in zip(anew, same, strict=True)]
    return median(ratios) if median(ratios) >= CACHED and min(ratios) > 1.0 + LEAST else None


def _paired(rates: Sequence[float], bases: Sequence[float]) -> float:
    return median(rate / base for rate, base in zip(rates, bases, strict=True))

"""How far two sets are from each other: what is sent in production, and what a service is tested with.

A difference counts when it is larger than chance makes in samples of these sizes, and large enough to matter.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import inf, log, pi, sqrt
from typing import Literal

import numpy as np

from headrace.core.census.facts import Makeup, Sizes

MATTERS_SHARE = 0.1
"""A tenth of the requests: fewer that differ leave throughput and p90 where they are."""
MATTERS_RATIO = 1.5
"""Of medians or of 95th percentiles: the time to decode grows with pixels and bytes, and a factor below this is not told apart from
another machine or another decoder."""
TOO_NOISY = 0.25
"""Where chance alone may make so large a distance, that none shows means nothing."""
ENOUGH_IMAGES = 100
"""On each side: `ks_noise` is then 0.23."""
_RISK = 0.01
"""How often two samples of the same source are called different, for each property."""

Finding = Literal["differs", "alike", "too few to tell"]


@dataclass(frozen=True, slots=True)
class Difference:
    """One property of both sets."""

    property: str
    finding: Finding
    distance: float
    """Sizes: Kolmogorov-Smirnov, the largest difference between the shares up to a size. Kinds: total variation, the share that would have
    to be of another kind. 0..1."""
    noise: float
    """What the distance of two samples of the same source stays below 99 times in 100."""
    ratio: float | None = None
    """Sizes: production's quantile divided by the test set's, where they are farthest apart."""
    quantile: float | None = None
    """Which quantile that is."""
    label: str | None = None
    """Kinds: the one whose share differs most."""
    production: float | None = None
    """That quantile, or that label's share."""
    test: float | None = None


def compare(production: Makeup, test: Makeup) -> tuple[Difference, ...]:
    """Every property that both sets know, those of sizes first."""
    return tuple(_differences(production, test))


def _differences(production: Makeup, test: Makeup) -> Iterator[Difference]:
    worth = production.worth, test.worth
    for name, sizes in production.sizes.items():
        if name in test.sizes:
            yield _of_sizes(name, sizes, test.sizes[name], worth)
    for name, kinds in production.kinds.items():
        if name in test.kinds:
            yield of_kinds(name, kinds, test.kinds[name], worth)


def _of_sizes(name: str, production: Sizes, test: Sizes, worth: tuple[float, float]) -> Difference:
    distance, noise = ks_distance(production, test), ks_noise(*worth)
    # With fewer images a 95th percentile is one or two single ones.
    shares = (0.5, 0.95) if min(worth) >= ENOUGH_IMAGES else (0.5,)
    pairs = [(share, production.quantile(share), test.quantile(share)) for share in shares]
    share, ours, theirs = max(pairs, key=lambda pair: abs(log(_ratio(pair[1], pair[2]))))
    ratio = _ratio(ours, theirs)
    matters = distance > MATTERS_SHARE and max(ratio, 1 / ratio) >= MATTERS_RATIO
    return Difference(
        property=name,
        finding=_finding(distance, noise, matters),
        distance=distance,
        noise=noise,
        ratio=ratio,
        quantile=share,
        production=ours,
        test=theirs,
    )


def of_kinds(
    name: str,
    production: Mapping[str, int],
    test: Mapping[str, int],
    worth: tuple[float, float],
    label: str | None = None,
) -> Difference:
    """Two tallies by label. `worth` is how many independent observations each has; `label` the one to tell of, if it is known."""
    ours, theirs = _shares(production), _shares(test)
    labels = sorted(ours.keys() | theirs.keys())
    distance = sum(abs(ours.get(label, 0.0) - theirs.get(label, 0.0)) for label in labels) / 2
    noise = tv_noise(ours, theirs, *worth)
    label = label or max(labels, key=lambda label: abs(ours.get(label, 0.0) - theirs.get(label, 0.0)))
    return Difference(
        property=name,
        finding=_finding(distance, noise, distance > MATTERS_SHARE),
        distance=distance,
        noise=noise,
        label=label,
        production=ours.get(label, 0.0),
        test=theirs.get(label, 0.0),
    )


def _finding(distance: float, noise: float, matters: bool) -> Finding:
    if matters:
        return "differs" if distance > noise else "too few to tell"
    return "alike" if noise <= TOO_NOISY or distance == 0 else "too few to tell"


def _ratio(above: float, below: float) -> float:
    return max(above, 1.0) / max(below, 1.0)


def _shares(tally: Mapping[str, int]) -> dict[str, float]:
    total = sum(tally.values())
    return {label: count / total for label, count in tally.items()}


def ks_distance(one: Sizes, other: Sizes) -> float:
    """The largest difference between the two cumulative shares, 0..1."""
    values = np.union1d(one.values, other.values)
    return float(np.abs(_cumulative(one, values) - _cumulative(other, values)).max())


def _cumulative(sizes: Sizes, values: np.ndarray) -> np.ndarray:
    upto = np.concatenate(([0.0], np.cumsum(sizes.counts)))
    return np.asarray(upto[np.searchsorted(sizes.values, values, side="right")] / sizes.total)


def ks_noise(one: float, other: float) -> float:
    """What the distance of samples of `one` and `other` values exceeds once in 100: sqrt(-ln(risk / 2) / 2 * (1 / one + 1 / other)),
    Smirnov's limit for large samples; it is on the safe side for small ones and for values that repeat."""
    if not one or not other:
        return inf
    return sqrt(-log(_RISK / 2) / 2 * (1 / one + 1 / other))


def tv_noise(ours: Mapping[str, float], theirs: Mapping[str, float], one: float, other: float) -> float:
    """A bound on what the distance of two samples of the same shares exceeds once in 100.

    With spread = 1/one + 1/other and p the pooled share of a label, its mean is about half the sum over labels of sqrt(2 p (1 - p) spread /
    pi). One observation moves it by one over its sample's size, so it exceeds its mean by sqrt(-ln(risk) / 2 * spread) once in 100 at
    most (McDiarmid).
    """
    if not one or not other:
        return inf
    spread = 1 / one + 1 / other
    pooled = [
        (one * ours.get(label, 0.0) + other * theirs.get(label, 0.0)) / (one + other)
        for label in ours.keys() | theirs.keys()
    ]
    mean = sum(sqrt(2 * share * (1 - share) * spread / pi) for share in pooled) / 2
    return mean + sqrt(-log(_RISK) / 2 * spread)

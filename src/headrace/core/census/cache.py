"""What a cache of each size would be worth, under each policy on offer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import hypot, inf, nan, sqrt

import numpy as np
import numpy.typing as npt

from headrace.core.census.reuse import (
    FEWEST_ENTRIES,
    GROUPS,
    T_95,
    KeySample,
    Ratio,
    lru_hit_ratios,
    stack_distances,
)
from headrace.core.policy.eviction import POLICIES, Eviction

MOST_SIMULATED = 40_000
"""Requests: the machines take some microseconds for each, for each size and policy."""
NEEDS_ALL = frozenset({"sieve"})
"""Policies that no sample tells of. SIEVE's hand may stand by the newest entries and take each unless the very next requests use it; in a
sample the next ones are farther apart. Measured on 2.5 million requests whose popular images changed: 49.5 % answered, 57.5 % by a
sample of 1 in 64. The others go by shares of the cache, which a sample keeps."""
FEWEST_REQUESTS = 100
"""With fewer nothing is said of a cache."""
_ENOUGH = 0.9
"""Of all that a cache without bound could answer: from there on, more room buys little."""


@dataclass(frozen=True, slots=True)
class CacheSize:
    """One size of the cache."""

    entries: int
    hits: Mapping[str, Ratio]
    """By policy: the share of all requests answered, starting empty. NaN where the sample is too small to tell."""


@dataclass(frozen=True, slots=True)
class CacheWorth:
    """What caches would have made of this traffic."""

    ceiling: Ratio
    """Share of requests that repeat an image: what a cache without bound answers."""
    sizes: tuple[CacheSize, ...]
    """Rising; the last holds every image."""
    rate: float
    """Share of the images that the figures come from; 1.0: all."""

    @property
    def enough(self) -> CacheSize:
        """The smallest size at which LRU answers nine tenths of what it could."""
        return next(
            (size for size in self.sizes if size.hits["lru"].value >= _ENOUGH * self.ceiling.value),
            self.sizes[-1],
        )


def cache_worth(
    sample: KeySample,
    images: int,
    policies: Sequence[str] = tuple(POLICIES),
    most_simulated: int = MOST_SIMULATED,
) -> CacheWorth | None:
    """Sizes 10, 20, 50, 100, ... up to all `images`; LRU always, and the `policies` (names of `POLICIES`). None for too few requests.

    Policies beside LRU are run on a sample of at most `most_simulated` requests.
    """
    if sample.requests < FEWEST_REQUESTS:
        return None
    entries = _sizes(images)
    *lru, ceiling = lru_hit_ratios(sample, [*entries, inf])
    lru[-1] = ceiling
    thin = sample.thinned(most_simulated)
    sizes = []
    for size, ratio in zip(entries, lru, strict=True):
        others = {
            name: _other(thin, size, name, ratio) for name in policies if name != "lru" and size < images
        }
        full = {name: ceiling for name in policies if size >= images}
        sizes.append(CacheSize(size, {"lru": ratio, **others, **full}))
    return CacheWorth(ceiling, tuple(sizes), sample.rate)


def _other(thin: KeySample, entries: int, policy: str, lru: Ratio) -> Ratio:
    if policy in NEEDS_ALL and thin.rate < 1:
        return Ratio(nan, nan)
    return hit_ratio(thin, entries, POLICIES[policy], lru)


def _sizes(images: int) -> list[int]:
    series = [step * 10**power for power in range(1, len(str(images)) + 1) for step in (1, 2, 5)]
    return [*(size for size in series if size < images), images]


def hit_ratio(thin: KeySample, entries: float, policy: Callable[[int], Eviction], lru: Ratio) -> Ratio:
    """The share of requests that a cache of `entries` images answers under `policy`; `lru` is the share it answers under LRU.

    Both are run on the sample `thin`, in a cache made smaller in the same measure (Waldspurger et al., ATC 2017), and only what the policy
    gains there is added to `lru`: the sample's error is in both, and most of it cancels out. The half width of the gain is from ten
    groups of images; where the policy's own curve falls off a cliff, as in a pure loop, it is too narrow. NaN where the cache is too
    small for the sample.
    """
    capacity = round(entries * thin.rate)
    if capacity < FEWEST_ENTRIES and thin.rate < 1:
        return Ratio(nan, nan)
    distances = stack_distances(thin.keys)
    lru_missed = (distances < 0) | (distances >= entries * thin.rate)
    gained = lru_missed.astype(np.int64) - _missed(thin.keys, policy(max(1, capacity)))
    expected = max(1.0, thin.rate * thin.requests)
    of_groups = np.bincount((thin.keys % np.uint64(GROUPS)).astype(np.int64), gained, GROUPS)
    half_width = T_95 * sqrt(GROUPS * np.var(of_groups, ddof=1)) / expected if thin.rate < 1 else 0.0
    hit = lru.value + gained.sum() / expected
    return Ratio(min(1.0, max(0.0, float(hit))), hypot(lru.half_width, half_width))


def _missed(keys: npt.NDArray[np.uint64], cache: Eviction) -> npt.NDArray[np.int64]:
    """int64[n]: 1 where the cache did not have the key; every entry takes one byte of it."""
    missed = np.zeros(len(keys), np.int64)
    for place, key in enumerate(keys.tolist()):
        if not cache.get(key):
            cache.put(key, 1)
            missed[place] = 1
    return missed

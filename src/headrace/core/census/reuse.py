"""How often a cache that drops the least recently used entry would be hit, for every size at once.

A request is a hit when fewer different images than the cache holds were asked for since the same image came last: its stack distance
(Mattson et al., IBM Systems Journal 1970). Long traffic is sampled by image, as in SHARDS (Waldspurger et al., FAST 2015): all requests
of an image whose hash lies below a threshold are kept, distances among them are divided by the share of images kept, and misses are held
against the requests expected in the sample, not against those found in it.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Keys = npt.NDArray[np.uint64]
Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

MOST_KEPT = 1 << 20
"""Requests. Up to here all are kept and the curve is exact; past it some half as many are, which tells the hit rate of a cache of
some thousand images to about a point."""
GROUPS = 10
T_95 = 2.262
"""Student's t, 97.5 %, for one degree of freedom fewer than groups."""
FEWEST_ENTRIES = 10
"""A cache must hold so many images of the sample: below that the sample has nothing to say about it."""


def key_hash(key: str) -> int:
    """64 bits, evenly spread whatever the keys look like."""
    return int.from_bytes(blake2b(key.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "little")


@dataclass(frozen=True, slots=True)
class KeySample:
    """Requests in the order they came: of all images, or of those whose hash is small enough."""

    keys: Keys
    """uint64[kept], the hash of each request's image."""
    rate: float
    """Share of the images that was kept; 1.0: all."""
    requests: int
    """All of them, kept or not."""

    @property
    def images(self) -> int:
        """Different images among all requests; estimated when not all were kept."""
        return round(len(np.unique(self.keys)) / self.rate)

    def thinned(self, most: int) -> KeySample:
        """A sample of this sample, of at most `most` requests; all requests of an image stay or go together."""
        sample = self
        while len(sample.keys) > most and sample.rate > 2.0**-64:
            rate = sample.rate / 2
            sample = replace(sample, keys=sample.keys[sample.keys < np.uint64(rate * 2**64)], rate=rate)
        return sample


class KeySampler:
    """Told every request; keeps at most `most` of them by halving the share of images it keeps."""

    __slots__ = ("_keys", "_limit", "_most", "_requests")

    def __init__(self, most: int = MOST_KEPT) -> None:
        self._keys = array("Q")
        self._limit = 1 << 64
        self._most = most
        self._requests = 0

    def add(self, key: int) -> None:
        """`key` is a hash, as of `key_hash`."""
        self._requests += 1
        if key < self._limit:
            self._keys.append(key)
            while len(self._keys) > self._most and self._limit > 1:
                self._limit >>= 1
                kept = np.frombuffer(self._keys, np.uint64)
                self._keys = array("Q", kept[kept < self._limit].tobytes())

    def sample(self) -> KeySample:
        return KeySample(np.array(self._keys, np.uint64), self._limit / 2**64, self._requests)


class Ratio(NamedTuple):
    """A share of all requests, and how far off it may be: 95 times in 100 the true one lies within `half_width`. 0: exact."""

    value: float
    half_width: float = 0.0


def lru_hit_ratios(sample: KeySample, entries: npt.ArrayLike) -> list[Ratio]:
    """The share of all requests that caches of `entries` images (float[n]; inf: no bound) answer, starting empty. NaN where a size is too
    small for the sample.

    The half width is that of the delete-a-group jackknife over ten groups of images: each is left out in turn, and the curve drawn anew.
    It is about this traffic; what tomorrow's is like, it cannot know.
    """
    sizes = np.asarray(entries, np.float64)
    hits = 1 - _miss_ratios(sample, sizes)
    if sample.rate == 1.0:
        return [Ratio(float(hit)) for hit in hits]
    group = sample.keys % np.uint64(GROUPS)
    share = 1 - 1 / GROUPS
    without = [
        1 - _miss_ratios(replace(sample, keys=sample.keys[group != one], rate=sample.rate * share), sizes)
        for one in range(GROUPS)
    ]
    half_widths = T_95 * np.sqrt(np.var(without, axis=0) * (GROUPS - 1))
    told = sizes * sample.rate >= FEWEST_ENTRIES
    return [
        Ratio(min(1.0, max(0.0, float(hit))), float(half)) if tell else Ratio(float("nan"), float("nan"))
        for hit, half, tell in zip(hits, half_widths, told, strict=True)
    ]


def _miss_ratios(sample: KeySample, sizes: Floats) -> Floats:
    distances = stack_distances(sample.keys)
    first = np.count_nonzero(distances < 0)
    reused = np.sort(distances[distances >= 0]) / sample.rate
    missed = first + len(reused) - np.searchsorted(reused, sizes, side="left")
    return np.asarray(missed / max(1.0, sample.rate * sample.requests))


def stack_distances(keys: npt.NDArray[np.generic]) -> Ints:
    """int64[n]: how many different keys came between a key and its last coming; -1 where it comes for the first time. O(n log n).

    Between, each key counts once: at the place whose own last coming lies before the span. So the distance is the length of the span
    less the places in it that repeat a key of the span.
    """
    count = len(keys)
    order = np.argsort(keys, kind="stable")
    again = keys[order[1:]] == keys[order[:-1]]
    last = np.full(count, -1, np.int64)
    last[order[1:][again]] = order[:-1][again]
    places = np.flatnonzero(last >= 0)
    distances = np.full(count, -1, np.int64)
    distances[places] = places - last[places] - 1 - _greater_before(last[places])
    return distances


def _greater_before(values: Ints) -> Ints:
    """For each of n different values, how many of those before it are greater.

    Two ranks differ first at some bit: there, a place whose bit is 0 counts the 1s before it among the ranks equal above that bit.
    Padded to a power of two, these ranks fill one block, which is then parted by the bit, stably.
    """
    count = len(values)
    levels = max(0, count - 1).bit_length()
    ranks = np.arange(1 << levels, dtype=np.int32)
    ranks[np.argsort(values)] = np.arange(count, dtype=np.int32)
    own, greater = ranks[:count].copy(), np.zeros(1 << levels, np.int32)
    for level in reversed(range(levels)):
        high = (ranks >> level & 1).astype(bool)
        ones_before = np.cumsum(high.reshape(-1, 2 << level), axis=1, dtype=np.int32).ravel()
        greater[ranks[~high]] += ones_before[~high]
        halves = ranks[~high].reshape(-1, 1 << level), ranks[high].reshape(-1, 1 << level)
        ranks = np.stack(halves, axis=1).ravel()
    return greater[own].astype(np.int64)

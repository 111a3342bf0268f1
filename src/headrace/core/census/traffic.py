"""Requests as they came: how fast, for what, how often again."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from headrace.core.census.arrivals import ArrivalCounter, Arrivals
from headrace.core.census.facts import Makeup, Sizes
from headrace.core.census.log_lines import LogEntry
from headrace.core.census.popularity import Top, TopKeys, zipf_exponent
from headrace.core.census.reuse import KeySample, KeySampler, key_hash

_MOST_TOP = 10_000
_BODIES = 0.5
"""Where more of the requests are posted, the log is one of addresses, not of images."""
_SIZE_BITS = 10
"""Sizes are kept to 1 part in 1,000, so that they take bounded memory."""
_STILL_DEMAND = frozenset({408, 429, 499})
"""Of the 4xx: the client was slow, was refused for load, or gave up; the image was wanted."""


@dataclass(frozen=True, slots=True)
class Traffic:
    """What a log or a load run tells of its requests."""

    keys: KeySample
    top: Top
    zipf: float | None
    """Exponent, as of `zipf_exponent`."""
    arrivals: Arrivals | None
    sizes: Sizes | None
    """Bytes of whole answers (status 200 or not told)."""
    posted_share: float
    """Of the requests, those whose image was in the body."""
    left_out: int
    """Requests that were no demand for an image: answered 4xx, but for time-outs, load and clients that gave up."""

    @property
    def images(self) -> int:
        """Different keys; estimated when there are many requests for many."""
        return (
            len(self.top.names)
            if not self.top.short_by and len(self.top.names) < _MOST_TOP
            else self.keys.images
        )

    @property
    def names_images(self) -> bool:
        return self.posted_share <= _BODIES

    def makeup(self) -> Makeup | None:
        """What can be compared; None when the log has no sizes, or not those of images."""
        if self.sizes is None or not self.names_images:
            return None
        requests, counted = self.keys.requests, sum(self.top.counts)
        squares = sum(count * count for count in self.top.counts) + requests - counted
        return Makeup(self.images, requests**2 / max(1, squares), {"bytes": self.sizes}, {})


class TrafficCounter:
    """Told every request in order; bounded memory, but for the seconds that had requests."""

    def __init__(self) -> None:
        self._sampler = KeySampler()
        self._top = TopKeys()
        self._arrivals = ArrivalCounter()
        self._sizes: Counter[int] = Counter()
        self._posted = self._requests = self._left_out = 0

    def add(self, entry: LogEntry) -> None:
        status = entry.status
        if status is not None and 400 <= status < 500 and status not in _STILL_DEMAND:
            self._left_out += 1
            return
        key = key_hash(entry.key)
        self._requests += 1
        self._posted += entry.posted
        self._sampler.add(key)
        self._top.add(key, entry.key)
        self._arrivals.add(entry.t_s)
        if entry.size_bytes and status in (None, 200):
            shift = max(0, entry.size_bytes.bit_length() - _SIZE_BITS)
            self._sizes[entry.size_bytes >> shift << shift] += 1

    def traffic(self) -> Traffic:
        top = self._top.top(_MOST_TOP)
        return Traffic(
            keys=self._sampler.sample(),
            top=top,
            zipf=zipf_exponent(top.counts),
            arrivals=self._arrivals.arrivals(),
            sizes=Sizes.of(self._sizes) if self._sizes else None,
            posted_share=self._posted / max(1, self._requests),
            left_out=self._left_out,
        )


def repeats(sample: KeySample, requests: int) -> dict[str, int]:
    """The first `requests`, by whether they ask for an image for the first time or repeat one: as many as a sample should have of them."""
    expected = round(requests * sample.rate)
    first = min(expected, len(set(sample.keys[:expected].tolist())))
    return {"first": first, "repeat": expected - first}

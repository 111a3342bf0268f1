"""`headrace census`: what traffic is made of, whether the test set is like it, and what a cache would be worth (R8, R19)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from headrace.core.census import findings
from headrace.core.census.cache import MOST_SIMULATED, CacheWorth, cache_worth
from headrace.core.census.compare import Difference, compare, of_kinds
from headrace.core.census.facts import Sizes
from headrace.core.census.reuse import MOST_KEPT
from headrace.core.census.traffic import Traffic, repeats
from headrace.core.policy.eviction import POLICIES
from headrace.workflows.census_sources import Counted, Reading, count

QUANTILES = (0.05, 0.5, 0.95, 1.0)
_TOP = 10


@dataclass(frozen=True, slots=True)
class CensusReport:
    """What was found, and the figures behind it."""

    findings: tuple[str, ...]
    """Sentences, the one that matters most first."""
    counted: Counted
    against: Counted | None
    differences: tuple[Difference, ...]
    cache: CacheWorth | None
    entry_bytes: int | None
    """What one entry of the cache takes; None: not told."""

    def as_dict(self) -> dict[str, Any]:
        """For JSON. Ratios are shares of all requests."""
        return {
            "format": 1,
            "findings": list(self.findings),
            "counted": _side(self.counted),
            "against": _side(self.against) if self.against else None,
            "differences": [asdict(difference) for difference in self.differences],
            "cache": _cache(self.cache, self.entry_bytes) if self.cache else None,
        }


def census(
    places: Sequence[Path],
    *,
    against: Sequence[Path] = (),
    policies: Sequence[str] = tuple(POLICIES),
    entry_bytes: int | None = None,
    thorough: bool = False,
    reading: Reading | None = None,
) -> CensusReport:
    """Counts the images, access logs or capture at `places` (what production sends), and `against` (what is tested with).

    Images are known by their headers only. `policies` are names of `POLICIES`; `thorough` runs those beside LRU on every request kept, not
    on a small sample. Images and lines that cannot be read are counted and told. Raises UsageError or CaptureError when a place cannot
    be read at all.
    """
    reading = reading or Reading()
    counted = count(places, reading)
    other = count(against, reading) if against else None
    differences = _differences(counted, other) if other else ()
    traffic = counted.traffic
    worth = None
    if traffic is not None and traffic.names_images:
        most = MOST_KEPT if thorough else MOST_SIMULATED
        worth = cache_worth(traffic.keys, traffic.images, policies, most)
    said = tuple(_findings(counted, other, differences, worth, entry_bytes))
    return CensusReport(said, counted, other, differences, worth, entry_bytes)


def _differences(production: Counted, test: Counted) -> tuple[Difference, ...]:
    found: tuple[Difference, ...] = ()
    if production.makeup and test.makeup:
        found = compare(production.makeup, test.makeup)
    ours, theirs = production.traffic, test.traffic
    if ours and theirs and ours.names_images and theirs.names_images:
        found += (_repeats(ours, theirs),)
    return found


def _repeats(ours: Traffic, theirs: Traffic) -> Difference:
    """Over as many requests of the one as of the other: the longer one watches, the more repeats there are."""
    requests = min(ours.keys.requests, theirs.keys.requests)
    tallies = repeats(ours.keys, requests), repeats(theirs.keys, requests)
    return of_kinds("repeats", *tallies, (requests, requests), label="repeat")


def _findings(
    counted: Counted,
    other: Counted | None,
    differences: Sequence[Difference],
    worth: CacheWorth | None,
    entry_bytes: int | None,
) -> Iterator[str]:
    if other is not None:
        yield from findings.mismatch(differences, (_images_of(counted), _images_of(other)))
    if counted.traffic is not None:
        if counted.traffic.keys.requests:
            yield findings.cache(worth, counted.traffic, entry_bytes)
        yield findings.requests(counted.traffic)
    elif counted.makeup is not None:
        yield from findings.images(counted.makeup, counted.repeated)


def _images_of(counted: Counted) -> int:
    if counted.makeup is not None:
        return counted.makeup.images
    return counted.traffic.images if counted.traffic is not None else 0


def _side(counted: Counted) -> dict[str, Any]:
    makeup = counted.makeup
    return {
        "place": counted.place,
        "images": makeup.images if makeup else None,
        "sizes": {name: _sizes(sizes) for name, sizes in makeup.sizes.items()} if makeup else {},
        "kinds": makeup.kinds if makeup else {},
        "sizes_of_answers": counted.sizes_of_answers,
        "largest": counted.largest,
        "repeated": counted.repeated,
        "requests": _traffic(counted.traffic) if counted.traffic else None,
        "unreadable": counted.unreadable,
        "unreadable_examples": counted.examples,
        "remarks": counted.remarks,
    }


def _sizes(sizes: Sizes) -> dict[str, float]:
    return {f"p{100 * share:g}": sizes.quantile(share) for share in QUANTILES}


def _traffic(traffic: Traffic) -> dict[str, Any]:
    arrivals, top = traffic.arrivals, traffic.top
    return {
        "requests": traffic.keys.requests,
        "left_out": traffic.left_out,
        "posted_ratio": traffic.posted_share,
        "images": traffic.images if traffic.names_images else None,
        "zipf_exponent": traffic.zipf,
        "top": [
            {"key": name, "requests": requests}
            for name, requests in zip(top.names[:_TOP], top.counts[:_TOP], strict=True)
        ],
        "top_ratio": {str(first): top.share(first) for first in (1, 10, 100)},
        "arrivals": {
            "first_s": arrivals.first_s,
            "last_s": arrivals.last_s,
            "mean_per_s": arrivals.mean_per_s,
            "peak_1s": arrivals.peak_1s,
            "index_of_dispersion": {f"{window}s": value for window, value in arrivals.dispersion.items()},
            "longest_gap_s": arrivals.longest_gap_s,
        }
        if arrivals
        else None,
    }


def _cache(worth: CacheWorth, entry_bytes: int | None) -> dict[str, Any]:
    return {
        "ceiling": worth.ceiling._asdict(),
        "exact": worth.rate == 1.0,
        "sample_rate": worth.rate,
        "entry_bytes": entry_bytes,
        "sizes": [
            {
                "entries": size.entries,
                "bytes": size.entries * entry_bytes if entry_bytes else None,
                "hits": {name: ratio._asdict() for name, ratio in size.hits.items()},
            }
            for size in worth.sizes
        ],
    }

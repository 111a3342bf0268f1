"""The census for people: findings first, then the figures."""

from __future__ import annotations

from collections.abc import Iterator
from math import isnan

from headrace.cli import output
from headrace.core.census.cache import CacheWorth
from headrace.core.census.compare import MATTERS_RATIO, MATTERS_SHARE, Difference
from headrace.core.census.facts import Makeup, Sizes
from headrace.core.census.findings import megapixels, percent
from headrace.core.census.reuse import Ratio
from headrace.core.census.traffic import Traffic
from headrace.units import format_bytes
from headrace.workflows.census import CensusReport
from headrace.workflows.census_sources import Counted

_POLICIES = {"lru": "LRU", "sieve": "SIEVE", "s3fifo": "S3-FIFO"}
_QUANTILES = {"p5": 0.05, "median": 0.5, "p95": 0.95, "largest": 1.0}
_LABELS = 5
_TOP = 5
_LONGEST_KEY = 60
_WIDEST = 0.05
"""Half width of a hit rate that is still shown."""
_LONG_GAP = 0.25
"""Of the time a log covers: two logs rather than one."""


def page(report: CensusReport) -> str:
    """Everything but the JSON's details."""
    counted, against = report.counted, report.against
    lines = [*report.findings, *_unread(counted), *(_unread(against) if against else ())]
    if against is not None:
        lines += [
            "",
            f"production: {counted.place}",
            f"test set: {against.place}",
            "",
            *_compared(report, counted, against),
        ]
    elif counted.makeup is not None and counted.makeup.images:
        lines += ["", *_makeup(counted.makeup)]
    if counted.largest is not None:
        lines.append(f"largest: {counted.largest}")
    if counted.sizes_of_answers:
        lines.append(
            "bytes: of answers with status 200; those of images only if this log is of the server that stores them"
        )
    if counted.traffic is not None and counted.traffic.keys.requests:
        lines += ["", *_traffic(counted.traffic)]
    if report.cache is not None:
        lines += ["", *_cache(report.cache, report.entry_bytes)]
    return printable("\n".join(lines))


def _unread(counted: Counted) -> Iterator[str]:
    for reason, times in counted.unreadable.items():
        yield f"Not read in {counted.place}: {times:,} ({reason})."
    yield from (f"  {example}" for example in counted.examples)
    yield from (f"Note: {remark}." for remark in counted.remarks)


def _makeup(makeup: Makeup) -> Iterator[str]:
    rows = [
        [name, *(_size(name, sizes, share) for share in _QUANTILES.values())]
        for name, sizes in makeup.sizes.items()
    ]
    if rows:
        yield output.table(["", *_QUANTILES], rows, frozenset(range(1, 1 + len(_QUANTILES))))
    for name, labels in makeup.kinds.items():
        total = sum(labels.values())
        yield f"{name}: " + ", ".join(
            f"{label} {percent(labels[label] / total)}" for label in list(labels)[:_LABELS]
        )


def _size(name: str, sizes: Sizes, share: float) -> str:
    return megapixels(sizes.quantile(share)) if name == "pixels" else format_bytes(sizes.quantile(share))


def _compared(report: CensusReport, counted: Counted, against: Counted) -> Iterator[str]:
    """Both distributions side by side; the distance between them stands in a property's first row."""
    rows: list[list[str]] = []
    for difference in report.differences:
        verdict = [
            difference.finding,
            f"{difference.distance:.2f}",
            f"{difference.noise:.2f}" if difference.noise < 1 else "all",
        ]
        for what, ours, theirs in _pairs(difference, counted.makeup, against.makeup):
            rows.append([what, ours, theirs, *verdict])
            verdict = ["", "", ""]
    if rows:
        head = ["", "production", "test set", "finding", "distance", "by chance"]
        yield output.table(head, rows, frozenset({1, 2, 4, 5}))
        yield (
            f"differs: farther than by chance and than {MATTERS_SHARE:g}; sizes also by a factor of {MATTERS_RATIO:g} in the median or p95"
        )


def _pairs(
    difference: Difference, ours: Makeup | None, theirs: Makeup | None
) -> Iterator[tuple[str, str, str]]:
    name = difference.property
    if ours is None or theirs is None or name not in {*ours.sizes, *ours.kinds}:
        yield (
            f"{name}: {difference.label}",
            percent(difference.production or 0.0),
            percent(difference.test or 0.0),
        )
    elif name in ours.sizes:
        for label, share in _QUANTILES.items():
            yield (
                f"{name}: {label}",
                _size(name, ours.sizes[name], share),
                _size(name, theirs.sizes[name], share),
            )
    else:
        one, other = ours.kinds[name], theirs.kinds[name]
        for label in list({**one, **other})[:_LABELS]:
            mine, yours = (percent(labels.get(label, 0) / sum(labels.values())) for labels in (one, other))
            yield f"{name}: {label}", mine, yours


def _traffic(traffic: Traffic) -> Iterator[str]:
    arrivals, top = traffic.arrivals, traffic.top
    if arrivals is not None and arrivals.dispersion:
        figures = ", ".join(f"{value:.3g} over {window} s" for window, value in arrivals.dispersion.items())
        yield f"burstiness: variance of the requests by their mean {figures} (1 when arrivals are independent)"
    if arrivals is not None and arrivals.longest_gap_s > _LONG_GAP * arrivals.span_s:
        yield f"a gap of {arrivals.longest_gap_s:.0f} s is in the {arrivals.span_s:.0f} s that the log covers; rates are means over it, too"
    shares = ", ".join(
        f"first {first} {percent(top.share(first))}" for first in (1, 10, 100) if first <= len(top.names)
    )
    zipf = (
        f"; by rank they fall off as in Zipf's law with exponent {traffic.zipf:.2f}"
        if traffic.zipf is not None
        else ""
    )
    yield f"most asked for: {shares}{zipf}"
    for name, requests in zip(top.names[:_TOP], top.counts[:_TOP], strict=True):
        yield f"  {percent(requests / top.requests):>7}  {_short(name)}"
    if traffic.left_out:
        yield f"left out: {traffic.left_out:,} answered 4xx, which were no demand for an image"


def _cache(worth: CacheWorth, entry_bytes: int | None) -> Iterator[str]:
    policies = list(worth.sizes[0].hits)
    head = ["images", *(["memory"] if entry_bytes else []), *(_POLICIES[name] for name in policies)]
    rows = [
        [
            f"{size.entries:,}",
            *([format_bytes(size.entries * entry_bytes)] if entry_bytes else []),
            *(_ratio(size.hits[name]) for name in policies),
        ]
        for size in worth.sizes
        if not all(map(_untold, size.hits.values()))
    ]
    yield "requests that a cache answers, starting empty:"
    yield output.table(head, rows, frozenset(range(len(head))))
    if worth.rate < 1:
        yield f"from 1 in {1 / worth.rate:.0f} of the images"
    if any(ratio.half_width > 0 for size in worth.sizes for ratio in size.hits.values()):
        yield "95 times in 100 the true share lies within the +-; it is about this traffic, not tomorrow's"
    if any(_untold(ratio) for size in worth.sizes for ratio in size.hits.values()):
        yield f"?: not told within {100 * _WIDEST:g} points by a sample (--thorough runs the policies beside LRU on more requests)"
    if not entry_bytes:
        yield "--recipe FILE or --entry-bytes SIZE shows the memory"


def _ratio(ratio: Ratio) -> str:
    if _untold(ratio):
        return "?"
    return percent(ratio.value) + (f" +-{100 * ratio.half_width:.2g}" if ratio.half_width else "")


def _untold(ratio: Ratio) -> bool:
    return isnan(ratio.value) or ratio.half_width > _WIDEST


def _short(key: str) -> str:
    return key if len(key) <= _LONGEST_KEY else f"{key[: _LONGEST_KEY - 3]}..."


def printable(text: str) -> str:
    """Without what would steer a terminal: keys and names come from strangers."""
    return "".join(letter if letter.isprintable() or letter == "\n" else "?" for letter in text)

"""What a census found, in sentences; the figures behind them are in the tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import ceil, isfinite

from headrace.core.census.cache import FEWEST_REQUESTS, CacheWorth
from headrace.core.census.compare import ENOUGH_IMAGES, TOO_NOISY, Difference
from headrace.core.census.facts import Makeup, Sizes
from headrace.core.census.traffic import Traffic
from headrace.units import format_bytes, format_rate

NO_GAIN = 0.01
"""A cache that answers h of the requests raises throughput by 1 / (1 - h) at most: at 1 % nobody could measure it."""


def mismatch(differences: Sequence[Difference], images: tuple[int, int]) -> Iterator[str]:
    """The verdict on the test set, then every further difference. `images`: different ones of production and of the test set."""
    found = [_said(difference) for difference in differences if difference.finding == "differs"]
    if found:
        yield f"The test set is not like production: {found[0]}."
        yield from (f"Also: {sentence}." for sentence in found[1:])
        return
    unsure = [difference.property for difference in differences if difference.finding == "too few to tell"]
    if not differences:
        yield "Test set and production know no property in common: nothing can be said of how they differ."
    elif unsure:
        yield (
            f"No difference shows between test set and production, but {images[0]:,} and {images[1]:,} images are too few to tell in "
            f"{_listed(unsure)}; some {_enough(differences, images):,} on each side would do."
        )
    else:
        yield f"The test set is like production in {_listed([difference.property for difference in differences])}."


def _enough(differences: Sequence[Difference], images: tuple[int, int]) -> int:
    """Images on each side for every doubt to be settled: noise falls with the root of their number. In round hundreds."""
    spread = sum(1 / max(1, count) for count in images)
    unsure = [one for one in differences if one.finding == "too few to tell" and isfinite(one.noise)]
    aims = [one.distance if one.noise <= TOO_NOISY else TOO_NOISY for one in unsure]
    needed = [2 / spread * (one.noise / aim) ** 2 for one, aim in zip(unsure, aims, strict=True)]
    return 100 * ceil(max(needed, default=ENOUGH_IMAGES) / 100)


def _said(difference: Difference) -> str:
    ours, theirs = difference.production or 0.0, difference.test or 0.0
    if difference.ratio is not None:
        tail = difference.quantile != 0.5
        which, more, less, factor = "production", ours, theirs, difference.ratio
        if factor < 1:
            which, more, less, factor = "test", theirs, ours, 1 / factor
        form = megapixels if difference.property == "pixels" else format_bytes
        return (
            f"{'the largest ' if tail else ''}{which} images have {factor:.3g} times the {difference.property} "
            f"({'95th percentile' if tail else 'median'} {form(more)} against {form(less)})"
        )
    if difference.property == "repeats":
        return (
            f"{percent(ours)} of production's requests repeat an image, {percent(theirs)} of the test set's"
        )
    return f"{difference.property} {difference.label}: {percent(ours)} of production, {percent(theirs)} of the test set"


def cache(worth: CacheWorth | None, traffic: Traffic, entry_bytes: int | None) -> str:
    """Whether a cache would help, and how large it should be."""
    if not traffic.names_images:
        return (
            f"Of repeats, and so of a cache, nothing can be said: {percent(traffic.posted_share)} of the requests carry their image in the "
            "body, and the log names only the address. Log a name or digest of the image, and say which field: --fields url=NAME."
        )
    if worth is None:
        return f"{_many(traffic.keys.requests, 'request')} are too few to say what a cache would do; {FEWEST_REQUESTS} are the least."
    ceiling, half_width = worth.ceiling
    if ceiling + half_width < NO_GAIN:
        return f"A cache would gain nothing: {percent(ceiling)} of requests repeat an image."
    enough = worth.enough
    size = f"{enough.entries:,} images" + (
        f" ({format_bytes(enough.entries * entry_bytes)})" if entry_bytes else ""
    )
    return (
        f"A cache of {size} would answer {percent(enough.hits['lru'].value)} of requests; none can answer more than {percent(ceiling)}, "
        "since the others ask for an image for the first time."
    )


def requests(traffic: Traffic) -> str:
    """How many, for how many images, how fast."""
    if not traffic.keys.requests:
        return f"No request was demand for an image: all {traffic.left_out:,} were answered 4xx."
    what = _many(traffic.keys.requests, "request")
    what += f" for {_many(traffic.images, 'image')}" if traffic.names_images else ""
    arrivals = traffic.arrivals
    if arrivals is None:
        return f"{what}; the log has no times."
    return (
        f"{what} in {duration(arrivals.span_s)}: {format_rate(arrivals.mean_per_s)} a second, {arrivals.peak_1s:,} in the busiest "
        f"({arrivals.peak_to_mean:.3g} times the mean)."
    )


def images(makeup: Makeup, repeated: int) -> Iterator[str]:
    """What a set of images is made of, and how many files are copies."""
    medians = [_median(name, sizes) for name, sizes in makeup.sizes.items()]
    formats = makeup.kinds.get("format", {})
    total = sum(formats.values())
    shares = [f"{percent(count / total)} {label}" for label, count in list(formats.items())[:3]]
    yield (
        f"{_many(makeup.images, 'image')}: "
        + ", ".join([" and ".join(medians) + " in the median", *shares])
        + "."
    )
    if repeated:
        yield f"{repeated:,} of them ({percent(repeated / makeup.images)}) hold the same bytes as another one."


def _median(name: str, sizes: Sizes) -> str:
    return megapixels(sizes.quantile(0.5)) if name == "pixels" else format_bytes(sizes.quantile(0.5))


def megapixels(pixels: float) -> str:
    """12000000 -> '12.0 MP'."""
    return f"{pixels / 1e6:.1f} MP" if pixels >= 1e6 else f"{pixels / 1e6:.2g} MP"


def percent(share: float) -> str:
    """0.123 -> '12.3 %', 0.0004 -> '0.04 %'; never '100 %' or '0 %' for what is not quite that."""
    if share in (0, 1):
        return f"{share:.0%}".replace("%", " %")
    if 0.001 <= share <= 0.999:
        return f"{share * 100:.1f} %"
    return f"{min(99.99, max(0.01, share * 100)):.2f} %"


def duration(span_s: float) -> str:
    """In the two largest units."""
    units = (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1))
    left = round(span_s)
    parts: list[str] = []
    for name, unit_s in units:
        if left >= unit_s or (name == "s" and not parts):
            parts.append(f"{left // unit_s} {name}")
            left %= unit_s
    return " ".join(parts[:2])


def _many(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def _listed(words: Sequence[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"

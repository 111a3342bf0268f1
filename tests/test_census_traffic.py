"""Arrivals, popularity, and what counts as demand: against plain counting, and against laws with known figures."""

from __future__ import annotations

import math
from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.census.arrivals import ArrivalCounter, Arrivals
from headrace.core.census.log_lines import LogEntry
from headrace.core.census.popularity import TopKeys, zipf_exponent
from headrace.core.census.traffic import Traffic, TrafficCounter


def arrivals_of(times: list[float]) -> Arrivals | None:
    counter = ArrivalCounter()
    for time_s in times:
        counter.add(time_s)
    return counter.arrivals()


@given(times=st.lists(st.floats(-100, 100), min_size=1, max_size=200))
def test_arrivals_are_what_counting_by_hand_gives(times: list[float]) -> None:
    found = arrivals_of(times)
    assert found is not None
    seconds = Counter(math.floor(time_s) for time_s in times)
    span = max(seconds) - min(seconds) + 1
    assert found.requests == len(times) and found.span_s == span
    assert found.mean_per_s == pytest.approx(len(times) / span)
    assert found.peak_1s == max(seconds.values())
    every = np.array([seconds.get(second, 0) for second in range(min(seconds), max(seconds) + 1)], float)
    for window in (1, 10):
        windows = span // window
        assert (window in found.dispersion) == (windows >= 10)
        if windows >= 10:
            sums = every[: windows * window].reshape(windows, window).sum(axis=1)
            assert found.dispersion[window] == pytest.approx(sums.var() / sums.mean(), abs=1e-9)
    ordered = sorted(seconds)
    gaps = [later - earlier for earlier, later in pairwise(ordered)]
    assert found.longest_gap_s == max(gaps, default=0)
    assert arrivals_of(times[::-1]) == found, "the order does not matter"


def test_many_times_are_merged_piece_by_piece() -> None:
    random = np.random.default_rng(1)
    times = np.cumsum(random.exponential(0.01, 150_000))
    found = arrivals_of(times.tolist())
    assert found is not None and found.requests == 150_000
    assert found.peak_1s == np.bincount(times.astype(int)).max()
    assert found.dispersion[1] == pytest.approx(1, abs=0.15), "independent arrivals"


def test_bursts_show_in_the_dispersion_and_a_metronome_too() -> None:
    bursts = arrivals_of([second + part / 100 for second in range(0, 600, 10) for part in range(50)])
    metronome = arrivals_of([second / 5 for second in range(3000)])
    assert bursts is not None and metronome is not None
    assert bursts.dispersion[1] > 40 and bursts.peak_to_mean > 9
    assert metronome.dispersion[1] == 0 and metronome.peak_to_mean == 1


def test_times_that_are_none_are_not_counted() -> None:
    assert arrivals_of([math.nan, math.inf, -math.inf, 1e300]) is None
    found = arrivals_of([math.nan, 5.0, 5.5])
    assert found is not None and found.requests == 2 and found.dispersion == {}


@given(
    keys=st.lists(st.one_of(st.integers(0, 3), st.integers(0, 500)), max_size=300), most=st.integers(1, 20)
)
def test_a_frequent_key_is_never_missed_and_counts_are_off_by_no_more_than_told(
    keys: list[int], most: int
) -> None:
    counter, exact = TopKeys(most), Counter(keys)
    for key in keys:
        counter.add(key, f"/{key}")
    top = counter.top(1000)
    counted = dict(zip(top.names, top.counts, strict=True))
    assert top.requests == len(keys) and top.short_by <= len(keys) / (most + 1)
    for key, count in exact.items():
        assert count - top.short_by <= counted.get(f"/{key}", 0) <= count
        assert count <= len(keys) / (most + 1) or f"/{key}" in counted
    assert list(top.counts) == sorted(top.counts, reverse=True)
    assert top.short_by == 0 or len(exact) > most


def test_shares_of_the_top_and_long_names() -> None:
    counter = TopKeys()
    for key, times in ((1, 6), (2, 3), (3, 1)):
        for _ in range(times):
            counter.add(key, str(key) * 1000)
    top = counter.top(2)
    assert [len(name) for name in top.names] == [200, 200]
    assert top.share(1) == 0.6 and top.share(2) == pytest.approx(0.9)
    assert math.isnan(TopKeys().top(5).share(1))


@pytest.mark.parametrize("exponent", [0.6, 0.8, 1.0, 1.3])
def test_the_exponent_of_a_zipf_law_is_found(exponent: float) -> None:
    shares = np.arange(1, 20_001) ** -exponent
    counts = np.random.default_rng(5).multinomial(300_000, shares / shares.sum())
    found = zipf_exponent(sorted(counts.tolist(), reverse=True))
    assert found == pytest.approx(exponent, abs=0.06)


def test_no_exponent_where_there_is_nothing_to_fit() -> None:
    assert zipf_exponent([1000] * 19) is None and zipf_exponent([9] * 5000) is None
    assert zipf_exponent([100] * 500) == pytest.approx(0, abs=0.01)


def traffic_of(entries: list[LogEntry]) -> Traffic:
    counter = TrafficCounter()
    for entry in entries:
        counter.add(entry)
    return counter.traffic()


@pytest.mark.parametrize(
    ("status", "counts"),
    [
        (None, True),
        (200, True),
        (304, True),
        (404, False),
        (415, False),
        (408, True),
        (429, True),
        (499, True),
        (503, True),
    ],
)
def test_what_counts_as_demand(status: int | None, counts: bool) -> None:
    traffic = traffic_of([LogEntry(1.0, "/a", 100, status)])
    assert (traffic.keys.requests, traffic.left_out) == ((1, 0) if counts else (0, 1))
    assert (traffic.sizes is not None) == (status in (None, 200)), "other answers are not the image"


def test_sizes_are_kept_to_a_thousandth() -> None:
    sizes = [1, 1000, 1023, 123_456, 9_876_543_210]
    traffic = traffic_of([LogEntry(1.0, f"/{size}", size) for size in sizes])
    assert traffic.sizes is not None
    assert traffic.sizes.values.tolist() == pytest.approx(sizes, rel=1 / 512)
    assert (traffic.sizes.values <= sizes).all()


def test_posted_images_have_no_names() -> None:
    entries = [LogEntry(float(n), "/predict", 500, 200, posted=True) for n in range(30)]
    traffic = traffic_of([*entries, LogEntry(31.0, "/healthz", 5, 200)])
    assert not traffic.names_images and traffic.makeup() is None
    assert traffic_of([LogEntry(1.0, "/a.jpg", 500, 200)]).names_images


def test_different_images_are_exact_while_every_key_has_a_counter() -> None:
    assert traffic_of([LogEntry(float(n), f"/{n % 700}") for n in range(3000)]).images == 700
    assert traffic_of([LogEntry(float(n), f"/{n}") for n in range(12_000)]).images == 12_000

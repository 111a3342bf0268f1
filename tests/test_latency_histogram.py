"""The latency histogram: its buckets, what survives merging and storing, and how sure its quantiles are."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.stats.batched import FEWEST_BATCHES, MOST_BATCHES, BatchedLatencies
from headrace.core.stats.latency import (
    BUCKET_ERROR,
    BUCKETS,
    MOST_US,
    Latencies,
    bucket_low_us,
    buckets_of,
    supported,
)
from headrace.core.stats.order_statistics import quantile_ranks

latency = st.integers(0, MOST_US) | st.integers(0, 2000)
latencies = st.lists(latency, max_size=200).map(lambda values: np.array(values, np.int64))
shares = st.sampled_from((0.5, 0.9, 0.95, 0.99, 0.999))


def histogram(values: np.ndarray) -> Latencies:
    made = Latencies()
    made.add_many(values)
    return made


def test_buckets_follow_each_other_without_a_gap() -> None:
    lows = [bucket_low_us(bucket) for bucket in range(BUCKETS + 1)]
    assert lows[0] == 0 and lows[-1] > MOST_US
    assert all(low < high for low, high in pairwise(lows))
    assert all(high - low <= max(1, low * BUCKET_ERROR) for low, high in pairwise(lows))


def test_every_edge_falls_into_its_own_bucket() -> None:
    lows = np.array([bucket_low_us(bucket) for bucket in range(BUCKETS)], np.int64)
    assert (buckets_of(lows) == np.arange(BUCKETS)).all()
    assert (buckets_of(lows[1:] - 1) == np.arange(BUCKETS - 1)).all()


@given(latency)
def test_a_value_is_found_again_within_one_percent(value: int) -> None:
    assert abs(histogram(np.array([value])).quantile(0.5) - value) <= value * 0.01


@given(latencies)
def test_quantiles_are_those_of_the_sorted_values(values: np.ndarray) -> None:
    found = histogram(values)
    assert found.count == len(values)
    for share in (0.01, 0.5, 0.9, 0.99, 1.0):
        if not len(values):
            assert math.isnan(found.quantile(share))
            continue
        true = np.sort(values)[max(1, math.ceil(share * len(values) - 1e-9)) - 1]
        assert abs(found.quantile(share) - true) <= true * 0.01


@given(latencies, latencies)
def test_merging_is_adding(first: np.ndarray, second: np.ndarray) -> None:
    merged = histogram(first)
    merged.merge(histogram(second))
    both = histogram(np.concatenate([first, second]))
    assert list(merged.rows("run", "ok")) == list(both.rows("run", "ok"))


@given(latencies)
def test_rows_give_the_same_histogram_back(values: np.ndarray) -> None:
    rows = list(histogram(values).rows("run", "ok"))
    assert sum(row.requests for row in rows) == len(values)
    assert all(row.requests > 0 and row.low_us < row.high_us for row in rows)
    assert list(Latencies.from_rows(rows).rows("run", "ok")) == rows


def test_values_out_of_range_count_at_the_ends() -> None:
    found = histogram(np.array([-5, 10**15]))
    assert [row.low_us for row in found.rows("run", "ok")] == [0, bucket_low_us(BUCKETS - 1)]


@given(latencies, latency)
def test_above_counts_higher_buckets(values: np.ndarray, value: int) -> None:
    assert histogram(values).above(value) == sum(buckets_of(values) > buckets_of(np.array([value]))[0])


@pytest.mark.parametrize(("share", "fewest"), [(0.5, 3), (0.9, 11), (0.99, 101), (0.999, 1001)])
def test_a_quantile_needs_more_than_one_request_beyond_it(share: float, fewest: int) -> None:
    assert supported(share, fewest) and not supported(share, fewest - 1)


# --- order statistics --------------------------------------------------------------------------------------------------------


def below(count: int, share: float, fewer_than: int) -> float:
    """P(Binomial(count, share) < fewer_than), summed term by term."""
    return math.fsum(
        math.comb(count, k) * share**k * (1 - share) ** (count - k) for k in range(max(0, fewer_than))
    )


@given(st.integers(1, 900), shares | st.floats(0.02, 0.98), st.sampled_from((0.8, 0.95, 0.99)))
def test_ranks_are_the_closest_that_keep_the_confidence(count: int, share: float, confidence: float) -> None:
    doubt = (1 - confidence) / 2
    low, high = quantile_ranks(count, share, confidence)
    slack = 1e-9 if count * share * (1 - share) <= 100 else 0.004
    assert below(count, share, low or 0) <= doubt + slack
    assert below(count, share, (low or 0) + 1) > doubt - slack
    assert 1 - below(count, share, high or count + 1) <= doubt + slack
    if high is None:
        assert 1 - below(count, share, count) > doubt - slack
    else:
        assert 1 - below(count, share, high - 1) > doubt - slack


def test_a_small_sample_sets_no_upper_bound() -> None:
    assert quantile_ranks(299, 0.99)[1] is None and quantile_ranks(400, 0.99)[1] is not None
    assert quantile_ranks(0, 0.5) == (None, None) and quantile_ranks(5, 0.5) == (None, None)
    few = histogram(np.arange(100) * 1000)
    assert math.isnan(few.interval(0.99).high_us) and few.interval(0.99).low_us > 90_000


def test_intervals_of_independent_latencies_hold_what_they_promise() -> None:
    random, true_us = np.random.default_rng(7), -math.log(0.01) * 20_000
    inside = 0
    for _ in range(400):
        found = histogram(random.exponential(20_000, 2_000).astype(np.int64)).interval(0.99)
        inside += found.low_us <= true_us <= found.high_us
    assert 0.93 <= inside / 400 <= 0.99


# --- latencies that depend on each other -------------------------------------------------------------------------------------


def queue(random: np.random.Generator, busy: float, count: int) -> np.ndarray:
    """Latencies of successive customers of M/M/1 in microseconds, mean service 10 ms (Lindley's recursion)."""
    gaps, services = random.exponential(10_000 / busy, count), random.exponential(10_000, count)
    found, wait = np.empty(count), 0.0
    for at in range(count):
        wait = max(0.0, wait - gaps[at])
        wait += services[at]
        found[at] = wait
    return found.astype(np.int64)


@pytest.mark.parametrize(("busy", "count"), [(0.7, 10_000), (0.85, 10_000)])
def test_intervals_of_a_queue_are_wide_enough_where_independence_is_not(busy: float, count: int) -> None:
    """The p99 is known: latency is exponential with mean service / (1 - busy)."""
    random, true_us = np.random.default_rng(11), -math.log(0.01) * 10_000 / (1 - busy)
    batched = naive = 0
    for _ in range(60):
        found = BatchedLatencies()
        found.add_many(queue(random, busy, count))
        low, high = found.interval(0.99)
        batched += low <= true_us and not high < true_us
        low, high = found.total().interval(0.99)
        naive += low <= true_us <= high
    assert batched >= 52 and naive <= 30


def test_independent_latencies_depend_on_nothing() -> None:
    found = BatchedLatencies()
    found.add_many(np.random.default_rng(3).integers(0, 10**6, 50_000))
    assert 1 <= found.dependence(0.99) < 1.8
    steady = BatchedLatencies()
    steady.add_many(np.full(5_000, 20_000))
    assert steady.dependence(0.99) == 1
    low, high = steady.interval(0.99)
    assert low <= 20_000 <= high <= low * 1.01


@given(st.lists(st.integers(0, 700), max_size=30))
def test_chunks_do_not_matter(sizes: list[int]) -> None:
    values = np.random.default_rng(1).integers(0, 10**6, sum(sizes))
    whole, pieces = BatchedLatencies(), BatchedLatencies()
    whole.add_many(values)
    for start, size in zip(np.cumsum([0, *sizes]), sizes, strict=False):
        pieces.add_many(values[start : start + size])
    assert whole.count == pieces.count == len(values)
    assert list(whole.total().rows("run", "ok")) == list(pieces.total().rows("run", "ok"))
    assert str(whole.dependence(0.99)) == str(pieces.dependence(0.99))


def test_few_batches_tell_nothing_and_many_are_never_kept() -> None:
    few = BatchedLatencies()
    few.add_many(np.full(16 * FEWEST_BATCHES - 1, 5))
    assert math.isnan(few.dependence(0.99)) and math.isnan(few.interval(0.99).low_us)
    few.add_many(np.full(1, 5))
    assert few.dependence(0.99) == 1
    few.add_many(np.full(1_000_000, 5))
    assert len(few._batches) < MOST_BATCHES

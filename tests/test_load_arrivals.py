"""Intended times: in order, exact in the mean, without drift, and of the law they promise."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import islice, pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.load import arrivals
from headrace.errors import UsageError

RATES = st.floats(0.01, 1e5)


def _seeded(seed: int = 7) -> np.random.Generator:
    return np.random.default_rng(seed)


def _until(times: Iterator[float], end_s: float) -> list[float]:
    found = []
    for time_s in times:
        if time_s >= end_s:
            break
        found.append(time_s)
    return found


def _exponential_p_value(gaps: list[float], mean: float) -> float:
    """Kolmogorov-Smirnov against the exponential law; p from Kolmogorov's asymptotic series."""
    gaps_sorted = np.sort(gaps)
    law = 1.0 - np.exp(-gaps_sorted / mean)
    steps = np.arange(len(gaps) + 1) / len(gaps)
    distance = max(np.max(steps[1:] - law), np.max(law - steps[:-1]))
    root = distance * math.sqrt(len(gaps))
    return 2.0 * sum((-1) ** (k - 1) * math.exp(-2.0 * (k * root) ** 2) for k in range(1, 101))


# --- constant --------------------------------------------------------------------------------------------------------------


@given(RATES, st.integers(0, 5000))
def test_the_nth_constant_arrival_is_at_n_over_rate(rate: float, n: int) -> None:
    assert next(islice(arrivals.constant(rate), n, None)) == n / rate


def test_minutes_of_constant_arrivals_do_not_drift() -> None:
    # 0.0005 summed a million times is off by far more than one rounding.
    assert next(islice(arrivals.constant(2000.0), 1_000_000, None)) == 500.0
    assert sum([0.0005] * 1_000_000) != 500.0


# --- Poisson ---------------------------------------------------------------------------------------------------------------


def test_poisson_gaps_are_exponential() -> None:
    times = list(islice(arrivals.poisson(50.0, _seeded()), 20_000))
    gaps = [later - earlier for earlier, later in pairwise([0.0, *times])]
    assert _exponential_p_value(gaps, 1 / 50.0) > 0.001
    assert _exponential_p_value(gaps, 1 / 52.0) < 0.001, "the test would see a rate 4 % off"


def test_poisson_counts_vary_as_much_as_their_mean() -> None:
    times = np.array(_until(arrivals.poisson(20.0, _seeded()), 2000.0))
    counts = np.bincount(times.astype(int), minlength=2000)
    # Mean 20 within 4 standard errors sqrt(20 / 2000); the index of dispersion of 2,000 counts is 1 +- 4 * sqrt(2 / 2000).
    assert abs(counts.mean() - 20.0) < 0.4
    assert abs(counts.var() / counts.mean() - 1.0) < 0.13


@given(st.integers(0, 2**32))
def test_a_seed_gives_the_same_arrivals_again(seed: int) -> None:
    first = list(islice(arrivals.poisson(10.0, _seeded(seed)), 1500))
    assert first == list(islice(arrivals.poisson(10.0, _seeded(seed)), 1500))
    assert first != list(islice(arrivals.poisson(10.0, _seeded(seed + 1)), 1500))


# --- bursts ----------------------------------------------------------------------------------------------------------------


@given(RATES, st.integers(1, 50), st.integers(0, 100))
def test_bursts_come_together_and_keep_the_mean_rate(rate: float, size: int, count: int) -> None:
    times = list(islice(arrivals.bursts(rate, size), (count + 1) * size))
    assert all(time_s == times[n - n % size] for n, time_s in enumerate(times))
    assert times[-1] == pytest.approx(count * size / rate, rel=1e-12)


def test_random_bursts_are_poisson_in_their_moments() -> None:
    times = list(islice(arrivals.bursts(100.0, 5, _seeded()), 50_000))
    assert all(len(set(times[n : n + 5])) == 1 for n in range(0, 50_000, 5))
    gaps = [later - earlier for earlier, later in pairwise([0.0, *times[::5]])]
    assert _exponential_p_value(gaps, 5 / 100.0) > 0.001


# --- steps and ramps -------------------------------------------------------------------------------------------------------


@given(st.lists(st.tuples(st.floats(0, 500), st.floats(0.1, 3)), min_size=1, max_size=6))
def test_each_step_has_its_share_of_arrivals(plan: list[tuple[float, float]]) -> None:
    times = np.array(list(arrivals.steps(plan)))
    assert np.all(np.diff(times) >= 0)
    ends = np.cumsum([0.0] + [duration_s for _, duration_s in plan])
    for (rate, duration_s), begin, end in zip(plan, ends, ends[1:], strict=False):
        inside = np.sum((times >= begin - 1e-9) & (times < end - 1e-9))
        assert abs(inside - rate * duration_s) <= 1 + 1e-6
    assert len(times) == pytest.approx(sum(rate * duration_s for rate, duration_s in plan), abs=1)


def test_no_arrival_falls_into_a_pause() -> None:
    times = list(arrivals.steps([(10, 1), (0, 5), (10, 1)]))
    assert times == pytest.approx([*(n / 10 for n in range(10)), *(6 + n / 10 for n in range(10))])


@given(st.floats(0, 300), st.floats(0, 300), st.floats(0.5, 5))
def test_a_ramp_follows_the_integral_of_its_rate(begin: float, end: float, duration_s: float) -> None:
    times = np.array(list(arrivals.ramp(begin, end, duration_s)))
    assert np.all(np.diff(times) >= 0) and np.all(times <= duration_s)
    expected = begin * times + (end - begin) / duration_s * times**2 / 2
    assert expected == pytest.approx(np.arange(len(times)), abs=1e-6)
    assert len(times) == pytest.approx((begin + end) / 2 * duration_s, abs=1)


def test_random_steps_and_ramps_keep_their_mean() -> None:
    steps = len(list(arrivals.steps([(100, 50), (300, 50)], _seeded())))
    ramp = len(list(arrivals.ramp(0, 400, 100, _seeded())))
    assert abs(steps - 20_000) < 4 * math.sqrt(20_000)
    assert abs(ramp - 20_000) < 4 * math.sqrt(20_000)


def test_a_random_ramp_is_poisson_once_its_rate_is_straightened() -> None:
    times = np.array(list(arrivals.ramp(50, 150, 100, _seeded())))
    units = 50 * times + times**2 / 2
    assert _exponential_p_value(list(np.diff(units)), 1.0) > 0.001


# --- replay ----------------------------------------------------------------------------------------------------------------


def test_replay_starts_at_zero_and_keeps_gaps() -> None:
    assert list(arrivals.replay([1000.0, 1000.5, 1002.0])) == [0.0, 0.5, 2.0]
    assert list(arrivals.replay([1000.0, 1000.5, 1002.0], speed=2)) == [0.0, 0.25, 1.0]
    assert list(arrivals.replay([])) == []


@given(st.lists(st.one_of(st.floats(0, 1e9), st.just(math.nan), st.just(math.inf))), st.floats(0.1, 10))
def test_replay_never_runs_backwards(times: list[float], speed: float) -> None:
    replayed = list(arrivals.replay(times, speed))
    assert len(replayed) == sum(map(math.isfinite, times))
    assert all(0 <= earlier <= later for earlier, later in pairwise(replayed))


# --- refused ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rate", [0.0, -1.0, math.nan, math.inf])
def test_rates_that_cannot_be_are_refused_at_once(rate: float) -> None:
    with pytest.raises(UsageError, match="rate"):
        arrivals.constant(rate)
    with pytest.raises(UsageError, match="rate"):
        arrivals.poisson(rate, _seeded())
    with pytest.raises(UsageError, match="rate"):
        arrivals.bursts(rate, 2)


def test_other_values_that_cannot_be_are_refused_at_once() -> None:
    with pytest.raises(UsageError, match="burst"):
        arrivals.bursts(1.0, 0)
    with pytest.raises(UsageError, match="duration"):
        arrivals.steps([(1.0, 0.0)])
    with pytest.raises(UsageError, match="rate"):
        arrivals.ramp(1.0, -1.0, 1.0)
    with pytest.raises(UsageError, match="speed"):
        arrivals.replay([1.0], speed=0.0)

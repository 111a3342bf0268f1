"""Queues with a known answer: published values, other published formulas, limits, and seeded simulations within computed intervals."""

from __future__ import annotations

import math
from fractions import Fraction
from heapq import heapreplace
from statistics import NormalDist

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.queueing.theory import (
    ConstantService,
    Queue,
    allen_cunneen_mean_wait_s,
    erlang_c,
    mg1_mean_wait_s,
    mm1_sojourn_quantile_s,
    mmc_mean_wait_s,
    mmc_sojourn_quantile_s,
    mmc_wait_quantile_s,
)

Floats = npt.NDArray[np.float64]
queues = st.builds(
    lambda servers, busy, service_s: Queue(busy * servers / service_s, service_s, servers),
    st.integers(1, 40),
    st.floats(0.05, 0.97),
    st.floats(1e-4, 10.0),
)


def waits(arrivals: Floats, services: Floats, servers: int = 1) -> Floats:
    """Time in the queue of each, first come first served, from an empty start."""
    if servers == 1:
        steps = np.concatenate([[0.0], np.cumsum(services[:-1] - np.diff(arrivals))])
        return steps - np.minimum.accumulate(steps)
    free, found = [0.0] * servers, np.empty(len(arrivals))
    for number, (arrives, service) in enumerate(zip(arrivals.tolist(), services.tolist(), strict=True)):
        start = max(arrives, free[0])
        found[number] = start - arrives
        heapreplace(free, start + service)
    return found


def poisson_times(rng: np.random.Generator, rate: float, count: int) -> Floats:
    return np.cumsum(rng.exponential(1.0 / rate, count))


# --- M/M/c ---------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("servers", "erlang", "share"),
    [(1, 0.5, 0.5), (2, 1.0, 0.3333), (5, 4.0, 0.5541), (10, 8.0, 0.4092), (20, 16.0, 0.2561)],
)
def test_erlang_c_as_in_the_tables(servers: int, erlang: float, share: float) -> None:
    assert erlang_c(Queue(erlang, 1.0, servers)) == pytest.approx(share, abs=6e-5)


def test_the_emergency_room_of_the_textbook() -> None:
    """Hillier and Lieberman: 2 patients an hour, 20 minutes each; with one doctor 2/3 h of waiting, with two 1/24 h."""
    assert mmc_mean_wait_s(Queue(2.0, 1 / 3, 1)) == pytest.approx(2 / 3)
    assert mmc_mean_wait_s(Queue(2.0, 1 / 3, 2)) == pytest.approx(1 / 24)


@given(queues)
def test_erlang_c_is_his_sum(queue: Queue) -> None:
    a, c = Fraction(queue.offered), queue.servers
    last = a**c / math.factorial(c) * Fraction(c) / (c - a)
    total = sum(a**k / math.factorial(k) for k in range(c)) + last
    assert erlang_c(queue) == pytest.approx(float(last / total), rel=1e-9)


def test_thousands_of_servers_do_not_overflow() -> None:
    assert 0.0 < erlang_c(Queue(9_900.0, 1.0, 10_000)) < 1.0


@given(queues, st.floats(0.0, 0.9999))
def test_one_server_is_m_m_1(queue: Queue, share: float) -> None:
    alone = Queue(queue.utilisation / queue.service_s, queue.service_s)
    assert mmc_sojourn_quantile_s(alone, share) == pytest.approx(
        mm1_sojourn_quantile_s(alone, share), rel=1e-6
    )
    assert mmc_mean_wait_s(alone) == pytest.approx(mg1_mean_wait_s(alone, 1.0), rel=1e-6)


@given(queues, st.floats(0.5, 0.999))
def test_quantiles_of_m_m_c_add_up_to_its_mean(queue: Queue, share: float) -> None:
    waiting = erlang_c(queue)
    quantile = mmc_wait_quantile_s(queue, share)
    if quantile > 0.0:
        assert waiting * math.exp(-queue.spare_per_s * quantile) == pytest.approx(1.0 - share, rel=1e-6)
    assert quantile <= mmc_sojourn_quantile_s(queue, share) <= quantile + queue.service_s * 20


def test_sojourn_of_m_m_c_where_its_formula_has_a_hole() -> None:
    """c - a = 1: two exponentials of the same rate."""
    quantiles = [mmc_sojourn_quantile_s(Queue(rate, 1.0, 3), 0.99) for rate in (1.9999, 2.0, 2.0001)]
    assert quantiles[0] < quantiles[1] < quantiles[2] and quantiles[2] - quantiles[0] < 1e-3


# --- constant service ------------------------------------------------------------------------------------------------------------


@given(st.floats(0.01, 0.999))
def test_m_d_1_has_the_mean_of_pollaczek_and_khinchine(busy: float) -> None:
    queue = Queue(busy / 3.0, 3.0)
    assert ConstantService(queue).mean_wait_s == pytest.approx(mg1_mean_wait_s(queue, 0.0), rel=1e-9)


@given(st.floats(0.05, 0.9), st.floats(0.0, 6.0))
def test_m_d_1_is_erlangs_distribution(busy: float, time: float) -> None:
    """Erlang 1909: alternating terms, so in exact fractions but for the exponential."""
    rate, y = Fraction(busy), Fraction(time)
    expected = float(1 - rate) * sum(
        float((-rate * (y - k)) ** k / math.factorial(k)) * math.exp(float(rate * (y - k)))
        for k in range(math.floor(time) + 1)
    )
    assert ConstantService(Queue(busy, 1.0)).waits_within(time) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("servers", [1, 2, 3, 8, 30])
@pytest.mark.parametrize("busy", [0.2, 0.5, 0.8, 0.9])
def test_m_d_c_has_crommelins_mean(servers: int, busy: float) -> None:
    """Crommelin 1932: D sum_i (P(A >= ic) - P(A > ic) / busy), A Poisson of mean i c busy."""
    assert ConstantService(Queue(busy * servers, 1.0, servers)).mean_wait_s == pytest.approx(
        crommelin(servers, busy), rel=1e-6, abs=1e-13
    )


def crommelin(servers: int, busy: float) -> float:
    total = 0.0
    for i in range(1, 6000):
        mean, at = i * servers * busy, i * servers
        log_pmf = at * math.log(mean) - mean - math.lgamma(at + 1)
        if log_pmf < -45.0:
            break
        pmf, above, term, count = math.exp(log_pmf), 0.0, math.exp(log_pmf), at
        while term > 1e-18 * pmf:
            count += 1
            term *= mean / count
            above += term
        total += (pmf + above) - above / busy
    return total


@given(st.integers(1, 12), st.floats(0.05, 0.95))
def test_waits_of_m_d_c_are_a_distribution_with_its_mean(servers: int, busy: float) -> None:
    known = ConstantService(Queue(busy * servers, 1.0, servers))
    times = np.linspace(0.0, known.wait_quantile_s(1.0 - 1e-9) + 1.0, 4000)
    shares = np.array([known.waits_within(float(time)) for time in times[:: max(1, len(times) // 400)]])
    assert np.all(np.diff(shares) >= -1e-12) and shares[0] >= 0.0 and shares[-1] <= 1.0 + 1e-12
    assert known.waits_within(float(times[-1])) == pytest.approx(1.0, abs=1e-8)
    steps = times[:: max(1, len(times) // 400)]
    rest = float(np.trapezoid(1.0 - shares, steps))
    assert rest == pytest.approx(known.mean_wait_s, rel=0.02, abs=1e-4)


@given(st.integers(1, 20), st.floats(0.05, 0.95), st.floats(0.0, 0.9999))
def test_quantiles_invert_the_distribution(servers: int, busy: float, share: float) -> None:
    known = ConstantService(Queue(busy * servers * 5.0, 0.2, servers))
    time = known.wait_quantile_s(share)
    assert known.sojourn_quantile_s(share) == time + 0.2
    assert known.waits_within(time) >= share - 1e-9
    if time > 0.0:
        assert known.waits_within(time) == pytest.approx(share, abs=1e-6)


def test_full_queues_wait_as_in_heavy_traffic() -> None:
    """Kingman: near 1 the wait is exponential with the mean of the approximation."""
    queue = Queue(4 * 0.999, 1.0, 4)
    known = ConstantService(queue)
    assert known.mean_wait_s == pytest.approx(allen_cunneen_mean_wait_s(queue, 1.0, 0.0), rel=0.01)
    assert known.wait_quantile_s(0.99) == pytest.approx(known.mean_wait_s * math.log(100), rel=0.01)


@pytest.mark.parametrize("servers", [1, 3])
@pytest.mark.parametrize("share", [0.5, 0.9, 0.99])
def test_m_d_c_as_simulated(servers: int, share: float) -> None:
    """The mean share over independent runs is within its normal interval around the computed one."""
    rng = np.random.default_rng([7, servers])
    known = ConstantService(Queue(0.8 * servers, 1.0, servers))
    limit = known.wait_quantile_s(share)
    shares = []
    for _ in range(30):
        found = waits(poisson_times(rng, 0.8 * servers, 4000), np.ones(4000), servers)[500:]
        shares.append(np.mean(found <= limit + 1e-9))
    error = float(np.std(shares, ddof=1)) / math.sqrt(len(shares))
    assert abs(float(np.mean(shares)) - known.waits_within(limit)) < NormalDist().inv_cdf(0.9999) * error


def test_m_m_c_as_simulated() -> None:
    rng = np.random.default_rng(11)
    queue = Queue(2.4, 1.0, 3)
    limit, shares, means = mmc_sojourn_quantile_s(queue, 0.9), [], []
    for _ in range(30):
        services = rng.exponential(1.0, 4000)
        found = waits(poisson_times(rng, 2.4, 4000), services, 3)
        shares.append(np.mean((found + services)[500:] <= limit))
        means.append(np.mean(found[500:]))
    for values, expected in ((shares, 0.9), (means, mmc_mean_wait_s(queue))):
        error = float(np.std(values, ddof=1)) / math.sqrt(len(values))
        assert abs(float(np.mean(values)) - expected) < NormalDist().inv_cdf(0.9999) * error


# --- what has no answer ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("queue", [Queue(1.0, 1.0), Queue(2.1, 1.0, 2), Queue(1e9, 1.0, 3)])
def test_queues_that_never_settle(queue: Queue) -> None:
    for known in (
        lambda: erlang_c(queue),
        lambda: mmc_mean_wait_s(queue),
        lambda: mmc_sojourn_quantile_s(queue, 0.5),
        lambda: ConstantService(queue),
    ):
        with pytest.raises(ValueError, match="never settles"):
            known()


@pytest.mark.parametrize(
    "wrong", [(0.0, 1.0, 1), (1.0, 0.0, 1), (-1.0, 1.0, 1), (1.0, 1.0, 0), (math.nan, 1.0, 1)]
)
def test_no_queue(wrong: tuple[float, float, int]) -> None:
    with pytest.raises(ValueError, match="above 0"):
        Queue(*wrong)


def test_shares_that_are_none_and_formulas_for_one_server() -> None:
    for share in (1.0, -0.1, math.nan):
        with pytest.raises(ValueError, match="share"):
            mmc_sojourn_quantile_s(Queue(1.0, 0.5), share)
    with pytest.raises(ValueError, match="for one"):
        mg1_mean_wait_s(Queue(1.0, 1.0, 2), 1.0)
    with pytest.raises(ValueError, match="computed up to"):
        ConstantService(Queue(0.99999, 1.0))

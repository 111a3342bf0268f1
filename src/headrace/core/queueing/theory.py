"""Queues whose answer is known: what a measured queue is held against. Pure.

Poisson arrivals, first come first served, room for everybody. Every function raises ValueError when the queue would grow for ever
(`utilisation` 1 or more).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

FULLEST = 0.9999
"""M/D/c is computed up to this utilisation: beyond, its queue has more than a million lengths worth counting."""
_DIGITS = 80.0
"""Twice the natural logarithm of what a double resolves: coefficients that far out are nothing on either side."""


@dataclass(frozen=True, slots=True)
class Queue:
    """One queue before `servers` alike servers."""

    arrivals_per_s: float
    """Above 0."""
    service_s: float
    """Mean seconds that a server takes for one, above 0."""
    servers: int = 1

    def __post_init__(self) -> None:
        if not (self.arrivals_per_s > 0.0 and self.service_s > 0.0 and self.servers >= 1):
            raise ValueError(f"{self} needs arrivals and a service time above 0, and a server")

    @property
    def offered(self) -> float:
        """Servers kept busy on average, in erlang."""
        return self.arrivals_per_s * self.service_s

    @property
    def utilisation(self) -> float:
        """Share of its time that a server is busy."""
        return self.offered / self.servers

    @property
    def spare_per_s(self) -> float:
        """How many more it could serve a second. Raises ValueError when there is no room for one."""
        spare = self.servers / self.service_s - self.arrivals_per_s
        if spare <= 0.0 or self.utilisation >= 1.0:
            raise ValueError(
                f"{self} never settles: it is offered {self.utilisation:.0%} of what it can serve"
            )
        return spare


def erlang_c(queue: Queue) -> float:
    """Share of arrivals that have to wait in M/M/c (Erlang's second formula).

    By the recursion of his first, B(k) = a B(k-1) / (k + a B(k-1)), whose numbers stay between 0 and 1 for any c.
    """
    queue.spare_per_s  # noqa: B018  raises when there is none
    blocked = 1.0
    for servers in range(1, queue.servers + 1):
        blocked = queue.offered * blocked / (servers + queue.offered * blocked)
    return blocked / (1.0 - queue.utilisation * (1.0 - blocked))


def mmc_mean_wait_s(queue: Queue) -> float:
    """Mean time in the queue of M/M/c, those who do not wait counted with 0."""
    return erlang_c(queue) / queue.spare_per_s


def mmc_wait_quantile_s(queue: Queue, share: float) -> float:
    """Time in the queue that `share` (0 to below 1) of the arrivals of M/M/c stay within."""
    waiting = erlang_c(queue)
    return 0.0 if 1.0 - share >= waiting else math.log(waiting / (1.0 - share)) / queue.spare_per_s


def mmc_sojourn_quantile_s(queue: Queue, share: float) -> float:
    """Time in queue and service together that `share` (0 to below 1) of M/M/c stay within.

    P(T > t) = e^-t + C (e^-t - e^-(spare t)) / (spare - 1), with t and spare in units of one service.
    """
    waiting, spare = erlang_c(queue), queue.spare_per_s * queue.service_s

    def within(time_s: float) -> float:
        time = time_s / queue.service_s
        apart = spare - 1.0
        longer = (
            time * math.exp(-time)
            if abs(apart) < 1e-9
            else (math.exp(-time) - math.exp(-spare * time)) / apart
        )
        return 1.0 - math.exp(-time) - waiting * longer

    return _inverse(within, share, queue.service_s)


def mm1_sojourn_quantile_s(queue: Queue, share: float) -> float:
    """Time in queue and service together that `share` (0 to below 1) of M/M/1 stay within: it is exponential."""
    return -math.log1p(-share) / _one_server(queue).spare_per_s


def mg1_mean_wait_s(queue: Queue, service_cv2: float) -> float:
    """Mean time in the queue of M/G/1 (Pollaczek-Khinchine). `service_cv2`: squared variation of service times, 0 for constant ones."""
    busy = _one_server(queue).utilisation
    queue.spare_per_s  # noqa: B018  raises when there is none
    return busy / (1.0 - busy) * (1.0 + service_cv2) / 2.0 * queue.service_s


def allen_cunneen_mean_wait_s(queue: Queue, arrival_cv2: float, service_cv2: float) -> float:
    """Mean time in the queue of G/G/c, an approximation (Allen 1990): M/M/c's, times the mean of both squared variations.

    Exact for M/M/c and M/G/1.
    """
    return mmc_mean_wait_s(queue) * (arrival_cv2 + service_cv2) / 2.0


class ConstantService:
    """M/D/c: every service takes exactly `queue.service_s`.

    The length of its queue, looked at every `service_s`, goes max(0, q + arrivals - c): it is the maximum of a random walk, and so
    (Spitzer 1956) a compound Poisson number whose rates c(j), j >= 1, are the coefficients of -log(1 - E z^(arrivals - c)). They are
    read off on the circle |z| = 1/utilisation, on which E|z^(arrivals - c)| is smallest, by a Fourier transform. From the
    lengths follow the waits (Franx 2001, "A simple solution for the M/D/c waiting time distribution"), all terms of one sign.
    """

    def __init__(self, queue: Queue) -> None:
        """Raises ValueError when `queue` never settles, or is fuller than FULLEST."""
        queue.spare_per_s  # noqa: B018  raises when there is none
        if queue.utilisation > FULLEST:
            raise ValueError(
                f"{queue} is {queue.utilisation:.4%} full; M/D/c is computed up to {FULLEST:.2%}"
            )
        self.queue = queue
        points = max(1024, 8 * queue.servers, _DIGITS / -math.log(queue.utilisation))
        rates = _ladder_rates(queue, 1 << math.ceil(math.log2(points)))
        self.mean_length = float(np.arange(len(rates)) @ rates)
        """Mean number in the queue, those in service apart."""
        powers = np.fft.rfft(rates)
        lengths = np.fft.irfft(np.exp(powers - powers[0]), len(rates))
        self._within = np.minimum(1.0, np.cumsum(np.maximum(0.0, lengths)))

    @property
    def mean_wait_s(self) -> float:
        """Mean time in the queue, those who do not wait counted with 0 (Little's law)."""
        return self.mean_length / self.queue.arrivals_per_s

    def waits_within(self, time_s: float) -> float:
        """Share of the arrivals that wait at most `time_s` >= 0."""
        queue = self.queue
        periods = math.floor(time_s / queue.service_s) + 1
        arrivals = queue.arrivals_per_s * (periods * queue.service_s - time_s)
        most = periods * queue.servers - 1
        counts = np.arange(min(most, math.ceil(arrivals + 12.0 * math.sqrt(arrivals) + 40.0)) + 1)
        lengths = np.minimum(most - counts, len(self._within) - 1)
        return float(_poisson(counts, arrivals) @ self._within[lengths])

    def wait_quantile_s(self, share: float) -> float:
        """Time in the queue that `share` (0 to below 1) of the arrivals stay within."""
        return (
            0.0
            if self.waits_within(0.0) >= share
            else _inverse(self.waits_within, share, self.queue.service_s)
        )

    def sojourn_quantile_s(self, share: float) -> float:
        """Time in queue and service together that `share` (0 to below 1) stay within."""
        return self.wait_quantile_s(share) + self.queue.service_s


def _ladder_rates(queue: Queue, points: int) -> Floats:
    """c(0), c(1), ...: c(j) sums 1/n P(arrivals in n services - n c = j) over n; c(0) is left out as 0."""
    radius = 1.0 / queue.utilisation
    angles = 2.0 * np.pi * np.arange(points) / points
    circle = radius * np.exp(1j * angles)
    step = np.exp(queue.offered * (circle - 1.0) - queue.servers * (math.log(radius) + 1j * angles))
    turned = np.fft.fft(-np.log1p(-step)).real / points
    half = points // 2
    powers = np.arange(half, dtype=np.float64)
    rates = np.zeros(points)
    rates[1:half] = np.maximum(0.0, turned[1:half]) * np.exp(-powers[1:] * math.log(radius))
    return rates


def _poisson(counts: npt.NDArray[np.int64], mean: float) -> Floats:
    """P(Poisson(mean) = count) for counts 0, 1, 2, ... without a gap."""
    if mean <= 0.0:
        return np.asarray(counts == 0, np.float64)
    logs = np.concatenate([[0.0], np.cumsum(np.log(np.maximum(1, counts[1:])))])
    return np.asarray(np.exp(counts * math.log(mean) - mean - logs), np.float64)


def _one_server(queue: Queue) -> Queue:
    if queue.servers != 1:
        raise ValueError(f"{queue} has {queue.servers} servers; this formula is for one")
    return queue


def _inverse(within: Callable[[float], float], share: float, scale_s: float) -> float:
    """The time at which the rising `within` reaches `share`, by bisection to 12 digits."""
    if not 0.0 <= share < 1.0:
        raise ValueError(f"a share is from 0 to below 1, not {share}")
    low, high = 0.0, scale_s
    while within(high) < share:
        low, high = high, 2.0 * high
        if high > 1e9 * scale_s:
            raise ValueError(f"the share {share} is nearer to 1 than this distribution is known")
    while high - low > 1e-12 * high:
        middle = (low + high) / 2.0
        if within(middle) < share:
            low = middle
        else:
            high = middle
    return high

"""What must hold of stages whatever their service times are spread like: operational laws and bounds. Pure.

Utilisation law, Little's law and asymptotic bounds as in Denning and Buzen, "The operational analysis of queueing network models" (1978);
balanced job bounds as in Zahorjan, Sevcik, Eager and Galler, "Balanced job bound analysis of queueing networks" (1982).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from headrace.core.queueing.stations import Station
from headrace.core.queueing.theory import Queue, mmc_mean_wait_s

CORES = "cores"
"""The name under which the host's cores stand among the stages."""
ALIKE = 1.05
"""Stages within 5 % of the slowest limit together with it."""


@dataclass(frozen=True, slots=True)
class Chain:
    """Every image goes through every station, in this order."""

    stations: tuple[Station, ...]
    cores: float | None = None
    """Cores that the stations not on the device share; None: not known, so not a limit."""

    @property
    def shared(self) -> Station | None:
        """The host's cores as one more station; None where they are not known or nobody uses them."""
        work_s = sum(
            station.work_s
            for station in self.stations
            if not station.on_device and station.workers is not None
        )
        if self.cores is None or work_s == 0.0:
            return None
        return Station(CORES, work_s / self.cores, work_s / self.cores, 1)

    @property
    def contended(self) -> bool:
        """More workers than cores: they can be in each other's way."""
        on_cpu = sum(station.workers or 0 for station in self.stations if not station.on_device)
        return self.cores is not None and on_cpu > self.cores

    @property
    def resources(self) -> tuple[Station, ...]:
        """The stations that can limit, and the shared cores last."""
        queued = tuple(station for station in self.stations if station.workers is not None)
        return (*queued, self.shared) if self.shared is not None else queued

    @property
    def limit_per_s(self) -> float:
        """No more images a second than the slowest resource does."""
        return min((resource.rate_per_s for resource in self.resources), default=math.inf)

    @property
    def limits(self) -> tuple[Station, ...]:
        """The slowest resource, and those that are about as slow."""
        limit = self.limit_per_s
        return tuple(resource for resource in self.resources if resource.rate_per_s <= limit * ALIKE)

    @property
    def alone_s(self) -> float:
        """Seconds of one image that is alone in the system: nobody's latency can be less."""
        return sum(station.alone_s for station in self.stations)

    def utilisation(self, rate_per_s: float) -> tuple[float, ...]:
        """Share of its time that each of `resources` is busy at `rate_per_s`, at most 1."""
        return tuple(min(1.0, rate_per_s * resource.demand_s) for resource in self.resources)


@dataclass(frozen=True, slots=True)
class Closed:
    """What `clients`, each waiting for its answer before it asks again, can get."""

    clients: int
    most_per_s: float
    """Throughput, at most: min(N / (R0 + Z), 1 / Dmax)."""
    balanced: tuple[float, float] | None
    """Throughput if service times vary as exponential ones do; None with batches and with contended cores, which that theory leaves out."""
    least_latency_s: float
    """By Little's law: N / X - Z at the most throughput."""
    enough_clients: float
    """N*: from here on more clients add latency and no throughput."""
    each_adds_s: float
    """Latency that each client beyond them adds."""


def closed(chain: Chain, clients: int, think_s: float = 0.0) -> Closed:
    """Bounds for `clients` >= 1 that pause `think_s` between an answer and the next request.

    The asymptotic bounds hold whatever service times are spread like; the balanced job bounds do not.
    """
    limit = chain.limit_per_s
    most = min(clients / (chain.alone_s + think_s), limit)
    return Closed(
        clients=clients,
        most_per_s=most,
        balanced=_balanced(chain, clients, think_s),
        least_latency_s=clients / most - think_s,
        enough_clients=(chain.alone_s + think_s) * limit,
        each_adds_s=1.0 / limit,
    )


def _balanced(chain: Chain, clients: int, think_s: float) -> tuple[float, float] | None:
    """A station of c workers counts as one that is c times as fast and a delay of the difference (Seidmann 1987)."""
    stations = [station for station in chain.stations if station.workers is not None]
    if not stations or chain.contended or any(station.batch > 1.0 for station in stations):
        return None
    demands = [station.demand_s for station in stations]
    total_s, most_s, mean_s = sum(demands), max(demands), sum(demands) / len(demands)
    pause_s, others = think_s + chain.alone_s - total_s, clients - 1
    low = clients / (total_s + pause_s + others * most_s / (1.0 + pause_s / (clients * total_s)))
    high = clients / (total_s + pause_s + others * mean_s / (1.0 + pause_s / total_s))
    return low, min(1.0 / most_s, high)


@dataclass(frozen=True, slots=True)
class Offered:
    """What one resource makes of requests that come whether or not it is done."""

    name: str
    arrives_per_s: float
    """What the stations before it let through."""
    utilisation: float
    """Of its time; 1 when it cannot keep up."""
    grows_per_s: float
    """How fast its queue grows; 0 when it keeps up."""
    mean_wait_s: float | None
    """M/M/c: an approximation for service times that vary as exponential ones do, half of it for constant ones (Allen-Cunneen).
    None when the queue grows, with batches, and where stages contend for cores."""


def offered(chain: Chain, rate_per_s: float) -> tuple[Offered, ...]:
    """Requests at `rate_per_s` > 0, through each of the chain's resources in turn."""
    cores = chain.shared
    rows, flow = [], rate_per_s
    for station in chain.stations:
        if station.workers is None:
            continue
        rows.append(_offered(station, flow, contended=chain.contended and not station.on_device))
        slowed = cores is not None and not station.on_device
        flow = min(flow, station.rate_per_s, cores.rate_per_s if slowed and cores else math.inf)
    if cores is not None:
        before = min(station.rate_per_s for station in chain.stations if not station.on_device)
        rows.append(_offered(cores, min(rate_per_s, before), contended=True))
    return tuple(rows)


def _offered(station: Station, arrives_per_s: float, *, contended: bool) -> Offered:
    load = arrives_per_s * station.demand_s
    wait_s = None
    if load < 1.0 - 1e-9 and station.batch == 1.0 and not contended:
        wait_s = mmc_mean_wait_s(Queue(arrives_per_s, station.go_s, station.workers or 1))
    grows = max(0.0, arrives_per_s - station.rate_per_s)
    return Offered(station.name, arrives_per_s, min(1.0, load), grows, wait_s)


@dataclass(frozen=True, slots=True)
class Ceiling:
    """The most that one change can win."""

    change: str
    resource: str
    most_per_s: float
    """Throughput afterwards, at most."""
    gain: float
    """Share by which that is above the most before; 0: a placebo."""
    busy_before: float
    """Share of its time that the changed resource is busy before, at the most throughput,"""
    busy_after: float
    """and afterwards, at that throughput."""


def ceilings(chain: Chain, clients: int | None = None, think_s: float = 0.0) -> tuple[Ceiling, ...]:
    """Each station twice as fast, each with one worker more, one core more; largest gain first.

    With `clients`, throughput is what they can get; without, the limit for any number of them.
    """

    def most(other: Chain) -> float:
        bound = other.limit_per_s
        return bound if clients is None else min(bound, clients / (other.alone_s + think_s))

    before = most(chain)
    rows = []
    for change, name, other in _changes(chain):
        after = most(other)
        was, becomes = (
            next(resource for resource in each.resources if resource.name == name) for each in (chain, other)
        )
        busy = [min(1.0, rate * row.demand_s) for rate, row in ((before, was), (after, becomes))]
        rows.append(Ceiling(change, name, after, max(0.0, after / before - 1.0), *busy))
    return tuple(sorted(rows, key=lambda row: -row.gain))


def _changes(chain: Chain) -> Sequence[tuple[str, str, Chain]]:
    changes = []
    for at, station in enumerate(chain.stations):
        if station.workers is None:
            continue
        faster = replace(station, alone_s=station.alone_s / 2.0, go_s=station.go_s / 2.0)
        wider = replace(station, workers=station.workers + 1)
        for change, other in (("twice as fast", faster), ("one worker more", wider)):
            stations = (*chain.stations[:at], other, *chain.stations[at + 1 :])
            changes.append((change, station.name, replace(chain, stations=stations)))
    if chain.shared is not None and chain.cores is not None:
        changes.append(("one core more", CORES, replace(chain, cores=chain.cores + 1.0)))
    return changes

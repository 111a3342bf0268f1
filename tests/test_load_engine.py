"""Runs of the load tester against servers whose behaviour is known: every request is accounted for, and time is told truly."""

from __future__ import annotations

import asyncio
import gc
import itertools
import math
import socket
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.load_support import (
    QUICK,
    Behaviour,
    Exchange,
    Seen,
    answer,
    check_books,
    every,
    run_closed,
    run_open,
    serving,
    shots,
    well,
)

from headrace.core.load import arrivals
from headrace.core.load.figures import RunFigures
from headrace.core.load.validity import validity
from headrace.core.queueing.theory import ConstantService, Queue, mm1_sojourn_quantile_s
from headrace.errors import UsageError
from headrace.load.engine import feeds
from headrace.load.engine.alarm import Alarm
from headrace.load.engine.ledger import Ledger
from headrace.load.engine.request import Request
from headrace.load.run import Limits, Phase, drive, open_loop
from headrace.load.shot import Headers, Shot, Target
from headrace.records.rows.load import OutcomeRow, SpanRow


async def _never(exchange: Exchange) -> None:
    """Takes requests and keeps the connection."""


# --- intended times --------------------------------------------------------------------------------------------------------


def test_two_thousand_requests_of_one_second_are_all_sent_and_answered() -> None:
    seen = run_open(well, arrivals.constant(2000), phases=[Phase("run", 1.0)])
    assert seen.figures is not None
    phase = seen.figures.phases[0]
    assert (phase.intended, phase.sent, phase.ok) == (2000, 2000, 2000)
    assert phase.duration_s == 1.0 and phase.cpu_s > 0
    assert [row.intended_s for row in sorted(seen.rows)] == pytest.approx(
        [n / 2000 for n in range(2000)], abs=1e-6
    )
    assert max(seen.chunks) <= 1000 and len(seen.chunks) >= 4, "rows are handed on while the run is on"


def test_requests_are_in_the_phase_of_their_intended_time() -> None:
    phases = [Phase("warm-up", 0.1), Phase("run", 0.3), Phase("more", 0.4)]
    seen = run_open(well, arrivals.constant(100), phases=phases)
    assert seen.figures is not None
    assert [(phase.name, phase.intended) for phase in seen.figures.phases] == [
        ("warm-up", 10),
        ("run", 20),
        ("more", 10),
    ]
    assert [phase.duration_s for phase in seen.figures.phases] == pytest.approx([0.1, 0.2, 0.1])
    assert seen.figures.phase("run") == seen.figures.phases[1]
    assert seen.figures.phase("absent") is None


def test_a_phase_that_did_not_begin_has_no_figures() -> None:
    seen = run_open(well, [0.0, 0.01], phases=[Phase("run", 0.2), Phase("later", 9.0)])
    assert seen.figures is not None and [phase.name for phase in seen.figures.phases] == ["run"]


def test_numbers_and_times_go_on_where_a_capture_is() -> None:
    seen, began_s = Seen(), time.monotonic() - 1000.0

    async def scenario() -> None:
        async with serving(well) as target:
            await open_loop(
                target,
                iter(every(0.01, 3)),
                shots(),
                phases=[Phase("run", 1.0)],
                sink=seen.sink,
                began_s=began_s,
                first_number=500,
            )

    drive(scenario())
    assert [row.number for row in seen.rows] == [500, 501, 502]
    assert all(1000.0 <= row.intended_s < 1020.0 for row in seen.rows)


def test_a_run_ends_with_its_shots() -> None:
    seen = run_open(well, arrivals.constant(1000), shots=itertools.islice(shots(), 7))
    assert len(seen.rows) == 7
    seen = run_closed(well, 3, shots=itertools.islice(shots(), 7))
    assert len(seen.rows) == 7


def test_times_that_fall_are_refused() -> None:
    with pytest.raises(UsageError, match="rise"):
        run_open(well, [0.0, 0.02, 0.01])
    with pytest.raises(UsageError, match="rise"):
        run_open(well, [0.0, math.nan])


@pytest.mark.parametrize(
    "phases", [[], [Phase("a", 0.0)], [Phase("a", 2.0), Phase("b", 1.0)], [Phase("a", math.nan)]]
)
def test_phases_that_cannot_be_are_refused(phases: Sequence[Phase]) -> None:
    with pytest.raises(UsageError, match="phases"):
        run_open(well, [0.0], phases=phases)


@pytest.mark.parametrize("limit", ["connections", "timeout_s", "grace_s", "late_after_s", "answer_max_bytes"])
@pytest.mark.parametrize("value", [0, -1, math.nan, math.inf])
def test_limits_that_cannot_be_are_refused(limit: str, value: float) -> None:
    with pytest.raises(UsageError, match=limit):
        Limits(**{limit: value})  # type: ignore[arg-type]


@pytest.mark.parametrize("platform", ["linux", "elsewhere"])
@pytest.mark.parametrize("plain_loop", [True, False], ids=["asyncio", "uvloop"])
def test_an_alarm_rings_once_for_the_time_set_last(
    platform: str, plain_loop: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.platform", platform)
    rung_s: list[float] = []

    async def scenario() -> float:
        rang = asyncio.Event()
        alarm = Alarm(asyncio.get_running_loop(), lambda: (rung_s.append(time.monotonic()), rang.set()))
        alarm.set(time.monotonic() + 60.0)
        due_s = time.monotonic() + 0.05
        alarm.set(due_s)
        await rang.wait()
        rang.clear()
        alarm.set(0.0)
        assert not rang.is_set(), "never inside set"
        await rang.wait()
        alarm.set(time.monotonic() + 0.001)
        alarm.close()
        alarm.close()
        await asyncio.sleep(0.02)
        return due_s

    due_s = asyncio.run(scenario()) if plain_loop else drive(scenario())
    assert len(rung_s) == 2
    assert rung_s[0] >= due_s - (0.0 if platform == "linux" else 0.001)


# --- a stall ---------------------------------------------------------------------------------------------------------------


def _stalls_once(begin_s: float, length_s: float) -> Behaviour:
    first_s: list[float] = []

    async def behaviour(exchange: Exchange) -> None:
        now_s = time.monotonic()
        first_s.append(now_s)
        end_s = first_s[0] + begin_s + length_s
        if first_s[0] + begin_s <= now_s < end_s:
            await asyncio.sleep(end_s - now_s)
        exchange.write(answer())

    return behaviour


def test_an_open_loop_shows_a_stall_of_one_second_in_all_requests_that_fell_into_it() -> None:
    rate = 200.0
    seen = run_open(_stalls_once(0.2, 1.0), arrivals.constant(rate), phases=[Phase("run", 1.4)])
    latencies_s = seen.latencies_s()
    slow = sum(latency_s > 0.5 for latency_s in latencies_s)
    assert 0.8 * rate * 0.5 <= slow <= 1.2 * rate * 0.5
    assert np.quantile(latencies_s, 0.99) > 0.9


def test_the_stall_shows_as_much_when_connections_are_few_and_the_run_is_doubted() -> None:
    rate = 200.0
    seen = run_open(
        _stalls_once(0.2, 1.0),
        arrivals.constant(rate),
        phases=[Phase("run", 1.4)],
        limits=Limits(connections=5),
    )
    slow = sum(latency_s > 0.5 for latency_s in seen.latencies_s())
    assert 0.8 * rate * 0.5 <= slow <= 1.2 * rate * 0.5
    assert seen.figures is not None
    phase = seen.figures.phases[0]
    assert phase.unsent == 0 and phase.waited >= 0.8 * rate and phase.late >= 0.8 * rate
    assert "all connections were taken" in " ".join(validity(phase).reasons)


def test_a_closed_loop_hides_the_stall() -> None:
    clients = 4
    seen = run_closed(
        _stalls_once(0.1, 1.0), clients, phases=[Phase("run", 1.5)], think=itertools.repeat(0.005)
    )
    latencies_s = seen.latencies_s()
    assert sum(latency_s > 0.5 for latency_s in latencies_s) == clients
    assert len(latencies_s) > 10 * clients
    assert all(row.sent_s is not None and row.sent_s - row.intended_s < 1.0 for row in seen.rows)


# --- laws ------------------------------------------------------------------------------------------------------------------

WARM_UP_S, RUN_S = 0.5, 4.0
Service = Callable[[np.random.Generator, tuple[int, ...]], Any]
"""Service times in seconds, of a shape."""


class Stations:
    """Independent queues, each first come first served before its servers; requests choose one at random."""

    def __init__(self, queue: Queue, count: int, service_s: Service, seed: int) -> None:
        self.queue = queue
        self.rate = count * queue.arrivals_per_s
        self._free_s = [[0.0] * queue.servers for _ in range(count)]
        self._service_s = service_s
        self.seen_s: dict[int, tuple[float, float]] = {}
        """When a request came and when its answer left, by its number."""
        self._random = np.random.default_rng(seed)

    async def behaviour(self, exchange: Exchange) -> None:
        """The moments of ends are computed, so that a late timer delays its own answer and nobody behind it."""
        now_s = time.monotonic()
        free_s = self._free_s[self._random.integers(len(self._free_s))]
        first = free_s.index(min(free_s))
        free_s[first] = max(now_s, free_s[first]) + float(self._service_s(self._random, ()))
        await asyncio.sleep(free_s[first] - now_s)
        self.seen_s[exchange.number] = (now_s, time.monotonic())
        exchange.write(answer())

    def interval_s(self, replicas: int = 500) -> tuple[float, float]:
        """Between which values 998 in 1,000 of such runs, simulated, have their p99.

        A run is short and its latencies depend on each other, so that no formula for independent samples would do.
        """
        random, count, servers = np.random.default_rng(1), len(self._free_s), self.queue.servers
        most = int((WARM_UP_S + RUN_S) * self.queue.arrivals_per_s * 1.5)
        now_s, free_s = np.zeros((replicas, count)), np.zeros((replicas, count, servers))
        sojourns_s = np.full((most, replicas, count), np.nan)
        for n in range(most):
            now_s += random.exponential(1 / self.queue.arrivals_per_s, now_s.shape)
            first = free_s.argmin(axis=2)[..., None]
            start_s = np.maximum(now_s, np.take_along_axis(free_s, first, 2)[..., 0])
            end_s = start_s + self._service_s(random, now_s.shape)
            np.put_along_axis(free_s, first, end_s[..., None], 2)
            inside = (now_s >= WARM_UP_S) & (now_s < WARM_UP_S + RUN_S)
            sojourns_s[n] = np.where(inside, end_s - now_s, np.nan)
        found = np.nanquantile(sojourns_s, 0.99, axis=(0, 2))
        low, high = np.quantile(found, [0.001, 0.999])
        return float(low), float(high)


def _exponential(random: np.random.Generator, shape: tuple[int, ...]) -> Any:
    return random.exponential(0.050, shape)


def _constant(random: np.random.Generator, shape: tuple[int, ...]) -> Any:
    return np.full(shape, 0.075)


def _measured(several: Sequence[Stations]) -> list[Seen]:
    """A run against each, all at once."""

    async def one(stations: Stations, seen: Seen) -> None:
        async with serving(stations.behaviour) as target:
            seen.figures = await open_loop(
                target,
                arrivals.poisson(stations.rate, np.random.default_rng(3)),
                shots(),
                phases=[Phase("warm-up", WARM_UP_S), Phase("run", WARM_UP_S + RUN_S)],
                sink=seen.sink,
                began_s=0.0,
            )

    async def scenario() -> list[Seen]:
        all_seen = [Seen() for _ in several]
        await asyncio.gather(*(one(stations, seen) for stations, seen in zip(several, all_seen, strict=True)))
        return all_seen

    return drive(scenario())


def _p99_s(seen: Seen) -> float:
    check_books(seen)
    rows = [row for row in seen.rows if row.phase == "run"]
    assert all(row.error is None for row in rows)
    return float(np.quantile([(row.done_s or math.nan) - row.intended_s for row in rows], 0.99))


def test_the_p99_of_mm1_and_mdc_is_that_of_theory() -> None:
    mm1 = Queue(arrivals_per_s=6.0, service_s=0.050)
    mdc = Queue(arrivals_per_s=20.0, service_s=0.075, servers=3)
    theory_s = (mm1_sojourn_quantile_s(mm1, 0.99), ConstantService(mdc).sojourn_quantile_s(0.99))
    several = (Stations(mm1, 100, _exponential, 1), Stations(mdc, 25, _constant, 2))
    for stations, expected_s, seen in zip(several, theory_s, _measured(several), strict=True):
        low_s, high_s = stations.interval_s()
        assert low_s <= expected_s <= high_s, "simulation and theory agree"
        assert high_s - low_s < 0.6 * expected_s, "the interval would see a gross error"
        assert seen.figures is not None
        # Sending, the server's timer and reading wait for the one event loop, each as long as it stood still at most.
        late_s = 3.0 * max(phase.worst_lag_s for phase in seen.figures.phases)
        assert low_s <= _p99_s(seen) <= high_s + late_s
        for row in seen.rows:  # began_s=0: both sides read the same clock
            came_s, left_s = stations.seen_s[row.source]
            assert row.sent_s is not None and row.done_s is not None
            assert row.intended_s <= row.sent_s <= came_s <= left_s <= row.done_s


# --- limits ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("plain_loop", [True, False], ids=["asyncio", "uvloop"])
def test_a_server_that_never_answers_costs_time_outs_and_what_found_no_connection_is_unsent(
    plain_loop: bool,
) -> None:
    limits = Limits(connections=3, timeout_s=0.2, grace_s=1.0)
    seen = run_open(_never, [0.0] * 10, limits=limits, plain_loop=plain_loop)
    assert Counter(seen.errors.values()) == {"timeout": 3, "unsent": 7}
    assert [seen.errors[n] for n in range(3)] == ["timeout"] * 3, "they are sent in order"
    assert seen.figures is not None
    assert seen.figures.phases[0].waited == 7
    assert "never sent" in validity(seen.figures.phases[0]).reasons[0]


def test_what_waited_is_sent_in_order_once_a_connection_is_free() -> None:
    order: list[int] = []

    async def slow(exchange: Exchange) -> None:
        order.append(exchange.number)
        await asyncio.sleep(0.01)
        exchange.write(answer())

    seen = run_open(slow, [0.0] * 12, limits=Limits(connections=2))
    assert set(seen.errors.values()) == {None}
    assert order == list(range(12))
    assert seen.figures is not None and seen.figures.connections_opened == 2


def test_what_waited_is_sent_over_new_connections_where_the_server_keeps_none() -> None:
    async def closes(exchange: Exchange) -> None:
        exchange.write(answer())
        exchange.close = True

    seen = run_open(closes, [0.0] * 12, limits=Limits(connections=2))
    assert set(seen.errors.values()) == {None}
    assert seen.figures is not None and seen.figures.connections_opened == 12


def test_answers_that_do_not_come_within_the_grace_are_abandoned() -> None:
    limits = Limits(connections=2, timeout_s=30.0, grace_s=0.1)
    seen = run_open(_never, [0.0] * 5, limits=limits)
    assert Counter(seen.errors.values()) == {"abandoned": 2, "unsent": 3}


def test_what_waits_is_given_up_before_a_connection_is_opened_for_it() -> None:
    """The service's queue of connections is full: none comes to be."""
    seen = Seen()
    with (
        socket.create_server(("127.0.0.1", 0), backlog=0) as full,
        socket.create_connection(full.getsockname()),
    ):
        seen.figures = drive(
            open_loop(
                Target(*full.getsockname()),
                iter([0.0] * 50),
                shots(),
                phases=[Phase("run", 9.0)],
                sink=seen.sink,
                limits=Limits(connections=2, timeout_s=0.2),
            )
        )
    check_books(seen)
    assert Counter(seen.errors.values()) == {"timeout": 2, "unsent": 48}


def test_a_run_that_cannot_keep_up_by_far_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feeds, "BEHIND_S", 0.05)
    limits = Limits(connections=2, timeout_s=0.5)
    seen = run_open(well, arrivals.constant(1e6), phases=[Phase("run", 3600.0)], limits=limits)
    assert seen.figures is not None and seen.figures.fell_behind and not seen.figures.stopped
    assert 0 < seen.figures.phases[0].intended < 1_000_000 and not validity(seen.figures.phases[0]).valid


def test_answers_are_not_waited_for_when_somebody_wants_to_leave() -> None:
    seen = run_closed(
        _never,
        3,
        limits=Limits(timeout_s=3600.0, grace_s=3600.0),
        stop=lambda figures: figures.phases[0].intended == 3,
        leave=lambda: True,
    )
    assert [row.error for row in seen.rows] == ["abandoned"] * 3


def test_time_that_the_tester_stood_still_counts_in_the_phases_it_fell_into() -> None:
    ledger = Ledger(
        [Phase("warm-up", 1.0), Phase("run", 3.0)],
        capture_began_s=None,
        first_number=0,
        late_after_s=0.01,
        sink=lambda rows: None,
        span_sink=None,
    )
    ledger.start(100.0)
    ledger.lag(100.25, 102.0)
    ledger.lag(102.5, 102.505)
    ledger.clock(103.0)
    ledger.lag(102.75, 110.0)
    ledger.over(120.0)
    ledger.lag(120.0, 130.0)
    warm_up, run = ledger.figures(130.0)
    assert (warm_up.lagged_s, run.lagged_s) == (0.75, 1.25)
    assert (run.began_s, run.ended_s) == (1.0, 3.0) and run.worst_lag_s == 10.0


def test_the_time_after_a_late_run_is_not_charged_to_it() -> None:
    """Requests of the last phase may be begun after its end; the share of a core is of its length."""
    ledger = Ledger(
        [Phase("run", 1.0)],
        capture_began_s=None,
        first_number=0,
        late_after_s=0.01,
        sink=lambda rows: None,
        span_sink=None,
    )
    ledger.start(100.0)
    ledger.clock(101.0)
    before = ledger.figures(101.0)[0].cpu_s
    sum(range(1_000_000))
    ledger.clock(131.0)
    ledger.over(131.0)
    assert ledger.figures(131.0)[0].cpu_s == before


def test_a_late_answer_reaches_nobody() -> None:
    async def late(exchange: Exchange) -> None:
        if exchange.number == 0:
            await asyncio.sleep(0.3)
        exchange.write(answer(b"%d" % exchange.number))

    def own(status: int, headers: Headers, body: bytes) -> str | None:
        return None if body != b"0" else "wrong_answer"

    limits = Limits(connections=1, timeout_s=0.1, grace_s=1.0)
    seen = run_open(late, [0.0, 0.15, 0.35], limits=limits, shots=shots(judge=own))
    assert seen.errors == {0: "timeout", 1: None, 2: None}


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(st.floats(0, 0.05), max_size=40).map(sorted),
    st.integers(1, 6),
    st.floats(0.01, 0.1),
    st.floats(0.01, 0.1),
    st.booleans(),
)
def test_the_books_balance_whatever_the_limits(
    times: list[float], connections: int, timeout_s: float, grace_s: float, plain_loop: bool
) -> None:
    async def uneven(exchange: Exchange) -> None:
        await asyncio.sleep(exchange.number % 5 * 0.02)
        exchange.write(answer())
        exchange.close = exchange.number % 3 == 0

    limits = Limits(connections=connections, timeout_s=timeout_s, grace_s=grace_s)
    seen = run_open(uneven, times, limits=limits, plain_loop=plain_loop)
    assert len(seen.rows) == len(times)


# --- closed loops ----------------------------------------------------------------------------------------------------------


def test_a_closed_loop_keeps_its_clients_under_way_and_no_more() -> None:
    under_way, most = 0, 0

    async def counts(exchange: Exchange) -> None:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        await asyncio.sleep(0.005)
        under_way -= 1
        exchange.write(answer())

    seen = run_closed(counts, 5, shots=itertools.islice(shots(), 60))
    assert most == 5 and len(seen.rows) == 60
    assert seen.figures is not None and seen.figures.connections_opened == 5
    assert seen.figures.phases[0].late == 0


def test_thinking_clients_ask_less() -> None:
    seen = run_closed(well, 2, phases=[Phase("run", 0.5)], think=itertools.repeat(0.1))
    assert 6 <= len(seen.rows) <= 10


def test_a_client_that_is_refused_waits_before_it_asks_again() -> None:
    async def resets(exchange: Exchange) -> None:
        exchange.reset()

    seen = run_closed(resets, 2, phases=[Phase("run", 0.35)])
    assert len(seen.rows) <= 8


def test_more_clients_than_connections_are_refused() -> None:
    with pytest.raises(UsageError, match="11 clients"):
        run_closed(well, 11, limits=Limits(connections=10))
    with pytest.raises(UsageError, match="0 clients"):
        run_closed(well, 0)


# --- stopping and breaking -------------------------------------------------------------------------------------------------


def test_stop_is_told_the_figures_so_far_and_ends_the_run() -> None:
    told: list[RunFigures] = []

    def enough(figures: RunFigures) -> bool:
        told.append(figures)
        return figures.phases[0].ok >= 30

    seen = run_open(well, arrivals.constant(200), stop=enough)
    assert seen.figures is not None and seen.figures.stopped
    assert 30 <= len(seen.rows) < 200
    assert [figures.phases[0].ok for figures in told] == sorted(figures.phases[0].ok for figures in told)
    for figures in told:
        phase = figures.phases[0]
        assert phase.waiting >= 0 and phase.intended >= phase.sent >= phase.ok
    closed = run_closed(well, 2, stop=lambda figures: figures.phases[0].ok >= 10)
    assert closed.figures is not None and closed.figures.stopped


class _Broken(Exception):
    pass


def _open_files() -> set[str]:
    """Timers and sockets among them; nothing where the system does not tell."""
    folder = Path("/proc/self/fd")
    return {file.name for file in folder.iterdir()} if folder.exists() else set()


def _breaks(*arguments: object) -> Any:
    raise _Broken


@pytest.mark.parametrize("plain_loop", [True, False], ids=["asyncio", "uvloop"])
@pytest.mark.parametrize(
    "options",
    [
        lambda: {"sink": _breaks},
        lambda: {"stop": _breaks},
        lambda: {"spans": _breaks},
        lambda: {"shots": shots(judge=_breaks)},
        lambda: {"shots": (_breaks() for _ in range(3))},
    ],
    ids=["sink", "stop", "spans", "judge", "shots"],
)
def test_what_the_caller_gave_and_breaks_ends_the_run_and_is_raised(
    options: Callable[[], dict[str, Any]], plain_loop: bool
) -> None:
    async def timed(exchange: Exchange) -> None:
        exchange.write(answer(extra=b"Server-Timing: a;dur=1\r\n"))

    files = _open_files()
    with pytest.raises(_Broken):
        run_open(timed, arrivals.constant(100), plain_loop=plain_loop, **options())
    with pytest.raises(_Broken):
        run_closed(timed, 2, plain_loop=plain_loop, **options())
    assert _open_files() <= files


def test_a_cancelled_run_hands_on_what_it_knows() -> None:
    seen = Seen()

    async def only_even(exchange: Exchange) -> None:
        if exchange.number % 2 == 0:
            exchange.write(answer())

    async def scenario() -> None:
        async with serving(only_even) as target:
            run = asyncio.ensure_future(
                open_loop(
                    target,
                    arrivals.constant(500),
                    shots(),
                    phases=[Phase("run", 60.0)],
                    sink=seen.sink,
                    limits=QUICK,
                )
            )
            while len(seen.rows) < 50:
                await asyncio.sleep(0.01)
            run.cancel()
            with pytest.raises(asyncio.CancelledError):
                await run

    drive(scenario())
    assert [row.number for row in sorted(seen.rows)] == list(range(len(seen.rows)))
    odd = {row.error for row in seen.rows if row.number % 2}
    assert odd <= {"abandoned", "unsent"} and "abandoned" in odd


def test_the_collector_is_left_as_it_was() -> None:
    run_open(well, [0.0])
    assert gc.isenabled() and gc.get_freeze_count() == 0


def test_a_run_keeps_no_request_that_has_ended() -> None:
    alive: list[int] = []

    def counts(figures: RunFigures) -> bool:
        phase = figures.phases[0]
        if phase.ok >= 1000:
            kept = sum(isinstance(thing, Request | Shot | OutcomeRow) for thing in gc.get_objects())
            alive.append(kept - 2 * phase.waiting)
        return bool(alive)

    async def scenario() -> None:
        async with serving(well) as target:
            await open_loop(
                target,
                arrivals.constant(1000),
                shots(),
                phases=[Phase("run", 60.0)],
                sink=lambda rows: None,
                stop=counts,
            )

    drive(scenario())
    assert alive[0] < 100, "of more than 1,000 requests"


# --- stages ----------------------------------------------------------------------------------------------------------------


def test_stage_times_told_by_the_server_become_spans_when_asked_for() -> None:
    async def timed(exchange: Exchange) -> None:
        exchange.write(
            answer(
                extra=b"Server-Timing: decode-wait;dur=1.5, decode;dur=8\r\nServer-Timing: infer;dur=20\r\n"
            )
        )

    spans: list[SpanRow] = []
    run_open(timed, every(0.01, 2), spans=spans.extend)
    assert spans == [
        SpanRow(number, stage, wait_us, service_us)
        for number in (0, 1)
        for stage, wait_us, service_us in (("decode", 1500, 8000), ("infer", 0, 20_000))
    ]

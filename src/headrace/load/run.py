"""Runs: requests at intended times (open loop), or a number of clients that wait for their answers (closed loop)."""

from __future__ import annotations

import asyncio
import itertools
import resource
import sys
from collections.abc import Callable, Coroutine, Iterator, Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import Any, TypeVar

from headrace.core.load.figures import Phase, RunFigures
from headrace.errors import UsageError
from headrace.load.engine.feeds import ArrivalFeed, ClientFeed
from headrace.load.engine.ledger import Ledger, Sink, SpanSink
from headrace.load.engine.limits import Limits
from headrace.load.engine.pool import resolve
from headrace.load.engine.run import Feed, Leave, Run, Stop
from headrace.load.shot import Shot, Target

__all__ = [
    "Leave",
    "Limits",
    "Phase",
    "Sink",
    "SpanSink",
    "Stop",
    "closed_loop",
    "drive",
    "most_connections",
    "open_loop",
]

T = TypeVar("T")

DEFAULTS = Limits()

_OTHER_FILES = 40
"""Files that this process has open beside its connections, a capture's among them."""


async def open_loop(
    target: Target,
    arrivals: Iterator[float],
    shots: Iterator[Shot],
    *,
    phases: Sequence[Phase],
    sink: Sink,
    limits: Limits = DEFAULTS,
    began_s: float | None = None,
    first_number: int = 0,
    spans: SpanSink | None = None,
    stop: Stop | None = None,
    leave: Leave | None = None,
) -> RunFigures:
    """Sends a request at each intended time, whether or not those before were answered.

    Latency counts from the intended time, so that a stall of the service shows in all requests that fell into it.

    `arrivals`: seconds from the run's start, rising (`core.load.arrivals`). The run ends when the last phase is over, or arrivals or
    shots run out, or `stop` says so; requests then under way are waited for `limits.grace_s`. `began_s`: the capture's time 0 on the
    monotonic clock (None: the start of this run). `first_number`: of the first outcome. `sink` and `spans` (stage times that the
    service told in `Server-Timing`) get rows in the order of their ends, up to ten times a second and 1,000 at a time; `stop` is asked ten
    times a second, and in its place `leave` while answers are waited for: True ends that. All are called in the event loop and hold it
    up: a few milliseconds at most. A run that falls 10 s behind its intended times ends.

    Kinds of failure: `refused`, `unreachable`, `tls`, `no_socket` (this machine had no file or port left), `reset` and `closed` (before
    any answer), `half_answer`, `bad_http`, `answer_too_large`, `timeout`, `http_404` and other statuses, `abandoned` (no answer when
    the grace was over), `unsent` (no connection was free in all the time), and those of the shot's judge. Raises UsageError for an
    unknown host or values that cannot be, and whatever arrivals, shots, judges, sinks and `stop` raise.
    """
    feed = ArrivalFeed(arrivals, shots, _end_s(phases))
    return await _run(target, feed, phases, sink, limits, began_s, first_number, spans, stop, leave)


async def closed_loop(
    target: Target,
    clients: int,
    shots: Iterator[Shot],
    *,
    phases: Sequence[Phase],
    sink: Sink,
    limits: Limits = DEFAULTS,
    began_s: float | None = None,
    first_number: int = 0,
    spans: SpanSink | None = None,
    stop: Stop | None = None,
    leave: Leave | None = None,
    think: Iterator[float] | None = None,
) -> RunFigures:
    """Keeps `clients` requests under way: each client sends the next one when the last was answered, after thinking for so many seconds.

    The intended time is the time of sending, and that hides stalls: while the service stands still, no more requests are sent than
    there are clients, and none of those kept back is counted. Do not read the latency of real traffic from it. It answers other
    questions: the most a service can do at a given concurrency, and how a caller that waits (a batch job, another service's pool) fares.

    Everything else is as in `open_loop`. A client that got no answer at all waits 0.1 s. Raises UsageError for more clients than
    `limits.connections`.
    """
    if not 1 <= clients <= limits.connections:
        raise UsageError(
            f"{clients} clients cannot be; give 1 to {limits.connections}, or allow more connections"
        )
    feed = ClientFeed(clients, shots, _end_s(phases), think)
    return await _run(target, feed, phases, sink, limits, began_s, first_number, spans, stop, leave)


def drive(run: Coroutine[Any, Any, T]) -> T:
    """`drive(open_loop(...))`: runs it, or whatever awaits some of them, to its end in this thread, on uvloop where there is one."""
    has_uvloop = find_spec("uvloop") is not None
    factory: Callable[[], asyncio.AbstractEventLoop] = (
        import_module("uvloop").new_event_loop if has_uvloop else asyncio.new_event_loop
    )
    with asyncio.Runner(loop_factory=factory) as runner:
        return runner.run(run)


async def _run(
    target: Target,
    feed: Feed,
    phases: Sequence[Phase],
    sink: Sink,
    limits: Limits,
    began_s: float | None,
    first_number: int,
    spans: SpanSink | None,
    stop: Stop | None,
    leave: Leave | None,
) -> RunFigures:
    address = await resolve(target)
    _make_room(limits.connections)
    ledger = Ledger(
        phases,
        capture_began_s=began_s,
        first_number=first_number,
        late_after_s=limits.late_after_s,
        sink=sink,
        span_sink=spans,
    )
    return await Run(target, address, ledger, limits, feed, stop, leave).whole()


def _end_s(phases: Sequence[Phase]) -> float:
    ends_s = [0.0, *(phase.until_s for phase in phases)]
    if len(ends_s) < 2 or any(not later > earlier for earlier, later in itertools.pairwise(ends_s)):
        raise UsageError("a load run needs phases, each of which ends after the one before")
    return ends_s[-1]


def most_connections() -> int:
    """As many as this process may open beside its other files (`ulimit -Hn`), and one in any case."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    return sys.maxsize if hard == resource.RLIM_INFINITY else max(1, hard - _OTHER_FILES)


def _make_room(connections: int) -> None:
    """Lets this process open as many files as it needs or may; past that, requests fail as `no_socket`."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = connections + _OTHER_FILES
    if soft != resource.RLIM_INFINITY and soft < wanted:
        most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))

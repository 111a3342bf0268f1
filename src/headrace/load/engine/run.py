"""The clockwork of a run: watches deadlines, keeps the books, asks whether to stop."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import takewhile
from typing import Protocol, TypeAlias

from headrace.clock import monotonic_s
from headrace.core.load.figures import RunFigures
from headrace.load.engine.ledger import Ledger
from headrace.load.engine.limits import Limits
from headrace.load.engine.pool import Pool
from headrace.load.engine.request import Request
from headrace.load.shot import Shot, Target

Stop: TypeAlias = Callable[[RunFigures], bool]
Leave: TypeAlias = Callable[[], bool]

TICK_S = 0.02
"""How often deadlines are looked at and the loop's lag is read."""

_STOP_TICKS = 5


class Feed(Protocol):
    """Begins the requests of a run, and calls `feed_over` once there are no more."""

    def start(self, run: Run, start_s: float) -> None: ...

    def ended(self, request: Request) -> None:
        """An outcome is known."""
        ...

    def close(self) -> None:
        """Begins no more. May be called again."""
        ...


class Run:
    """One run of one feed. An error in a callback (a sink's full disk, a judge's bug) ends the run and is raised by `whole`."""

    def __init__(
        self,
        target: Target,
        address: str,
        ledger: Ledger,
        limits: Limits,
        feed: Feed,
        stop: Stop | None,
        leave: Leave | None = None,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._pool = Pool(self, target, address, limits)
        self._ledger = ledger
        self._limits = limits
        self._feed = feed
        self._stop, self._leave = stop, leave
        self._stopped = self._fell_behind = False
        self._under_way: dict[int, Request] = {}
        """In the order of intended times, and so of deadlines."""
        self._drained: asyncio.Future[None] = self._loop.create_future()
        self._drain_until_s: float | None = None
        self._tick_due_s = 0.0
        self._ticks = 0

    async def whole(self) -> RunFigures:
        """From the first request to the last outcome. Cancelled, it books what it has."""
        with _collector_spared():
            start_s = self._tick_due_s = monotonic_s()
            self._ledger.start(start_s)
            try:
                self.guarded(lambda: self._feed.start(self, start_s))
                self._ring()
                await self._drained
            except asyncio.CancelledError:
                self._settle()
                raise
            finally:
                self._feed.close()
                await self._pool.close()
            self._settle()
        return self._figures()

    # --- told by the feed ------------------------------------------------------------------------------------------------

    def begin(self, intended_s: float, shot: Shot) -> None:
        """`intended_s` from the run's start."""
        request = self._ledger.begin(intended_s, shot)
        self._under_way[request.number] = request
        self._pool.submit(request)

    def feed_over(self) -> None:
        if self._drain_until_s is None:
            now_s = monotonic_s()
            self._drain_until_s = now_s + self._limits.grace_s
            self._ledger.over(now_s)

    def fell_behind(self) -> None:
        """The feed is so late that nothing of the run can be believed."""
        self._fell_behind = True

    def guarded(self, step: Callable[[], None]) -> None:
        """For whatever the event loop calls: it would only log an error."""
        try:
            step()
        except Exception as error:
            self.broke(error)

    # --- told by the pool ------------------------------------------------------------------------------------------------

    def ended(self, request: Request, failure: str | None) -> None:
        self.guarded(lambda: self._end(request, failure))

    def broke(self, error: BaseException) -> None:
        if not self._drained.done():
            self._drained.set_exception(error)

    # --- the clockwork ---------------------------------------------------------------------------------------------------

    def _ring(self) -> None:
        self.guarded(self._tick)
        if not self._drained.done():
            self._tick_due_s = max(self._tick_due_s + TICK_S, monotonic_s())
            self._loop.call_later(self._tick_due_s - monotonic_s(), self._ring)

    def _tick(self) -> None:
        now_s = monotonic_s()
        self._ledger.lag(self._tick_due_s, now_s)
        self._ledger.clock(now_s)
        self._expire(now_s)
        self._ticks += 1
        if self._ticks % _STOP_TICKS == 0:
            self._ledger.flush()
            self._ask_whether_to_stop()
        drain_until_s = self._drain_until_s
        if drain_until_s is not None and (not self._under_way or now_s >= drain_until_s):
            self._drained.set_result(None)

    def _expire(self, now_s: float) -> None:
        begun_by_s = now_s - self._limits.timeout_s
        overdue = takewhile(lambda request: request.intended_s <= begun_by_s, self._under_way.values())
        # Those that still wait go first: a connection that is given up is opened anew for the next that waits.
        for request in sorted(overdue, key=lambda request: request.started_s is not None):
            self._pool.give_up(request)
            self._end(request, "unsent" if request.started_s is None else "timeout")

    def _ask_whether_to_stop(self) -> None:
        if self._drain_until_s is not None:
            if self._leave is not None and self._leave():
                self._drain_until_s = 0.0
        elif self._stop is not None and self._stop(self._figures()):
            self._stopped = True
            self._feed.close()
            self.feed_over()

    def _end(self, request: Request, failure: str | None) -> None:
        del self._under_way[request.number]
        self._ledger.end(request, failure)
        self._feed.ended(request)

    def _settle(self) -> None:
        """The run is over: books what was not answered, and hands all rows on."""
        self.feed_over()
        for request in self._under_way.values():
            self._ledger.end(request, "unsent" if request.started_s is None else "abandoned")
        self._under_way.clear()
        self._ledger.flush()

    def _figures(self) -> RunFigures:
        return RunFigures(
            phases=self._ledger.figures(monotonic_s()),
            stopped=self._stopped,
            fell_behind=self._fell_behind,
            connections_opened=self._pool.opened_count,
            connections_failed=self._pool.failed_count,
            retried=self._pool.retried_count,
            sent_bytes=self._ledger.sent_bytes,
            received_bytes=self._ledger.received_bytes,
        )


@contextmanager
def _collector_spared() -> Iterator[None]:
    """What is there already is left out of garbage collections, which then take well under a millisecond however much was loaded."""
    if gc.get_freeze_count():
        yield  # somebody else's arrangement
        return
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()

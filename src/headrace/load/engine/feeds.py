"""Where requests come from: intended times, or clients that wait for their answers."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterator

from headrace.clock import monotonic_s
from headrace.errors import UsageError
from headrace.load.engine.alarm import Alarm
from headrace.load.engine.request import Request
from headrace.load.engine.run import Run
from headrace.load.shot import Shot

SEND_MAX = 64
"""Requests begun in one go when many are due: answers must be read between."""

BEHIND_S = 10.0
"""A run that is so late ends: whatever it sent from here on, nothing of it could be believed, and its rows would fill the disk."""

PAUSE_S = 0.1
"""A client that got no answer at all waits this long: a refusing service would otherwise be asked as fast as this machine can."""


class ArrivalFeed:
    """Open loop: a request at each intended time, whatever became of those before."""

    def __init__(self, arrivals: Iterator[float], shots: Iterator[Shot], until_s: float) -> None:
        self._arrivals = arrivals
        self._shots = shots
        self._until_s = until_s
        self._next_s = 0.0
        self._alarm: Alarm | None = None

    def start(self, run: Run, start_s: float) -> None:
        self._run = run
        self._start_s = start_s
        self._alarm = Alarm(asyncio.get_running_loop(), lambda: run.guarded(self._begin_due))
        self._look_ahead()
        self._alarm.set(start_s + self._next_s)

    def _look_ahead(self) -> None:
        next_s = next(self._arrivals, None)
        if next_s is None:
            self._until_s = self._next_s  # over at once
        elif not next_s >= self._next_s:
            raise UsageError(f"intended times must rise, but {next_s:g} s follows {self._next_s:g} s")
        self._next_s = self._until_s if next_s is None else min(next_s, self._until_s)

    def _begin_due(self) -> None:
        now_s = monotonic_s() - self._start_s
        if now_s - self._next_s > BEHIND_S and self._next_s < self._until_s:
            self._run.fell_behind()
            self._end()
            return
        for _ in range(SEND_MAX):
            if self._next_s > now_s:
                break
            shot = next(self._shots, None) if self._next_s < self._until_s else None
            if shot is None:
                self._end()
                return
            self._run.begin(self._next_s, shot)
            self._look_ahead()
        if self._alarm is not None:
            self._alarm.set(self._start_s + self._next_s)

    def _end(self) -> None:
        self.close()
        self._run.feed_over()

    def ended(self, request: Request) -> None:
        """Does not matter: the next one is begun at its time."""

    def close(self) -> None:
        if self._alarm is not None:
            self._alarm.close()
            self._alarm = None


class ClientFeed:
    """Closed loop: each client sends its next request when it has its answer and has thought."""

    def __init__(
        self, clients: int, shots: Iterator[Shot], until_s: float, think: Iterator[float] | None
    ) -> None:
        self._clients = clients
        self._shots = shots
        self._until_s = until_s
        self._think = think
        self._over = False

    def start(self, run: Run, start_s: float) -> None:
        self._run = run
        self._start_s = start_s
        self._loop = asyncio.get_running_loop()
        if math.isfinite(self._until_s):
            self._loop.call_later(start_s + self._until_s - monotonic_s(), self._finish)
        for _ in range(self._clients):
            self._begin()

    def _begin(self) -> None:
        now_s = monotonic_s() - self._start_s
        if self._over:
            return
        shot = next(self._shots, None) if now_s < self._until_s else None
        if shot is None:
            self._finish()
        else:
            self._run.begin(now_s, shot)

    def ended(self, request: Request) -> None:
        pause_s = 0.0 if self._think is None else next(self._think, 0.0)
        if request.answer is None:
            pause_s = max(pause_s, PAUSE_S)
        if pause_s > 0:
            self._loop.call_later(pause_s, lambda: self._run.guarded(self._begin))
        else:
            self._begin()

    def _finish(self) -> None:
        if not self._over:
            self.close()
            self._run.feed_over()

    def close(self) -> None:
        self._over = True

"""One clock tick for everybody who waits, in place of a timer each: most requests are answered before the first."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

TICK_S = 0.02
"""How late a deadline or a lost client may be noticed."""


class Waiting(Protocol):
    """Somebody whose patience ends."""

    def look(self, now_s: float) -> None:
        """Called at every tick while it waits."""


class Ticker:
    """Ticks while anybody waits. For one running event loop."""

    def __init__(self, clock_s: Callable[[], float]) -> None:
        self._clock_s = clock_s
        self._waiting: set[Waiting] = set()
        self._ticking = False

    def add(self, waiting: Waiting) -> None:
        self._waiting.add(waiting)
        if not self._ticking:
            self._ticking = True
            asyncio.get_running_loop().call_later(TICK_S, self._tick)

    def remove(self, waiting: Waiting) -> None:
        self._waiting.discard(waiting)

    def _tick(self) -> None:
        now_s = self._clock_s()
        for waiting in tuple(self._waiting):
            waiting.look(now_s)
        self._ticking = bool(self._waiting)
        if self._ticking:
            asyncio.get_running_loop().call_later(TICK_S, self._tick)


class Patience:
    """Cancels a task at a moment; `spent` then tells it apart from a cancellation from outside."""

    __slots__ = ("_deadline_s", "_task", "spent")

    def __init__(self, task: asyncio.Task[object] | None, deadline_s: float) -> None:
        self._task = task
        self._deadline_s = deadline_s
        self.spent = False

    def look(self, now_s: float) -> None:
        """Cancels once."""
        if now_s >= self._deadline_s and not self.spent and self._task is not None:
            self.spent = True
            self._task.cancel()

    def hurry(self, deadline_s: float) -> None:
        """It ends by `deadline_s` at the latest."""
        self._deadline_s = min(self._deadline_s, deadline_s)

    def take_back(self) -> None:
        """The cancellation has been dealt with."""
        if self._task is not None:
            self._task.uncancel()

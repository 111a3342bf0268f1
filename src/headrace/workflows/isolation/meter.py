"""One window of a closed loop: from when it runs smoothly to when enough was seen."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from headrace.clock import monotonic_s
from headrace.core.isolation.buildup import Window, rate_of
from headrace.errors import InternalError, UsageError
from headrace.models.runner import Runner

PATIENCE = 20.0
"""A window that has not seen enough by this many times its length ends all the same."""


Tell = Callable[[str], None]
"""Told what is going on, for people who wait."""


@dataclass(frozen=True, slots=True)
class Rounds:
    """How much to measure."""

    rounds: int = 5
    window_s: float = 0.5


@dataclass(frozen=True, slots=True)
class Pace:
    """How long to look."""

    window_s: float
    first: int
    """Images that are let go by before: until the first batch is through, the loop only fills up."""
    least: int
    """Images that a window has at least."""


class Reading(NamedTuple):
    """Totals of the process under test; None where nobody counts."""

    busy_s: float | None
    cpu_s: float | None


def of_this_process(runner: Runner) -> Callable[[], Reading]:
    """Readings of a model that runs here."""
    return lambda: Reading(runner.busy().busy_s, time.process_time())


class Meter:
    """Told when images are done, from any thread; asked by whoever begins new ones whether to go on."""

    def __init__(
        self, pace: Pace, read: Callable[[], Reading], clock_s: Callable[[], float] = monotonic_s
    ) -> None:
        self._pace, self._read, self._clock_s = pace, read, clock_s
        self._opened_s = clock_s()
        self._ends_s: list[float] = []
        self._before = 0
        self._begun: tuple[float, Reading] | None = None
        self._over: tuple[float, Reading] | None = None

    def done(self, end_s: float, images: int = 1) -> None:
        self._ends_s.extend([end_s] * images)

    def going_on(self) -> bool:
        """False once the window is over."""
        now_s, seen = self._clock_s(), len(self._ends_s)
        patience_s = PATIENCE * self._pace.window_s
        if self._begun is None:
            if seen >= self._pace.first or now_s - self._opened_s >= patience_s:
                self._begun, self._before = (self._clock_s(), self._read()), seen
            return True
        elapsed_s = now_s - self._begun[0]
        enough = elapsed_s >= self._pace.window_s and seen - self._before >= self._pace.least
        if self._over is None and (enough or elapsed_s >= patience_s):
            self._over = self._clock_s(), self._read()
        return self._over is None

    def window(self) -> Window:
        """What was seen. Raises UsageError when that was not enough for a rate."""
        if self._begun is None or self._over is None:
            raise InternalError("a window was read before it was over")
        (begun_s, before), (over_s, after) = self._begun, self._over
        ends_s = [end_s for end_s in self._ends_s if begun_s <= end_s <= over_s]
        rate = rate_of(ends_s)
        if math.isnan(rate):
            raise UsageError(
                f"{len(ends_s)} images came through in {over_s - begun_s:.1f} s, too few for a rate; give a longer --window"
            )
        return Window(
            rate,
            len(ends_s),
            _busy(_share(before.busy_s, after.busy_s, over_s - begun_s)),
            _share(before.cpu_s, after.cpu_s, over_s - begun_s),
        )


def _share(before_s: float | None, after_s: float | None, seconds: float) -> float | None:
    return None if before_s is None or after_s is None else (after_s - before_s) / seconds


def _busy(share: float | None) -> float | None:
    return None if share is None else min(1.0, share)

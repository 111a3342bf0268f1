"""When what is read: absolute times, so that a late reading does not move the next one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

BUDGET = 0.01
"""Share of one core that watching may take: the promise of docs/measuring.md."""
SLOWEST = 8.0
"""Periods are stretched to this many times their length at most."""

_TOO_SOON = 0.25
"""Of a period. So soon after a late reading comes none: in a window so short the kernel's clock ticks of 10 ms would be absurd shares."""


class Due(NamedTuple):
    """Something whose time has come."""

    which: int
    """Its place among the periods."""
    late_s: float
    missed: int
    """Readings whose time passed while nobody came; they are not made up for."""


class Schedule:
    """Not synchronised. Times in seconds on any one clock."""

    def __init__(self, periods_s: Sequence[float], start_s: float) -> None:
        self._periods_s = tuple(periods_s)
        self._next_s = [start_s] * len(self._periods_s)
        self.stretch = 1.0

    @property
    def next_s(self) -> float:
        """When the next thing is due."""
        return min(self._next_s)

    @property
    def planned_s(self) -> Sequence[float]:
        """When each thing is due next."""
        return self._next_s

    def due(self, now_s: float) -> list[Due]:
        """What is due now; the next times keep their distance from the first."""
        found = []
        for which, (period_s, planned_s) in enumerate(zip(self._periods_s, self._next_s, strict=True)):
            if planned_s > now_s:
                continue
            step_s = period_s * self.stretch
            late_s = now_s - planned_s
            missed = int(late_s / step_s)
            self._next_s[which] = planned_s + (missed + 1) * step_s
            if self._next_s[which] - now_s < _TOO_SOON * step_s:
                self._next_s[which] += step_s
                missed += 1
            found.append(Due(which, late_s, missed))
        return found

    def pace(self, cpu_share: float) -> bool:
        """Told what watching took of one core lately: slower above the budget, faster again below a third of it. True when that changed."""
        before = self.stretch
        if cpu_share > BUDGET:
            self.stretch = min(SLOWEST, self.stretch * 2)
        elif cpu_share < BUDGET / 3:
            self.stretch = max(1.0, self.stretch / 2)
        return self.stretch != before

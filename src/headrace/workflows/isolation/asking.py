"""Asking a service in a closed loop, one window at a time."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from statistics import median
from typing import Any, NamedTuple

from headrace.core.isolation.buildup import Window, rate_of
from headrace.load.run import Limits, Phase, closed_loop, drive
from headrace.load.shot import Shot, Target
from headrace.records.rows.load import OutcomeRow
from headrace.workflows.isolation.meter import Meter, Pace, Reading

LONGEST_S = 60.0
"""An answer that takes longer is a failure."""
NOBODY = Reading(None, None)

Sink = Callable[[Sequence[tuple[Any, ...]]], None]
"""Takes rows of a capture."""


class Asked(NamedTuple):
    """One window."""

    window: Window
    latency_s: float
    """Median."""
    client_cores: float
    """CPU time that asking took, in cores."""
    failed: Counter[str]
    """By kind, in and around the window."""


@dataclass
class Asker:
    """Numbers its requests through, and tells `sink` of each."""

    target: Target
    began_s: float
    """The capture's time 0 on the monotonic clock."""
    sink: Sink = field(default=lambda rows: None)
    number: int = field(default=0, init=False)

    def ask(
        self,
        shots: Iterator[Shot],
        clients: int,
        pace: Pace,
        name: str,
        *,
        read: Callable[[], Reading] = lambda: NOBODY,
        most: int | None = None,
    ) -> Asked:
        """`clients` at once until the window is over. With `most`, no more are sent, the window is all of them, and refusals count too.

        Raises UsageError when too few answers came for a rate.
        """
        seen = _Seen(self, Meter(pace, read), any_answer=most is not None)
        figures = drive(
            closed_loop(
                self.target,
                clients,
                islice(shots, most),
                phases=[Phase(name, math.inf)],
                sink=seen.take,
                limits=Limits(timeout_s=LONGEST_S, grace_s=LONGEST_S),
                began_s=self.began_s,
                first_number=self.number,
                stop=lambda _: most is None and (seen.hopeless or not seen.meter.going_on()),
            )
        )
        phase = figures.phases[0]
        self.number += phase.intended
        return seen.asked(phase.cpu_s / max(1e-9, phase.duration_s))


class _Seen:
    """The outcomes of one window."""

    def __init__(self, asker: Asker, meter: Meter, *, any_answer: bool) -> None:
        self.meter = meter
        self._asker, self._any_answer = asker, any_answer
        self._ends_s: list[float] = []
        self._latencies_s: list[float] = []
        self._failed: Counter[str] = Counter()

    @property
    def hopeless(self) -> bool:
        return self._failed.total() >= MOST_FAILED

    def take(self, rows: Sequence[OutcomeRow]) -> None:
        self._asker.sink(rows)
        for row in rows:
            if row.done_s is None or row.sent_s is None or (row.error and not self._any_answer):
                self._failed[row.error or "no answer"] += 1
                continue
            self._ends_s.append(row.done_s)
            self._latencies_s.append(row.done_s - row.sent_s)
            self.meter.done(row.done_s + self._asker.began_s)

    def asked(self, client_cores: float) -> Asked:
        if self.hopeless or not self._ends_s:
            return Asked(NOTHING, math.nan, client_cores, self._failed)
        window = (
            Window(rate_of(self._ends_s), len(self._ends_s), None, None)
            if self._any_answer
            else self.meter.window()
        )
        return Asked(window, median(self._latencies_s), client_cores, self._failed)


MOST_FAILED = 200
"""A service that refuses them all is not asked for long."""
NOTHING = Window(math.nan, 0, None, None)

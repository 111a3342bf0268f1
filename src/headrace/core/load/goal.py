"""What a capacity is searched for, and what one trial says of it."""

from __future__ import annotations

import re
from typing import NamedTuple

from headrace.core.load.capacity import Trial
from headrace.core.load.figures import PhaseFigures
from headrace.core.load.tally import Tally
from headrace.core.load.validity import BEYOND_MIN, CPU_SHARE_MAX, touched_max, validity
from headrace.errors import UsageError
from headrace.units import format_ms, parse_duration_s

TRIAL_LEAST_S, TRIAL_MOST_S = 10.0, 60.0
SURE = 0.9
"""Confidence of a verdict that one trial is enough for: one in twenty is wrong in the worst case, of a rate right at the limit."""
HOPELESS = 0.99
"""Confidence at which a trial is not measured to its end: it is asked about many times, and each time chance may say it."""
_GOAL = re.compile(r"p(?P<percent>\d{1,2}(\.\d+)?)\s*<=?\s*(?P<time>.+)")


class Goal(NamedTuple):
    """This share of all requests gets a right answer within this time. One that fails is later than any time."""

    share: float
    within_s: float

    def __str__(self) -> str:
        return f"p{self.share * 100:g} < {format_ms(self.within_s) if self.within_s < 10 else f'{self.within_s:g} s'}"


def parse_goal(text: str) -> Goal:
    """`p99<200ms`. Raises UsageError."""
    found = _GOAL.fullmatch(text.strip())
    try:
        within_s = parse_duration_s(found["time"]) if found else 0.0
    except ValueError:
        within_s = 0.0
    share = float(found["percent"]) / 100 if found else 0.0
    if not (0.5 <= share < 1 and 0 < within_s <= 3600):
        raise UsageError(
            f"the goal {text!r} cannot be; write it like p99<200ms, from p50 up and at most an hour"
        )
    return Goal(share, within_s)


def trial_s(goal: Goal, rate: float) -> float:
    """How long a trial lasts for enough answers to lie beyond the quantile; not so long that nobody waits for it."""
    return min(TRIAL_MOST_S, max(TRIAL_LEAST_S, BEYOND_MIN / (1 - goal.share) / rate))


def hopeless(tally: Tally, goal: Goal) -> bool:
    """Whether it is already so sure that the goal is not held that the rest of the trial can be spared."""
    return _broken(tally, goal, HOPELESS)


def _broken(tally: Tally, goal: Goal, confidence: float) -> bool:
    return tally.every.interval(goal.share, confidence).low_us > goal.within_s * 1e6


def trial(rate: float, phase: PhaseFigures, tally: Tally, goal: Goal) -> Trial:
    """Held, not held, or no measurement: when the tester itself was slow, or it did not send what it should."""
    if _own_fault(phase, goal):
        return Trial(rate, None)
    if _broken(tally, goal, SURE):
        return Trial(rate, False)
    told = validity(phase, _judged_share(phase, goal))
    if not told.valid and phase.ok >= BEYOND_MIN:
        return Trial(rate, None)
    within_us = goal.within_s * 1e6
    held = tally.every.total().quantile(goal.share) < within_us
    return Trial(rate, held, sure=held and tally.every.interval(goal.share, SURE).high_us < within_us)


def _judged_share(phase: PhaseFigures, goal: Goal) -> float:
    """A short trial of a slow service has few answers; that makes its verdict unsure, not wrong."""
    return min(goal.share, max(0.5, 1 - BEYOND_MIN / max(1, phase.ok)))


def _own_fault(phase: PhaseFigures, goal: Goal) -> bool:
    """The tester was late by itself. Waiting for a free connection is no such thing: a service that answers in time frees it."""
    most = touched_max(goal.share)
    own = [phase.late - phase.waited, phase.failed.get("no_socket", 0)]
    busy = phase.duration_s > 0 and (
        phase.cpu_s / phase.duration_s > CPU_SHARE_MAX or phase.lagged_s / phase.duration_s > most
    )
    return busy or max(own) > most * max(1, phase.intended)

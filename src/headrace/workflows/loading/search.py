"""The search for a capacity: trial after trial, each a run of its own."""

from __future__ import annotations

from headrace.core.load.capacity import HIGHEST, LOWEST, Answer, Search, Trial, next_rate
from headrace.core.load.figures import PhaseFigures
from headrace.core.load.goal import Goal, hopeless, trial, trial_s
from headrace.core.load.patterns import Clients, Rate
from headrace.core.load.tally import Tally
from headrace.errors import UsageError
from headrace.workflows.loading.report import CapacityReport, trial_name
from headrace.workflows.loading.session import Enough, Session

_PROBE_S = 3.0
"""A closed loop of so long tells where to begin: at half of what it got."""
_BROKEN_AFTER_S = 3.0
"""A trial that is sure to break the goal is ended early, but not before this: a cold start is no verdict."""


def search(
    session: Session, goal: Goal, pattern: Clients | Rate, warm_up_s: float, run_s: float | None
) -> CapacityReport:
    """`pattern` is where to begin: a rate, or clients whose closed loop shows one. `run_s` None: as long as the goal takes.

    Raises UsageError when that loop gets no right answer.
    """
    rate = pattern if isinstance(pattern, Rate) else Rate(_begin(session, pattern), poisson=True)
    bounds = Search(start=rate.rate, low=min(LOWEST, rate.rate), high=max(HIGHEST, rate.rate))
    trials: list[Trial] = []
    while not session.asked.is_set() and session.trouble is None:
        step = next_rate(trials, bounds)
        if isinstance(step, Answer):
            return CapacityReport(goal, step, tuple(trials))
        found = _try(session, goal, rate._replace(rate=step), len(trials) + 1, warm_up_s, run_s)
        if found is not None:
            trials.append(found)
    return CapacityReport(goal, None, tuple(trials))


def _begin(session: Session, clients: Clients) -> float:
    """All of it is warm-up: nothing of it is reported."""
    phase = session.run(clients, _PROBE_S, 0.0).figures.phases[0]
    if not phase.ok:
        if session.asked.is_set():
            return 1.0
        raise UsageError(
            f"{clients.clients} clients got no right answer within {_PROBE_S:g} s; where is the search to begin? Give --rate"
        )
    return max(LOWEST, phase.ok / phase.duration_s / 2)


def _try(
    session: Session, goal: Goal, rate: Rate, number: int, warm_up_s: float, run_s: float | None
) -> Trial | None:
    """None when it was ended from outside."""
    seconds = trial_s(goal, rate.rate) if run_s is None else run_s
    name = trial_name(number, rate.rate)
    measured = session.run(rate, warm_up_s, seconds, name=name, enough=_hopeless(goal))
    if session.asked.is_set():
        return None
    figures, tally = next(measured.phases(), (None, Tally()))
    return Trial(rate.rate, None) if figures is None else trial(rate.rate, figures, tally, goal)


def _hopeless(goal: Goal) -> Enough:
    def enough(tally: Tally, phase: PhaseFigures) -> bool:
        return phase.duration_s >= _BROKEN_AFTER_S and hopeless(tally, goal)

    return enough

"""The highest rate that still holds a target, found by trying rates: growth until one breaks it, then halving of the bracket.

A pure function of the trials so far: it says which rate to try next, or the answer.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from headrace.errors import UsageError

LOWEST, HIGHEST = 0.05, 100_000.0
"""Requests a second that are tried at all."""
MOST_NEAR = 3
"""Trials of one rate whose verdict is within its error: then the majority decides."""
MOST_INVALID = 2
"""Trials of one rate that were no measurement: then the client is the limit."""


class Trial(NamedTuple):
    """A rate that was tried."""

    rate: float
    """Requests a second."""
    held: bool | None
    """Whether the target was held; None: the trial was not valid."""
    sure: bool = True
    """By more than the error of the measurement."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """Where and how finely to look. Raises UsageError when the start lies outside."""

    start: float
    """Requests a second of the first trial."""
    low: float = LOWEST
    """The lowest rate tried."""
    high: float = HIGHEST
    """The highest."""
    growth: float = 2.0
    width: float = 0.05
    """The answer's bracket is at most this share of its lower end wide."""
    most_trials: int = 40

    def __post_init__(self) -> None:
        if not 0 < self.low <= self.start <= self.high < math.inf:
            raise UsageError(
                f"the search starts at {self.start:g}/s, which is not between {self.low:g}/s and {self.high:g}/s"
            )


Ended = Literal["bracket", "client", "lowest rate", "highest rate", "trials"]


class Answer(NamedTuple):
    """What the search found."""

    holds: float | None
    """The highest rate that held; None: none did."""
    breaks: float | None
    """The lowest rate that did not; None: none broke."""
    ended: Ended
    """`bracket`: it is narrow enough. `client`: at `breaks` the client could not send what it should, so the server's limit is not known.
    Otherwise the bound of the search that was met."""
    surely_holds: float | None = None
    """The highest rate that held by more than the error of the measurement; None: none did."""
    surely_breaks: float | None = None
    """The lowest that did not, by more than it."""


def next_rate(trials: Sequence[Trial], search: Search) -> float | Answer:
    """The rate to try next, in requests a second, or the answer."""
    says = {trial.rate: _says(trials, trial.rate) for trial in trials}
    holds = max((rate for rate, word in says.items() if word == "holds"), default=None)
    breaks = min((rate for rate, word in says.items() if word in ("breaks", "client")), default=None)
    ended = _ended(holds, breaks, search)
    if ended in ("bracket", "lowest rate") and breaks is not None and says[breaks] == "client":
        ended = "client"
    if ended is None and len(trials) >= search.most_trials:
        ended = "trials"
    if ended is not None:
        return Answer(holds, breaks, ended, *_sure(trials))
    unsettled = [rate for rate, word in says.items() if word is None]
    return unsettled[0] if unsettled else _between(holds, breaks, search)


def _sure(trials: Sequence[Trial]) -> tuple[float | None, float | None]:
    sure = [trial for trial in trials if trial.sure]
    held, broke = ([trial.rate for trial in sure if trial.held is word] for word in (True, False))
    return max(held, default=None), min(broke, default=None)


def _ended(holds: float | None, breaks: float | None, search: Search) -> Ended | None:
    if breaks is not None and breaks <= search.low:
        return "lowest rate"
    if holds is not None and holds >= search.high:
        return "highest rate"
    narrow = holds is not None and breaks is not None and breaks <= holds * (1 + search.width)
    return "bracket" if narrow else None


def _between(holds: float | None, breaks: float | None, search: Search) -> float:
    if holds is None:
        return search.start if breaks is None else max(search.low, breaks / search.growth)
    return min(search.high, holds * search.growth) if breaks is None else math.sqrt(holds * breaks)


def _says(trials: Sequence[Trial], rate: float) -> Literal["holds", "breaks", "client"] | None:
    """What the trials of a rate say together; None: try it again."""
    of_rate = [trial for trial in trials if trial.rate == rate]
    valid = [trial for trial in of_rate if trial.held is not None]
    held = sum(trial.held is True for trial in valid)
    if any(trial.sure for trial in valid):
        return "holds" if valid[-1].held else "breaks"
    if len(of_rate) - len(valid) >= MOST_INVALID:
        return "client"
    if max(held, len(valid) - held) > MOST_NEAR // 2:
        return "holds" if held > len(valid) - held else "breaks"
    return None

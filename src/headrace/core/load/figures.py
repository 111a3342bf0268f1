"""What a load run says of itself: how much was intended, what became of it, and what asking cost."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple


class Phase(NamedTuple):
    """A part of a run that is judged apart from the others. A request belongs to the phase of its intended time."""

    name: str
    until_s: float
    """Seconds since the run began; infinite for one that ends with its arrivals."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseFigures:
    """One phase. `intended = ok + sum(failed) + unsent + waiting`, where `waiting` is 0 once the run is over."""

    name: str
    began_s: float
    """Seconds since the run began."""
    ended_s: float
    """When the next phase began or no more was intended; now, in figures of a run under way."""
    intended: int
    sent: int
    """Requests of which at least the first byte left; refused and unsent ones did not."""
    late: int
    """Taken in hand later than `Limits.late_after_s` after the intended time. Connecting is the service's time and does not count."""
    waited: int
    """Found every connection taken and none left to open."""
    again: int
    """Sent a second time, as the service had closed the connection of the first without an answer. Callers do not all do that."""
    last_start_s: float
    """When the last of them was taken in hand, in seconds since the run began."""
    ok: int
    failed: Mapping[str, int]
    """By kind of failure, `unsent` apart."""
    unsent: int
    cpu_s: float
    """CPU time of this process, all threads."""
    worst_lag_s: float
    """The latest the event loop did something after its time."""
    lagged_s: float
    """Time in which it was later than `Limits.late_after_s`, summed."""

    @property
    def duration_s(self) -> float:
        return self.ended_s - self.began_s

    @property
    def waiting(self) -> int:
        """Neither answered nor given up yet."""
        return self.intended - self.ok - self.unsent - sum(self.failed.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFigures:
    """A whole run."""

    phases: tuple[PhaseFigures, ...]
    """Those that began, in order."""
    stopped: bool
    """Ended early by the `stop` hook."""
    fell_behind: bool
    """Ended early, as requests could not be begun at the intended times by far."""
    connections_opened: int
    connections_failed: int
    """Attempts that ended without a connection."""
    retried: int
    """Sent again on a fresh connection, because the service had closed an idle one just before."""
    sent_bytes: int
    """Of bodies."""
    received_bytes: int
    """Of bodies of answers."""

    def phase(self, name: str) -> PhaseFigures | None:
        """The first phase of that name, or None."""
        return next((phase for phase in self.phases if phase.name == name), None)

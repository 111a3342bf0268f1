"""What a load run found, in figures and in sentences."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from headrace.core.load.capacity import Answer, Trial
from headrace.core.load.figures import PhaseFigures
from headrace.core.load.goal import Goal
from headrace.core.load.tally import Bill, Tally
from headrace.core.load.validity import BEYOND_MIN, validity
from headrace.core.stats.latency import Interval, supported
from headrace.workflows.image_sets import spelled

QUANTILES = (0.5, 0.9, 0.95, 0.99, 0.999)
JUDGED = (0.99, 0.95, 0.9, 0.5)


@dataclass(frozen=True, slots=True)
class PhaseReport:
    """One phase that was measured."""

    figures: PhaseFigures
    good: int
    """Right answers within the deadline; all of them without one."""
    latency_us: Mapping[float, float]
    """Of right answers, by quantile; those that the sample does not support are left out."""
    p99: Interval
    """95 % confidence; NaN where there are too few requests to know."""
    valid_up_to: float | None
    """The highest quantile for which the tester did what it should and the answers are enough; None: not valid."""
    reasons: tuple[str, ...]
    """Why it is not valid for p99."""

    @property
    def failed(self) -> int:
        """Requests without a right answer."""
        return sum(self.figures.failed.values()) + self.figures.unsent

    def rate(self, requests: int) -> float:
        """So many a second."""
        return requests / self.figures.duration_s if self.figures.duration_s > 0 else float("nan")

    def as_dict(self) -> dict[str, Any]:
        """For machines: rates a second, times in milliseconds."""
        one = self.figures
        return {
            **asdict(one),
            "duration_s": one.duration_s,
            "valid_up_to": self.valid_up_to,
            "reasons": self.reasons,
            "good": self.good,
            "rates": {
                "intended": self.rate(one.intended),
                "sent": self.rate(one.sent),
                "ok": self.rate(one.ok),
                "good": self.rate(self.good),
            },
            "latency_ms": {
                f"p{share * 100:g}": self.latency_us[share] / 1e3 if share in self.latency_us else None
                for share in QUANTILES
            },
            "p99_between_ms": [self.p99.low_us / 1e3, self.p99.high_us / 1e3],
            "own_cpu_ratio": one.cpu_s / one.duration_s if one.duration_s > 0 else None,
        }


def phase_report(figures: PhaseFigures, tally: Tally) -> PhaseReport:
    """The figures of the engine and the counts of the recorder, together."""
    latencies = tally.answers.total()
    enough = next((share for share in JUDGED if figures.ok * (1 - share) >= BEYOND_MIN - 1e-9), JUDGED[-1])
    told = validity(figures, JUDGED[0], answers_for=enough)
    return PhaseReport(
        figures,
        tally.good,
        {share: latencies.quantile(share) for share in QUANTILES if supported(share, latencies.count)},
        tally.answers.interval(0.99),
        enough if told.valid else None,
        told.reasons if not told.valid else validity(figures, JUDGED[0]).reasons,
    )


def trial_name(number: int, rate: float) -> str:
    """Names the phase of a trial, from 1."""
    return f"trial {number}: {rate:.4g}/s"


@dataclass(frozen=True, slots=True)
class CapacityReport:
    """A search, and where it ended."""

    goal: Goal
    answer: Answer | None
    """None: it was ended before there was one."""
    trials: tuple[Trial, ...]
    """In the order of trying."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadReport:
    """All that a load run found."""

    url: str
    pattern: str
    """For people."""
    closed_loop: bool
    images: int
    settings: Mapping[str, Any]
    phases: tuple[PhaseReport, ...]
    """Without the warm-up."""
    stages: tuple[Bill, ...]
    elsewhere_us: float | None
    connections: Mapping[str, int]
    emulated: bool
    interrupted: bool
    remarks: tuple[str, ...]
    capacity: CapacityReport | None = None
    folder: Path | None = None
    trouble: str | None = None
    """Why the capture is not whole."""

    @property
    def valid(self) -> bool:
        if self.capacity is not None:
            return self.capacity.answer is not None and self.capacity.answer.ended != "trials"
        return bool(self.phases) and all(phase.valid_up_to is not None for phase in self.phases)

    def as_dict(self) -> dict[str, Any]:
        """For machines, and for the capture's end."""
        return {
            "valid": self.valid,
            "url": self.url,
            "pattern": self.pattern,
            "images": self.images,
            "settings": self.settings,
            "phases": [phase.as_dict() for phase in self.phases],
            "stages": [bill._asdict() for bill in self.stages],
            "elsewhere_us": self.elsewhere_us,
            "connections": self.connections,
            "emulated": self.emulated,
            "interrupted": self.interrupted,
            "remarks": self.remarks,
            "capacity": _capacity_dict(self.capacity),
            "capture": None if self.folder is None else spelled(str(self.folder)),
            "trouble": self.trouble,
        }


def _capacity_dict(capacity: CapacityReport | None) -> dict[str, Any] | None:
    if capacity is None:
        return None
    return {
        "goal": str(capacity.goal),
        "answer": None if capacity.answer is None else capacity.answer._asdict(),
        "trials": [trial._asdict() for trial in capacity.trials],
    }

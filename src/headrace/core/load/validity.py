"""Whether a load run may be believed: did the tester do what it was told, and are there answers enough?

A quantile q is decided by the share 1 - q of the requests. Whatever the tester itself did to half as many makes the quantile say as
much of the tester as of the service; that is the line for everything that touches single requests.
"""

from __future__ import annotations

from dataclasses import dataclass

from headrace.core.load.figures import PhaseFigures

RATE_ERROR_MAX = 0.01
"""Sent against intended rate. The waiting time of a queue moves with the rate by 1 / (1 - utilisation): at 90 % busy, 1 % less load
makes it 8 % shorter."""

CPU_SHARE_MAX = 0.8
"""Of one core. The event loop has one; past this its own queue, with waits of utilisation / (1 - utilisation) times its
service, is no longer small beside the service's."""

BEYOND_MIN = 10
"""Answers beyond the quantile. Their number has a standard deviation of about its root, so that with 10 the true share beyond the
measured value is within a third of 1 - q: p99 lies between p98.7 and p99.3. It makes 100 answers for p90, 1,000 for p99."""


@dataclass(frozen=True, slots=True)
class Validity:
    valid: bool
    reasons: tuple[str, ...]
    """Sentences, the gravest first; empty when valid."""


def touched_max(quantile: float) -> float:
    """The share of the requests that the tester may have touched itself, for a quantile (0..1) to be believed."""
    return (1.0 - quantile) / 2.0


def validity(phase: PhaseFigures, quantile: float = 0.99, *, answers_for: float | None = None) -> Validity:
    """Judges one phase; `quantile` (0..1, 1 excluded) is the highest that is to be read from it.

    With `answers_for` it has to have answers enough for that quantile only, while the tester is held to `quantile`: a short run is no
    excuse for requests that were sent late.
    """
    most = touched_max(quantile)
    reasons = [
        *_unsent(phase, most),
        *_late(phase, most),
        *_rate(phase),
        *_own_sockets(phase, most),
        *_abandoned(phase, most),
        *_own_cost(phase, most),
        *_too_few(phase, quantile if answers_for is None else answers_for),
    ]
    return Validity(not reasons, tuple(reasons))


def _unsent(phase: PhaseFigures, most: float) -> list[str]:
    if phase.unsent <= _few(phase, most):
        return []
    return [
        f"{_share(phase.unsent, phase)} of the requests were never sent, as all connections were taken: "
        "the service got less load than intended"
    ]


def _late(phase: PhaseFigures, most: float) -> list[str]:
    if phase.late <= _few(phase, most):
        return []
    why = "all connections were taken" if 2 * phase.waited >= phase.late else "the tester could not keep up"
    return [f"{_share(phase.late, phase)} of the requests were sent late, mostly as {why}"]


def _rate(phase: PhaseFigures) -> list[str]:
    """The last arrival may be taken in hand after the phase's end, and then the others were stretched too."""
    if not phase.intended or phase.duration_s <= 0:
        return []
    intended_rate = phase.intended / phase.duration_s
    sent_rate = (phase.intended - phase.unsent) / max(phase.duration_s, phase.last_start_s - phase.began_s)
    if abs(sent_rate / intended_rate - 1.0) <= RATE_ERROR_MAX:
        return []
    return [f"{sent_rate:.1f} requests a second were sent where {intended_rate:.1f} were intended"]


def _own_sockets(phase: PhaseFigures, most: float) -> list[str]:
    count = phase.failed.get("no_socket", 0)
    if count <= _few(phase, most):
        return []
    return [
        f"{_share(count, phase)} of the requests found no socket or port left on the tester's machine: "
        "allow it more open files, or use fewer connections"
    ]


def _abandoned(phase: PhaseFigures, most: float) -> list[str]:
    count = phase.failed.get("abandoned", 0)
    if count <= _few(phase, most):
        return []
    return [f"{_share(count, phase)} of the requests were still unanswered when the run ended: wait longer"]


def _own_cost(phase: PhaseFigures, most: float) -> list[str]:
    if phase.duration_s <= 0:
        return []
    reasons = []
    busy = phase.cpu_s / phase.duration_s
    if busy > CPU_SHARE_MAX:
        reasons.append(f"the tester used {busy:.0%} of a core and was itself the bottleneck")
    stood_still = phase.lagged_s / phase.duration_s
    if stood_still > most:
        reasons.append(
            f"the tester stood still for {stood_still:.1%} of the time, {phase.worst_lag_s * 1e3:.0f} ms at the longest: "
            "answers that came meanwhile look slower than they were"
        )
    return reasons


def _too_few(phase: PhaseFigures, quantile: float) -> list[str]:
    needed = round(BEYOND_MIN / (1.0 - quantile))
    if phase.ok >= needed:
        return []
    if not phase.ok:
        return ["no request was answered right"]
    return [f"{phase.ok:,} right answers are too few for p{quantile * 100:g}: it takes {needed:,}"]


def _few(phase: PhaseFigures, most: float) -> float:
    """That many requests are let pass; one always, for it says nothing of a run of a hundred."""
    return max(1.0, most * phase.intended)


def _share(count: int, phase: PhaseFigures) -> str:
    return percent(count / phase.intended)


def percent(share: float) -> str:
    """0.0312 -> '3.1 %'; '100 %' only for all."""
    if share < 0.1:
        return f"{100 * share:.2g} %"
    return f"{100 * share:.0f} %" if share == 1 or share < 0.995 else f"{min(99.9, 100 * share):.1f} %"

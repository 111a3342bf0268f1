"""A load report in sentences: whether it may be believed, and what was found."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from headrace.core.load.capacity import Answer
from headrace.core.load.figures import PhaseFigures
from headrace.core.load.goal import Goal
from headrace.core.load.validity import percent, touched_max
from headrace.core.stats.latency import Interval
from headrace.units import format_rate
from headrace.workflows.loading.report import JUDGED, CapacityReport, LoadReport, PhaseReport


def verdict(report: LoadReport) -> str:
    """Whether the figures may be believed, and why not."""
    if report.capacity is not None:
        return _verdict_of_search(report.capacity)
    if not report.phases:
        return "NOT VALID: nothing was measured."
    bad = [phase for phase in report.phases if phase.valid_up_to is None]
    if bad:
        where = f" in {bad[0].figures.name}" if len(report.phases) > 1 else ""
        more = "" if len(bad) == 1 else f"; so {'is 1' if len(bad) == 2 else f'are {len(bad) - 1}'} more"
        return f"NOT VALID{where}: {'; '.join(bad[0].reasons)}{more}."
    lowest = min(report.phases, key=lambda phase: phase.valid_up_to or 0.0)
    if lowest.valid_up_to == JUDGED[0]:
        return "Valid."
    return f"Valid up to {percentile(lowest.valid_up_to or 0.0)}, not above: {'; '.join(lowest.reasons)}."


def finding(report: LoadReport) -> str:
    """What was found, in a sentence or two."""
    if report.capacity is not None:
        return _finding_of_search(report.capacity.goal, report.capacity.answer)
    if not report.phases:
        return "There are no figures."
    first, last = report.phases[0], report.phases[-1]
    if first is last:
        return _of_phase(first, report.closed_loop)
    return f"At first {_of_phase(first, False)} At last {_of_phase(last, False)}"


def _verdict_of_search(capacity: CapacityReport) -> str:
    if capacity.answer is None:
        return "NOT VALID: the search was ended before it had an answer."
    if capacity.answer.ended == "trials":
        return (
            f"NOT VALID: {len(capacity.trials)} trials gave no answer; the service's latency varies too much."
        )
    return "Valid."


def _finding_of_search(goal: Goal, answer: Answer | None) -> str:
    if answer is None:
        return f"It is not known yet up to which rate {goal} is held."
    if answer.holds is None:
        why = ": there the tester itself was the limit" if answer.ended == "client" else ""
        return f"Not even {_rate(answer.breaks)} holds {goal}{why}."
    held = f"{goal} is held up to about {_rate(answer.holds)}"
    if answer.breaks is None:
        return f"{held}, the highest rate tried."
    if answer.ended == "client":
        return f"{held} at least; at {_rate(answer.breaks)} the tester itself was the limit: ask from a faster machine."
    return f"{held}; {_rate(answer.breaks)} is too much.{_how_sure(answer)}"


def _how_sure(answer: Answer) -> str:
    """Where the last trials were within their error, what they say is a guess between these two."""
    if (answer.surely_holds, answer.surely_breaks) == (answer.holds, answer.breaks):
        return ""
    low = (
        "no rate is known to hold it"
        if answer.surely_holds is None
        else f"{_rate(answer.surely_holds)} holds it"
    )
    high = (
        "no rate to break it" if answer.surely_breaks is None else f"{_rate(answer.surely_breaks)} does not"
    )
    return f" By more than the error of the trials, {low}, {high}; longer ones (--for) tell it more closely."


def _rate(rate: float | None) -> str:
    return f"{format_rate(rate or 0.0)}/s"


def _of_phase(phase: PhaseReport, closed_loop: bool) -> str:
    one = phase.figures
    asked, right = per_s(phase.rate(one.intended)), per_s(phase.rate(one.ok))
    rate = f"{right}/s answered right" if closed_loop else f"{asked}/s asked for, {right}/s answered right"
    text = f"{rate}: {_slowest_known(phase)}"
    return f"{text}; {_failures(phase)}{_again(one)}."


def _failures(phase: PhaseReport) -> str:
    if not phase.failed:
        return "no request failed"
    share = percent(phase.failed / max(1, phase.figures.intended))
    return f"{phase.failed:,} requests ({share}) failed, most as {next(iter(kinds_of([phase])))}"


def _again(phase: PhaseFigures) -> str:
    """Where it touches the p99. A service closes idle connections without harm meant; one that breaks down looks the same."""
    if phase.again <= max(1, touched_max(JUDGED[0]) * phase.intended):
        return ""
    return (
        f"; {phase.again:,} ({percent(phase.again / phase.intended)}) had to be sent twice, as the service closed their connection "
        "without an answer: callers that do not repeat themselves see an error there"
    )


def _slowest_known(phase: PhaseReport) -> str:
    """The highest quantile that may be believed; of a phase that is not valid, the highest there is."""
    most = phase.valid_up_to or JUDGED[0]
    known = [share for share in JUDGED if share in phase.latency_us and share <= most]
    if not known:
        return "too few for a latency"
    text = f"{percentile(known[0])} {milliseconds(phase.latency_us[known[0]])} ms"
    return text + (between(phase.p99) if known[0] == JUDGED[0] else "")


def percentile(share: float) -> str:
    """0.99 -> 'p99'."""
    return f"p{share * 100:g}"


def milliseconds(value_us: float | None) -> str:
    """Three digits; '-' where there is none."""
    if value_us is None or value_us != value_us:
        return "-"
    return f"{value_us / 1e3:.3g}" if value_us < 999_500 else f"{value_us / 1e3:,.0f}"


def between(interval: Interval) -> str:
    """' (78 to 95 ms with 95 % confidence)', or nothing."""
    low_us, high_us = interval
    if low_us != low_us and high_us != high_us:
        return ""
    if high_us != high_us:
        return f" ({milliseconds(low_us)} ms or more with 95 % confidence: too few independent requests for an upper end)"
    return f" ({milliseconds(low_us)} to {milliseconds(high_us)} ms with 95 % confidence)"


def per_s(rate: float) -> str:
    """Four digits: a rate is held against the one asked for, from which 1 % is much."""
    return format_rate(rate, 4)


def kinds_of(phases: Sequence[PhaseReport]) -> Mapping[str, int]:
    """Failures by kind, over all phases, the most frequent first."""
    counts: dict[str, int] = {}
    for phase in phases:
        for kind, count in {**phase.figures.failed, "unsent": phase.figures.unsent}.items():
            counts[kind] = counts.get(kind, 0) + count
    return {kind: counts[kind] for kind in sorted(counts, key=lambda kind: -counts[kind]) if counts[kind]}


def as_dict(report: LoadReport) -> dict[str, object]:
    """The report for machines, with its sentences: what `--json` prints and what ends the capture."""
    return {"verdict": verdict(report), "finding": finding(report), **report.as_dict()}

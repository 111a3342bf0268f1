"""What `headrace load` prints: the finding, then the figures."""

from __future__ import annotations

from collections.abc import Iterator

from headrace.cli import output
from headrace.workflows.load import LoadReport, Progress
from headrace.workflows.loading.findings import finding, kinds_of, milliseconds, per_s, percentile, verdict
from headrace.workflows.loading.report import QUANTILES, CapacityReport, PhaseReport, trial_name


def text(report: LoadReport) -> str:
    """The whole of it."""
    return "\n".join(_lines(report))


def progress(told: Progress) -> str:
    """One line while it runs."""
    one = told.phase
    seconds = max(one.duration_s, 1e-9)
    failed = sum(one.failed.values()) + one.unsent
    return (
        f"{one.name} {one.duration_s:.0f} s: asked {per_s(one.intended / seconds)}/s, right {per_s(one.ok / seconds)}/s, "
        f"{failed} failed, {one.waiting} under way, p99 {milliseconds(told.p99_us)} ms"
    )


def _lines(report: LoadReport) -> Iterator[str]:
    yield verdict(report) + (" It was interrupted." if report.interrupted else "")
    yield finding(report)
    yield ""
    yield f"{report.url}: {report.pattern}, {report.images} images ({report.settings['mix']}), seed {report.settings['seed']}"
    if report.emulated:
        yield output.EMULATED
    if report.phases:
        yield ""
        yield _phases(report)
        yield ""
        yield from _beside(report)
    if report.stages:
        yield ""
        yield _stages(report)
    yield from (f"note: {remark}" for remark in report.remarks)
    if report.folder is not None:
        yield f"capture: {report.folder}"


def _phases(report: LoadReport) -> str:
    deadline_s = report.settings["deadline_s"]
    head = ["phase", "asked/s", "sent/s", "right/s"]
    head += [] if deadline_s is None else [f"in {deadline_s * 1e3:g} ms/s"]
    head += ["failed", *(f"{percentile(share)} ms" for share in QUANTILES), "p99 between"]
    head += [] if report.capacity is None else ["holds"]
    rows = [_row(phase, deadline_s is not None) for phase in report.phases]
    if report.capacity is not None:
        held = _held(report.capacity)
        rows = [[*row, held.get(row[0], "-")] for row in rows]
    return output.table(head, rows, frozenset(range(1, len(head))))


def _row(phase: PhaseReport, deadline: bool) -> list[str]:
    one = phase.figures
    share = phase.failed / max(1, one.intended)
    low_us, high_us = phase.p99
    return [
        one.name,
        *(per_s(phase.rate(count)) for count in (one.intended, one.sent, one.ok)),
        *([per_s(phase.rate(phase.good))] if deadline else []),
        f"{share:.2%}" if share else "none",
        *(milliseconds(phase.latency_us.get(quantile)) for quantile in QUANTILES),
        _span(low_us, high_us),
    ]


def _span(low_us: float, high_us: float) -> str:
    if high_us == high_us:
        return f"{milliseconds(low_us)} and {milliseconds(high_us)}"
    return f"{milliseconds(low_us)} and more" if low_us == low_us else "-"


def _held(capacity: CapacityReport) -> dict[str, str]:
    """What each trial said, by the name of its phase."""
    words = {True: "yes", False: "no", None: "not valid"}
    return {
        trial_name(number, trial.rate): words[trial.held] + ("" if trial.sure else ", just")
        for number, trial in enumerate(capacity.trials, 1)
    }


def _beside(report: LoadReport) -> Iterator[str]:
    failures = kinds_of(report.phases)
    if failures:
        yield "failed: " + ", ".join(f"{kind} {count:,}" for kind, count in failures.items())
    told = report.connections
    yield f"connections: {told['opened']:,} opened, {told['failed']:,} not, {told['sent_again']:,} requests sent again as theirs was closed"
    figures = [phase.figures for phase in report.phases]
    busy = max((one.cpu_s / one.duration_s for one in figures if one.duration_s > 0), default=float("nan"))
    late = sum(one.late for one in figures)
    yield (
        f"tester: {busy:.0%} of a core at most, {late:,} requests late, "
        f"its event loop {max(one.worst_lag_s for one in figures) * 1e3:.1f} ms behind at most"
    )


def _stages(report: LoadReport) -> str:
    rows = [
        [bill.stage, f"{bill.wait_us / 1e3:.2f}", f"{bill.service_us / 1e3:.2f}", f"{bill.requests:,}"]
        for bill in report.stages
    ]
    if report.elsewhere_us is not None:
        rows.append(["elsewhere", "", f"{report.elsewhere_us / 1e3:.2f}", ""])
    return output.table(
        ["stage, as the server told", "waits ms", "works ms", "requests"], rows, frozenset({1, 2, 3})
    )

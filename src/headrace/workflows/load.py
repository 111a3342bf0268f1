"""`headrace load`: requests made of images, sent as real callers would or as fast as they are answered, and what became of them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from itertools import cycle
from pathlib import Path
from threading import Event
from typing import Any

import numpy as np

from headrace.clock import monotonic_s
from headrace.core.load.figures import PhaseFigures
from headrace.core.load.goal import Goal
from headrace.core.load.mix import Mix, picks
from headrace.core.load.patterns import Clients, Open, Rate, Replay, Steps, described
from headrace.core.load.tally import StageBills, Tally
from headrace.core.load.validity import BEYOND_MIN
from headrace.errors import StorageError, UsageError
from headrace.load.preflight import ask_once
from headrace.load.run import Limits, most_connections
from headrace.load.shot import Shot, Target
from headrace.records.capture import End, Manifest, Note
from headrace.store.captures.writer import CaptureWriter
from headrace.workflows.image_sets import open_images
from headrace.workflows.loading.findings import as_dict
from headrace.workflows.loading.makers import Sending, maker_of
from headrace.workflows.loading.recorder import latency_rows
from headrace.workflows.loading.report import CapacityReport, LoadReport, phase_report
from headrace.workflows.loading.search import search
from headrace.workflows.loading.session import Enough, Progress, Session, Show
from headrace.workflows.loading.shots import Magazine, fill
from headrace.workflows.manifests import manifest

__all__ = ["Load", "LoadReport", "Progress", "Show", "load"]

DEFAULT_MIX, DEFAULT_PATTERN = Mix("uniform"), Clients(16)
RUN_S = 30.0
MOST_RUN_S = 600.0
"""With an interval to stop at."""
NARROWEST = 0.01
"""Of an interval: the histogram knows a latency to within 1 %."""
_ASKED_BEFORE = 3
"""Images tried before the load; one of them may be a bad one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What to send, to whom, and when. Raises UsageError for what does not go together."""

    url: str
    images: tuple[Path, ...]
    most: int | None = None
    """The first so many images only."""
    mix: Mix | None = None
    """Which image each request carries. None: uniform; for a replay the same image wherever the log asked for the same."""
    sending: Sending = field(default_factory=Sending)
    pattern: Clients | Open = DEFAULT_PATTERN
    run_s: float | None = None
    """None: 30 s; to the end of the log for a replay; up to 10 minutes with `stop_at`."""
    warm_up_s: float = 2.0
    seed: int = 1
    deadline_s: float | None = None
    goal: Goal | None = None
    """Search the highest rate that holds it. The pattern is where to begin."""
    stop_at: float | None = None
    """End when the p99's interval is within this share of it, up and down."""
    limits: Limits = field(default_factory=Limits)
    anyway: bool = False
    """Also when the first requests fail."""

    def __post_init__(self) -> None:
        if isinstance(self.pattern, Steps) and self.run_s is not None:
            raise UsageError("the steps say how long each lasts; leave --for out")
        if self.stop_at is not None and (self.goal or not isinstance(self.pattern, Clients | Rate)):
            raise UsageError("--stop-at goes with one rate or one number of clients")
        if self.stop_at is not None and not NARROWEST <= self.stop_at < 1:
            raise UsageError(
                f"--stop-at {self.stop_at:.3g} cannot be; give 1 % to 99 % (latencies are counted to within 1 %)"
            )
        if self.goal is not None and not isinstance(self.pattern, Clients | Rate):
            raise UsageError(
                "--capacity tries rates of its own; give --rate to begin at, or none of the patterns"
            )
        if isinstance(self.pattern, Clients) and self.pattern.clients > self.limits.connections:
            raise UsageError(
                f"{self.pattern.clients} clients need as many connections; --connections allows {self.limits.connections}"
            )
        if self.limits.connections > most_connections():
            raise UsageError(
                f"{self.limits.connections} connections cannot be: this process may open {most_connections()} beside its files (ulimit -Hn)"
            )
        if self.goal is not None and self.goal.within_s >= self.limits.timeout_s:
            raise UsageError(
                f"no answer is waited for longer than --timeout {self.limits.timeout_s:g}s: it has to be above the goal {self.goal}"
            )

    @property
    def seconds(self) -> float:
        """How long it is measured, without the warm-up."""
        if isinstance(self.pattern, Steps):
            return self.pattern.each_s * len(self.pattern.rates)
        if self.run_s is not None:
            return self.run_s
        if isinstance(self.pattern, Replay):
            return math.inf
        return RUN_S if self.stop_at is None else MOST_RUN_S

    def as_dict(self) -> dict[str, Any]:
        """For the capture."""
        return {
            "pattern": described(self.pattern),
            "seconds": self.seconds if self.goal is None else self.run_s,
            "warm_up_s": self.warm_up_s,
            "mix": str(self.mix or ("as in the log" if isinstance(self.pattern, Replay) else DEFAULT_MIX)),
            **self.sending.as_dict(),
            "seed": self.seed,
            "deadline_s": self.deadline_s,
            "goal": None if self.goal is None else str(self.goal),
            "stop_at": self.stop_at,
            "connections": self.limits.connections,
            "timeout_s": self.limits.timeout_s,
        }


def load(asked: Load, folder: Path | None, stop: Event, show: Show | None = None) -> LoadReport:
    """Sends the load until its time is up or `stop` is set; into a capture when there is a folder.

    Raises UsageError when the images, the address or the answers are not as they should be, before any load. A disk that fills up ends
    the run; what was measured is told, and what was written is kept.
    """
    target = Target.of(asked.url)
    sampling, mixing, timing = map(np.random.default_rng, np.random.SeedSequence(asked.seed).spawn(3))
    magazine = fill(open_images(*asked.images, most=asked.most), maker_of(asked.url, asked.sending), sampling)
    emulated = _asked_before(asked, target, magazine)
    if stop.is_set():
        raise KeyboardInterrupt  # nothing was measured, so there is nothing to keep
    began_s = monotonic_s()
    with ExitStack() as closing:
        writer = None
        if folder is not None:
            writer = closing.enter_context(CaptureWriter.create(folder, _manifest(asked, emulated, began_s)))
            writer.add(magazine.images)
            writer.flush()
            for remark in magazine.remarks:
                writer.note(Note(0.0, "remark", remark))
        session = Session(
            target,
            _shots(magazine.shots, asked, mixing),
            asked.limits,
            random=timing,
            deadline_s=asked.deadline_s,
            writer=writer,
            began_s=began_s,
            asked=stop,
            show=show,
        )
        capacity = _measure(asked, session)
        report = _report(asked, session, magazine, capacity, emulated)
        return report if writer is None else _kept(report, session, writer, monotonic_s() - began_s)


def _asked_before(asked: Load, target: Target, magazine: Magazine) -> bool:
    """Whether an emulated accelerator answers. Raises UsageError when nothing answers as it should."""
    problem: str | None = None
    for shot in magazine.shots[:_ASKED_BEFORE]:
        try:
            reply = ask_once(target, shot, asked.limits.timeout_s)
        except UsageError:
            if asked.anyway:
                return False
            raise
        problem = reply.failure(shot)
        if problem is None or asked.anyway:
            return reply.field(b"x-headrace-emulated") == "true"
    raise UsageError(
        f"{asked.url} does not answer as it should: {problem}; nothing was measured (--anyway measures nevertheless)"
    )


def _shots(shots: Sequence[Shot], asked: Load, random: np.random.Generator) -> Iterator[Shot]:
    if asked.mix is None and isinstance(asked.pattern, Replay):
        return (shots[number % len(shots)] for number in cycle(asked.pattern.images.tolist()))
    return (shots[number] for number in picks(asked.mix or DEFAULT_MIX, len(shots), random))


def _manifest(asked: Load, emulated: bool, began_s: float) -> Manifest:
    return manifest(
        "load",
        began_s,
        target={"url": asked.url},
        settings=asked.as_dict(),
        seed=asked.seed,
        emulated=emulated,
    )


def _measure(asked: Load, session: Session) -> CapacityReport | None:
    if asked.goal is not None and isinstance(asked.pattern, Clients | Rate):
        return search(session, asked.goal, asked.pattern, asked.warm_up_s, asked.run_s)
    enough = None if asked.stop_at is None else _narrow(asked.stop_at)
    session.run(asked.pattern, asked.warm_up_s, asked.seconds, enough=enough)
    return None


def _narrow(share: float) -> Enough:
    """Stopping at a fixed width keeps an interval's confidence as samples grow (Chow and Robbins 1965)."""

    def enough(tally: Tally, phase: PhaseFigures) -> bool:
        latencies = tally.answers
        if latencies.count * (1 - 0.99) < BEYOND_MIN:
            return False
        low_us, high_us = latencies.interval(0.99)
        return (high_us - low_us) / 2 <= share * latencies.total().quantile(0.99)

    return enough


def _report(
    asked: Load, session: Session, magazine: Magazine, capacity: CapacityReport | None, emulated: bool
) -> LoadReport:
    runs = [run.figures for run in session.runs]
    bills = session.runs[-1].recorder.bills if capacity is None else StageBills()
    return LoadReport(
        url=asked.url,
        pattern=described(asked.pattern)
        if capacity is None
        else f"search for {capacity.goal}, {_trials(asked.pattern)}",
        closed_loop=isinstance(asked.pattern, Clients),
        images=len(magazine.shots),
        settings=asked.as_dict(),
        phases=tuple(phase_report(*phase) for run in session.runs for phase in run.phases()),
        stages=tuple(bills.bills()),
        elsewhere_us=bills.elsewhere_us(),
        connections={
            "opened": sum(run.connections_opened for run in runs),
            "failed": sum(run.connections_failed for run in runs),
            "sent_again": sum(run.retried for run in runs),
        },
        emulated=emulated,
        interrupted=session.asked.is_set(),
        remarks=(*magazine.remarks, *_remarks(asked, session)),
        capacity=capacity,
        trouble=None if session.trouble is None else str(session.trouble),
    )


def _trials(pattern: Clients | Open) -> str:
    regular = isinstance(pattern, Rate) and not pattern.poisson
    return (
        "each trial an open loop at a regular rate"
        if regular
        else "each trial an open loop of Poisson arrivals"
    )


def _remarks(asked: Load, session: Session) -> Iterator[str]:
    runs = [run.figures for run in session.runs]
    if asked.goal is None and not (session.asked.is_set() or any(session.runs[-1].phases())):
        yield f"all requests fell into the warm-up of {asked.warm_up_s:g} s, which is not counted; give a shorter --warm-up"
    if asked.goal is None and any(run.fell_behind for run in runs):
        yield "ended early: requests were begun more than 10 s after their intended times; ask for less, or from a faster machine"
    if asked.stop_at is not None and not any(run.stopped for run in runs):
        yield f"the time was over before the p99 was known to within {asked.stop_at:.0%}"
    if asked.limits.connections == most_connections():
        yield f"at most {asked.limits.connections} connections were open at once: this process may open no more files (ulimit -Hn)"
    if isinstance(asked.pattern, Replay):
        yield from asked.pattern.remarks
    if isinstance(asked.pattern, Clients) and asked.goal is None:
        yield (
            "in a closed loop clients wait while the service is slow, which hides its slowness: this is what it can do, not what "
            "people would see; for that give --rate"
        )


def _kept(report: LoadReport, session: Session, writer: CaptureWriter, t_s: float) -> LoadReport:
    """The report, with the capture closed."""
    report = replace(report, folder=writer.folder)
    if session.trouble is not None:
        return report
    try:
        writer.add(latency_rows(run.recorder for run in session.runs))
        writer.finish(End(t_s, "interrupted" if report.interrupted else "finished", as_dict(report)))
    except StorageError as problem:
        return replace(report, trouble=str(problem))
    return report

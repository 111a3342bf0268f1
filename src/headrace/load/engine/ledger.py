"""The books of a run: each intended request ends in exactly one row and one count."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import TypeAlias

from headrace.core.load.figures import Phase, PhaseFigures
from headrace.core.load.server_timing import stage_times
from headrace.load.engine.request import Answer, Request
from headrace.load.shot import Shot
from headrace.records.rows.load import OutcomeRow, SpanRow

Sink: TypeAlias = Callable[[Sequence[OutcomeRow]], None]
SpanSink: TypeAlias = Callable[[Sequence[SpanRow]], None]

CHUNK = 1000
"""Rows handed on together at most; however few there are, they are handed on ten times a second."""


class _Tally:
    """What happened in one phase."""

    def __init__(self) -> None:
        self.intended = self.sent = self.late = self.waited = self.again = 0
        self.ended: Counter[str | None] = Counter()
        """By kind of failure; None: it went well."""
        self.last_start_s = 0.0
        self.cpu_s = self.worst_lag_s = self.lagged_s = 0.0


class Ledger:
    """Times on the monotonic clock, where they are not said to count from the run's start."""

    def __init__(
        self,
        phases: Sequence[Phase],
        *,
        capture_began_s: float | None,
        first_number: int,
        late_after_s: float,
        sink: Sink,
        span_sink: SpanSink | None,
    ) -> None:
        self._phases = phases
        self._tallies = [_Tally() for _ in phases]
        self._start_s = 0.0
        self._capture_began_s = capture_began_s
        self._number = first_number
        self._late_after_s = late_after_s
        self._sink = sink
        self._span_sink = span_sink
        self._intended_phase = 0
        self._clock_phase = 0
        self._cpu_read_s = 0.0
        self._over_s: float | None = None
        self._rows: list[OutcomeRow] = []
        self._spans: list[SpanRow] = []
        self.sent_bytes = self.received_bytes = 0

    def start(self, now_s: float) -> None:
        """The run begins."""
        self._start_s = now_s
        self._cpu_read_s = time.process_time()

    def begin(self, intended_s: float, shot: Shot) -> Request:
        """`intended_s` from the run's start, not before that of the last call and before the end of the last phase."""
        while intended_s >= self._phases[self._intended_phase].until_s:
            self._intended_phase += 1
        self._tallies[self._intended_phase].intended += 1
        request = Request(self._number, self._intended_phase, shot, self._start_s + intended_s)
        self._number += 1
        return request

    def end(self, request: Request, failure: str | None) -> None:
        """`failure` None: the answer is there and its judge has the word."""
        kind = failure or _judged(request)
        tally = self._tallies[request.phase]
        tally.ended[kind] += 1
        tally.waited += request.waited
        tally.again += request.again
        if request.started_s is not None:
            tally.late += request.started_s - request.intended_s > self._late_after_s
            tally.last_start_s = max(tally.last_start_s, request.started_s - self._start_s)
        if request.sent_s is not None:
            tally.sent += 1
            self.sent_bytes += len(request.shot.body)
            self.received_bytes += request.received_bytes
        self._rows.append(self._row(request, kind))
        if self._span_sink is not None and request.answer is not None:
            self._spans += _spans(request.number, request.answer)
        if len(self._rows) >= CHUNK:
            self.flush()

    def _row(self, request: Request, kind: str | None) -> OutcomeRow:
        began_s = self._start_s if self._capture_began_s is None else self._capture_began_s
        sent_s, done_s = request.sent_s, request.done_s
        return OutcomeRow(
            number=request.number,
            phase=self._phases[request.phase].name,
            source=request.shot.source,
            intended_s=request.intended_s - began_s,
            sent_s=None if sent_s is None else sent_s - began_s,
            done_s=None if done_s is None else done_s - began_s,
            status=None if request.answer is None else request.answer.status,
            error=kind,
            sent_bytes=0 if sent_s is None else len(request.shot.body),
            received_bytes=request.received_bytes,
        )

    def flush(self) -> None:
        """Hands on what there is."""
        rows, self._rows = self._rows, []
        spans, self._spans = self._spans, []
        if rows:
            self._sink(rows)
        if spans and self._span_sink is not None:
            self._span_sink(spans)

    # --- what asking cost ------------------------------------------------------------------------------------------------

    def lag(self, due_s: float, now_s: float) -> None:
        """The event loop did something now that was due before. The time is charged to the phases that it fell into."""
        clock = self._tallies[self._clock_phase]
        clock.worst_lag_s = max(clock.worst_lag_s, now_s - due_s)
        if now_s - due_s <= self._late_after_s:
            return
        last_s = (now_s if self._over_s is None else self._over_s) - self._start_s
        began_s = 0.0
        for phase, tally in zip(self._phases, self._tallies, strict=True):
            inside_s = min(last_s, phase.until_s) - max(due_s - self._start_s, began_s)
            if inside_s > 0:
                tally.lagged_s += inside_s
                tally.worst_lag_s = max(tally.worst_lag_s, now_s - due_s)
            began_s = phase.until_s

    def clock(self, now_s: float) -> None:
        """Charges this process's CPU time to the phase that runs, until the last has ended; call it often."""
        if self._over_s is not None:
            return
        cpu_s = time.process_time()
        self._tallies[self._clock_phase].cpu_s += cpu_s - self._cpu_read_s
        self._cpu_read_s = cpu_s
        while (
            self._clock_phase < len(self._phases) - 1
            and now_s - self._start_s >= self._phases[self._clock_phase].until_s
        ):
            self._clock_phase += 1
        if now_s - self._start_s >= self._phases[-1].until_s:
            self._over_s = now_s

    def over(self, now_s: float) -> None:
        """No more is intended: what follows is waiting for answers."""
        self.clock(now_s)
        if self._over_s is None:
            self._over_s = now_s

    def figures(self, now_s: float) -> tuple[PhaseFigures, ...]:
        """Of the phases that began."""
        last_s = (now_s if self._over_s is None else self._over_s) - self._start_s
        figures: list[PhaseFigures] = []
        began_s = 0.0
        for phase, tally in zip(self._phases, self._tallies, strict=True):
            ended_s = min(phase.until_s, last_s)
            if figures and ended_s <= began_s and not tally.intended:
                break
            figures.append(_figures(phase.name, tally, began_s, max(began_s, ended_s)))
            began_s = phase.until_s
        return tuple(figures)


def _judged(request: Request) -> str | None:
    assert request.answer is not None
    status, headers, body = request.answer
    if not 200 <= status < 300:
        return f"http_{status}"
    judge = request.shot.judge
    return None if judge is None else judge(status, headers, body)


def _spans(number: int, answer: Answer) -> list[SpanRow]:
    header = b", ".join(value for name, value in answer.headers if name == b"server-timing")
    return [SpanRow(number, *time) for time in stage_times(header.decode("latin-1"))] if header else []


def _figures(name: str, tally: _Tally, began_s: float, ended_s: float) -> PhaseFigures:
    failed = {kind: count for kind, count in tally.ended.items() if kind not in (None, "unsent")}
    return PhaseFigures(
        name=name,
        began_s=began_s,
        ended_s=ended_s,
        intended=tally.intended,
        sent=tally.sent,
        late=tally.late,
        waited=tally.waited,
        again=tally.again,
        last_start_s=tally.last_start_s,
        ok=tally.ended[None],
        failed={kind: count for kind, count in sorted(failed.items()) if kind is not None},
        unsent=tally.ended["unsent"],
        cpu_s=tally.cpu_s,
        worst_lag_s=tally.worst_lag_s,
        lagged_s=tally.lagged_s,
    )

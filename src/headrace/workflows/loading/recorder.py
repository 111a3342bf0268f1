"""What a load run leaves: rows in a capture, counts by phase. On a thread of its own, so that a slow disk does not delay requests."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from queue import SimpleQueue
from threading import Event, Thread
from types import TracebackType
from typing import Any

from headrace.clock import monotonic_s
from headrace.core.load.figures import RunFigures
from headrace.core.load.patterns import WARM_UP
from headrace.core.load.tally import StageBills, Tally
from headrace.errors import HeadraceError
from headrace.records.rows.load import OutcomeRow, SpanRow
from headrace.store.captures.writer import CaptureWriter

_FLUSH_ROWS = 4096
"""Rows become Arrow with the interpreter's lock held, 1 us a row: more at once would delay requests by milliseconds."""
_FLUSH_S = 5.0
_LOOK_S = 0.5
_PATIENCE_S = 2.0
"""How long answers are still waited for when somebody asked to end: nobody who presses Ctrl-C waits for a time-out."""
_SWITCH_S = 0.0005
"""How long the event loop may wait for the interpreter while this thread counts; Python's own 5 ms would show in the latencies."""

Watch = Callable[["Recorder", RunFigures], bool]
"""Told about twice a second, on the recorder's thread, how it goes; True ends the run."""


class Recorder:
    """Of one run. `outcomes`, `spans`, `stop` and `leave` are for the engine and only hand things on. Read the rest from `watch`, or at
    the end."""

    def __init__(
        self, writer: CaptureWriter | None, deadline_s: float | None, asked: Event, watch: Watch
    ) -> None:
        self.tallies: dict[str, Tally] = {}
        """By phase."""
        self.bills = StageBills()
        """Of right answers, without the warm-up."""
        self.trouble: Exception | None = None
        """Why the capture is not whole, or the run was given up."""
        self._writer, self._deadline_s, self._asked, self._watch = writer, deadline_s, asked, watch
        self._queue: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._enough = False
        self._leaves_s: float | None = None
        self._unflushed = 0
        self._flushed_s = self._looked_s = monotonic_s()
        self._latencies_s: dict[int, float] = {}
        """Of the right answers told last, by request: their spans are told next."""
        self._thread = Thread(target=self._work, name="load-recorder")

    def __enter__(self) -> Recorder:
        self._switch_s = sys.getswitchinterval()
        sys.setswitchinterval(min(_SWITCH_S, self._switch_s))
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Everything is counted and written when this returns."""
        self._queue.put(None)
        self._thread.join()
        sys.setswitchinterval(self._switch_s)

    # --- called in the event loop ----------------------------------------------------------------------------------------

    def outcomes(self, rows: Sequence[OutcomeRow]) -> None:
        self._queue.put(partial(self._count, rows))

    def spans(self, rows: Sequence[SpanRow]) -> None:
        self._queue.put(partial(self._bill, rows))

    def stop(self, figures: RunFigures) -> bool:
        """Whether the run is to end now: somebody asked for it, enough was seen, or there is trouble."""
        self._queue.put(partial(self._look, figures))
        return self._enough or self._asked.is_set() or self.trouble is not None

    def leave(self) -> bool:
        """Whether answers are not to be waited for any more: somebody asked to end, some time ago."""
        if not self._asked.is_set():
            return False
        now_s = monotonic_s()
        if self._leaves_s is None:
            self._leaves_s = now_s + _PATIENCE_S
        return now_s >= self._leaves_s

    # --- on the thread ---------------------------------------------------------------------------------------------------

    def _work(self) -> None:
        while (job := self._queue.get()) is not None:
            try:
                job()
            except Exception as problem:
                self.trouble = self.trouble or problem

    def _count(self, rows: Sequence[OutcomeRow]) -> None:
        by_phase: dict[str, list[OutcomeRow]] = {}
        for row in rows:
            by_phase.setdefault(row.phase, []).append(row)
        for phase, of_phase in by_phase.items():
            self.tallies.setdefault(phase, Tally(self._deadline_s)).add(of_phase)
        self._latencies_s = {
            row.number: row.done_s - row.intended_s
            for row in rows
            if row.error is None and row.done_s is not None and row.phase != WARM_UP
        }
        self._write(rows)

    def _bill(self, rows: Sequence[SpanRow]) -> None:
        self.bills.add(rows, self._latencies_s)
        self._write(rows)

    def _look(self, figures: RunFigures) -> None:
        now_s = monotonic_s()
        if now_s - self._looked_s >= _LOOK_S:
            self._looked_s = now_s
            self._enough = self._watch(self, figures)

    def _write(self, rows: Sequence[tuple[Any, ...]]) -> None:
        if self._writer is None or isinstance(self.trouble, HeadraceError):
            return
        self._writer.add(rows)
        self._unflushed += len(rows)
        now_s = monotonic_s()
        if self._unflushed >= _FLUSH_ROWS or now_s - self._flushed_s >= _FLUSH_S:
            self._unflushed, self._flushed_s = 0, now_s
            self._writer.flush()


def latency_rows(recorders: Iterable[Recorder]) -> Iterable[tuple[Any, ...]]:
    """The histograms of all phases, for a capture."""
    for recorder in recorders:
        for phase, tally in recorder.tallies.items():
            yield from tally.rows(phase)

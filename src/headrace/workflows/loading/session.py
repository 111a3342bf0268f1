"""The runs of one load test, one after the other, into one capture."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from threading import Event
from typing import Any, NamedTuple

import numpy as np

from headrace.clock import monotonic_s
from headrace.core.load.figures import PhaseFigures, RunFigures
from headrace.core.load.patterns import RUN, WARM_UP, Clients, Open, arrivals_of, phases_of
from headrace.core.load.tally import Tally
from headrace.errors import HeadraceError
from headrace.load.run import Limits, closed_loop, drive, open_loop
from headrace.load.shot import Shot, Target
from headrace.records.capture import Note
from headrace.store.captures.writer import CaptureWriter
from headrace.workflows.loading.recorder import Recorder


class Progress(NamedTuple):
    """How a run goes."""

    phase: PhaseFigures
    """The one under way."""
    p99_us: float
    """Of its right answers so far; NaN before there are any."""


Show = Callable[[Progress], None]
Enough = Callable[[Tally, PhaseFigures], bool]
"""Asked about the phase under way, twice a second; True ends the run."""


class Measured(NamedTuple):
    """A run that has ended."""

    figures: RunFigures
    recorder: Recorder

    def phases(self) -> Iterator[tuple[PhaseFigures, Tally]]:
        """Those that were measured: all but the warm-up and what nothing was intended in."""
        for phase in self.figures.phases:
            if phase.name != WARM_UP and phase.intended:
                yield phase, self.recorder.tallies.get(phase.name, Tally())


class Session:
    """Numbers requests through all runs; time 0 is when it was made. Raises what the engine raises."""

    def __init__(
        self,
        target: Target,
        shots: Iterator[Shot],
        limits: Limits,
        *,
        random: np.random.Generator,
        deadline_s: float | None,
        writer: CaptureWriter | None,
        began_s: float,
        asked: Event,
        show: Show | None,
    ) -> None:
        self.asked = asked
        """Set when somebody wants to end it."""
        self.runs: list[Measured] = []
        self._target, self._shots, self._limits, self._random = target, shots, limits, random
        self._deadline_s, self._writer, self._began_s, self._show = deadline_s, writer, began_s, show

    def run(
        self,
        pattern: Clients | Open,
        warm_up_s: float,
        run_s: float,
        *,
        name: str = RUN,
        enough: Enough | None = None,
    ) -> Measured:
        """One run to its end, with all its rows counted and written. `name`: of its phase, where it has only one."""

        def watch(recorder: Recorder, figures: RunFigures) -> bool:
            phase = figures.phases[-1]
            tally = recorder.tallies.get(phase.name, Tally())
            if self._show is not None:
                self._show(Progress(phase, tally.answers.total().quantile(0.99)))
            return enough is not None and phase.name != WARM_UP and enough(tally, phase)

        started_s = monotonic_s() - self._began_s
        with Recorder(self._writer, self._deadline_s, self.asked, watch) as recorder:
            figures = self._drive(pattern, warm_up_s, run_s, name, recorder)
        if recorder.trouble is not None and not isinstance(recorder.trouble, HeadraceError):
            raise recorder.trouble
        self.runs.append(Measured(figures, recorder))
        if self._writer is not None and recorder.trouble is None:
            for phase in figures.phases:
                self._writer.note(Note(started_s + phase.began_s, "phase", phase.name))
        return self.runs[-1]

    def _drive(
        self, pattern: Clients | Open, warm_up_s: float, run_s: float, name: str, recorder: Recorder
    ) -> RunFigures:
        options: dict[str, Any] = {
            "phases": phases_of(pattern, warm_up_s, run_s, name),
            "sink": recorder.outcomes,
            "spans": recorder.spans,
            "stop": recorder.stop,
            "leave": recorder.leave,
            "limits": self._limits,
            "began_s": self._began_s,
            "first_number": sum(phase.intended for run in self.runs for phase in run.figures.phases),
        }
        if isinstance(pattern, Clients):
            return drive(closed_loop(self._target, pattern.clients, self._shots, **options))
        arrivals = arrivals_of(pattern, warm_up_s, run_s, self._random)
        return drive(open_loop(self._target, arrivals, self._shots, **options))

    @property
    def trouble(self) -> Exception | None:
        """Why the capture is not whole."""
        return next((run.recorder.trouble for run in self.runs if run.recorder.trouble is not None), None)

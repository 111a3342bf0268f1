"""`headrace record`: samples of a machine and a service, from outside, into a capture (R1, R2, R26)."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from threading import Event
from typing import Any

from headrace.clock import monotonic_s
from headrace.core.watching.figures import Figures
from headrace.core.watching.headline import headline
from headrace.core.watching.secrets import without_secrets
from headrace.probe.probe import Probe, Row
from headrace.probe.sampler import Sampler
from headrace.records.capture import End, Manifest, Note, Unseen
from headrace.records.rows.service import DeviceRow
from headrace.store.captures.writer import CaptureWriter
from headrace.workflows.manifests import manifest
from headrace.workflows.record_target import Target, Watch, find_target, probes_for

FLUSH_EVERY_S = 10.0
"""The most that a crash costs. A piece of a table has some 3 KB of its own, so not more often."""
LOOK_EVERY_S = 1.0

Show = Callable[[Figures, float], None]
"""Told the figures so far and the capture's time, about once a second."""


@dataclass(frozen=True, slots=True)
class Recorded:
    """A recording that has ended."""

    folder: Path
    end: End
    figures: Figures
    unseen: tuple[Unseen, ...]
    emulated: bool

    @property
    def name(self) -> str:
        """Of the folder, as text: names of files may hold bytes that are none."""
        return os.fsencode(self.folder).decode(errors="replace")

    @property
    def sentence(self) -> str:
        """What stands out; empty when there are no figures."""
        return headline(self.figures)

    def as_dict(self) -> dict[str, Any]:
        return {
            "capture": self.name,
            "seconds": self.end.t_s,
            "how": self.end.how,
            "unseen": [asdict(item) for item in self.unseen],
            **self.end.summary,
        }


def new_folder(kind: str) -> Path:
    """A name that says when, in the current folder."""
    return Path(f"{kind}-{datetime.now():%Y%m%d-%H%M%S}")


def record(watch: Watch, folder: Path, stop: Event, show: Show | None = None) -> Recorded:
    """Records until the time is up, `stop` is set, or the watched processes have ended.

    Raises UsageError when the target cannot be found, StorageError when the folder cannot be written to; a disk that fills up on the
    way ends the recording, and what was written is kept.
    """
    target = find_target(watch)
    with ExitStack() as closing:
        probes = probes_for(watch, target)
        for probe in probes:
            closing.callback(probe.close)
        began_s = monotonic_s()
        writer = closing.enter_context(
            CaptureWriter.create(folder, _manifest(watch, target, probes, began_s))
        )
        return _Recording(watch, target, probes, writer, stop, show).run(began_s)


def _manifest(watch: Watch, target: Target, probes: Sequence[Probe], began_s: float) -> Manifest:
    told = {name: _harmless(value) for name, value in asdict(watch).items()}
    return manifest(
        "record",
        began_s,
        target={name: _harmless(value) for name, value in target.as_dict().items()},
        settings=told | {"periods_s": {probe.name: probe.period_s for probe in probes}},
    )


def _harmless(value: Any) -> Any:
    """Addresses may hold passwords."""
    if isinstance(value, str):
        return without_secrets(value)
    return [_harmless(part) for part in value] if isinstance(value, list | tuple) else value


class _Recording:
    """Joins the sampler, the capture and the figures."""

    def __init__(
        self,
        watch: Watch,
        target: Target,
        probes: Sequence[Probe],
        writer: CaptureWriter,
        stop: Event,
        show: Show | None,
    ) -> None:
        self._watch, self._target, self._probes, self._writer = watch, target, tuple(probes), writer
        self._stop = stop
        self._show = show
        self._figures = Figures()
        self._how = "finished"
        self._emulated = False

    def run(self, began_s: float) -> Recorded:
        chores = [
            _Chore("storage", FLUSH_EVERY_S, lambda now_s: self._writer.flush()),
            _Chore("target", LOOK_EVERY_S, self._look),
        ]
        if (show := self._show) is not None:
            chores.append(_Chore("screen", LOOK_EVERY_S, lambda now_s: show(self._figures, now_s)))
        sampler = Sampler([*self._probes, *chores], began_s, self._take, self._writer.note)
        sampler.run(self._watch.seconds, self._stop)
        end = End(
            monotonic_s() - began_s,
            self._reason(),
            self._figures.as_dict() | {"emulated": self._emulated, "sentence": headline(self._figures)},
        )
        self._writer.finish(end)
        unseen = tuple(dict.fromkeys(item for probe in self._probes for item in probe.unseen()))
        return Recorded(self._writer.folder, end, self._figures, unseen, self._emulated)

    def _take(self, rows: Iterable[Row], now_s: float) -> None:
        found = list(rows)
        self._emulated = self._emulated or any(isinstance(row, DeviceRow) and row.emulated for row in found)
        self._figures.tell(found, now_s)
        self._writer.add(found)

    def _look(self, now_s: float) -> None:
        if not self._target.still_there():
            self._how = "the watched processes ended"
            self._writer.note(Note(now_s, "change", self._how))
            self._stop.set()

    def _reason(self) -> str:
        return "interrupted" if self._stop.is_set() and self._how == "finished" else self._how


class _Chore:
    """Something done on time beside the probes; its cost is told like theirs."""

    def __init__(self, name: str, period_s: float, do: Callable[[float], Any]) -> None:
        self.name, self.period_s, self._do = name, period_s, do

    def read(self, now_s: float) -> Iterable[Row]:
        self._do(now_s)
        return ()

    def unseen(self) -> Sequence[Unseen]:
        return ()

    def close(self) -> None: ...

"""The requests of an access log, to be replayed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from headrace.core.load.patterns import Replay
from headrace.core.load.recorded import recorded
from headrace.errors import UsageError
from headrace.store.access_logs import LogNotes, read_access_log


def replay_of(path: Path, speed: float = 1.0) -> Replay:
    """When the requests of the log came, and which of them asked for the same. Raises UsageError that names the log."""
    notes = LogNotes()
    posted = 0

    def requests() -> Iterator[tuple[float, str]]:
        nonlocal posted
        for entry in read_access_log(path, notes=notes):
            posted += entry.posted
            yield entry.t_s, f"posted {posted}" if entry.posted else entry.key

    try:
        found = recorded(requests())
    except UsageError as problem:
        raise UsageError(str(problem) if str(path) in str(problem) else f"{path}: {problem}") from None
    remarks = found.remarks
    if posted:
        remarks += (
            f"{posted:,} requests of the log carry their image in the body, and it does not tell which: each is sent the next one",
        )
    if notes.skipped:
        remarks += (f"{notes.skipped} lines of the log are left out, the first: {notes.examples[0]}",)
    return Replay(found.times_s, found.images, speed, (*remarks, *notes.damage))

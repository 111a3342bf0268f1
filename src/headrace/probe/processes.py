"""The watched processes."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Sequence, Set
from pathlib import Path

from headrace.core.watching.secrets import command_without_secrets
from headrace.probe.probe import Watched
from headrace.probe.proc_text import TICK_US, allowed_cores, keyed, number, numbers, readable, stat_fields
from headrace.probe.readings import LONGEST_WINDOW_S, Descriptors, KeptFile, amounts, gone, reason
from headrace.probe.unseen import UnseenOnce
from headrace.probe.watched import has_ended, process_age_s
from headrace.records.capture import Unseen
from headrace.records.rows.process import ProcessRow, TaskRow

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_IDENTITY_PERIOD_S = 5.0
_COMMAND_CHARACTERS = 1000
_IO = (b"read_bytes:", b"write_bytes:", b"rchar:", b"wchar:")
_NAME, _STATE, _PPID, _THREADS, _START, _RESIDENT = 2, 3, 4, 20, 22, 24
_TOTALS = (14, 15, 16, 17, 10, 12)
"""utime, stime, those of ended children, minor and major faults (proc_pid_stat(5))."""


class ProcessesProbe:
    """The watched processes: `ProcessRow` of each, `TaskRow` when one is new or has changed.

    Once a second: the kernel adds up all threads for each reading. Time resolution is the threads' business.
    """

    name = "processes"
    period_s = 1.0

    def __init__(
        self, watched: Watched, proc: Path = Path("/proc"), descriptors: Descriptors | None = None
    ) -> None:
        """`descriptors` bounds the files kept open; None: no bound."""
        self._watched, self._proc, self._descriptors = watched, proc, descriptors
        self._processes: dict[int, ProcessReader] = {}
        self._last_s: float | None = None
        self._missing = UnseenOnce(self.name)

    def read(self, now_s: float) -> Iterable[ProcessRow | TaskRow]:
        pids = self._watched.pids
        self._bury(self._processes.keys() - pids)
        for pid in sorted(pids - self._processes.keys()):
            self._processes[pid] = ProcessReader(pid, self._proc, self._descriptors, self._missing)
        rows: list[ProcessRow | TaskRow] = []
        for process in reversed(
            list(self._processes.values())
        ):  # children first: they end into their parents' totals
            try:
                process.read(now_s, self._last_s, rows)
            except OSError as error:
                if gone(error):
                    self._bury({process.pid})
                else:
                    self._missing.add(f"process {process.pid}", reason(error))
        self._last_s = now_s
        return rows

    def _bury(self, pids: Set[int]) -> None:
        """What rows told of those that ended their parents' totals of ended children will hold once more: that must not be told again."""
        buried = {pid: self._processes.pop(pid) for pid in pids}
        for process in buried.values():
            process.close()
            parent = process.parent
            while parent in buried and parent != buried[parent].parent:
                parent = buried[parent].parent
            if parent in self._processes:
                self._processes[parent].told_of_children += process.spent + process.told_of_children

    def unseen(self) -> Sequence[Unseen]:
        return self._missing.all()

    def close(self) -> None:
        for process in self._processes.values():
            process.close()
        self._processes.clear()


class ProcessReader:
    """Reads one process's files."""

    def __init__(self, pid: int, proc: Path, descriptors: Descriptors | None, missing: UnseenOnce) -> None:
        self.pid = pid
        self._folder, self._missing = proc / str(pid), missing
        self._stat = KeptFile(self._folder / "stat", 1024, descriptors)
        self._status = KeptFile(self._folder / "status", 1 << 14, descriptors)
        self._io: KeptFile | None = KeptFile(self._folder / "io", 1024, descriptors)
        self._start = b""
        """Another start time means another process of the same number."""
        self._seen_s: float | None = None
        self._totals: tuple[int, ...] | None = None
        self._moved: tuple[int, ...] | None = None
        self._told: TaskRow | None = None
        self._identity_due_s = 0.0
        self.parent: int | None = None
        self.told_of_children = 0
        """Ticks of children that ended, of which rows of their own told."""

    @property
    def spent(self) -> int:
        """Ticks so far, those of its ended children included."""
        return sum(self._totals[:4]) if self._totals else 0

    def read(self, now_s: float, before_s: float | None, rows: list[ProcessRow | TaskRow]) -> None:
        """Adds its rows. `before_s` is when processes were last read: of one that started since, all totals are growth.

        Raises OSError: it has ended.
        """
        fields = stat_fields(self._stat.read())
        totals = numbers([fields[i] for i in _TOTALS]) if fields else None
        if totals is None:
            return
        if has_ended(fields):
            raise ProcessLookupError(errno.ESRCH, "it has ended")
        self.parent = number(fields[_PPID])
        if fields[_START] != self._start:
            self._start = fields[_START]
            self._seen_s = self._totals = self._moved = self._told = None
        moved = self._bytes_moved()
        self._tell(now_s, fields, rows)
        if self._seen_s is None and before_s is not None and self._younger_than(now_s - before_s, fields):
            self._seen_s, self._totals, self._moved = before_s, (0,) * len(totals), (0,) * len(moved or ())
        grown = amounts(totals, self._totals)
        grown_moved = amounts(moved, self._moved) if moved else None
        window_s = None if self._seen_s is None else now_s - self._seen_s
        self._seen_s, self._totals, self._moved = now_s, totals, moved
        if grown is not None and window_s is not None and 0.0 < window_s <= LONGEST_WINDOW_S:
            rows.append(self._row(now_s, window_s, fields, grown, grown_moved))

    def close(self) -> None:
        for file in (self._stat, self._status, self._io):
            if file is not None:
                file.close()

    def _row(
        self,
        now_s: float,
        window_s: float,
        fields: list[bytes],
        grown: tuple[int, ...],
        moved: tuple[int, ...] | None,
    ) -> ProcessRow:
        user, system, children_user, children_system, minor, major = grown
        children = children_user + children_system
        told = min(children, self.told_of_children)
        self.told_of_children -= told
        read, written, read_calls, written_calls = moved or (None, None, None, None)
        resident_pages = number(fields[_RESIDENT])
        return ProcessRow(
            now_s,
            window_s,
            self.pid,
            user_us=user * TICK_US,
            system_us=system * TICK_US,
            ended_children_us=(children - told) * TICK_US,
            threads=number(fields[_THREADS]),
            resident_bytes=None if resident_pages is None else resident_pages * _PAGE_BYTES,
            minor_faults=minor,
            major_faults=major,
            read_bytes=read,
            written_bytes=written,
            read_call_bytes=read_calls,
            written_call_bytes=written_calls,
            state=fields[_STATE].decode(),
        )

    def _bytes_moved(self) -> tuple[int, ...] | None:
        """Bytes from disks, to disks, by read calls and by write calls since its start; None when the kernel does not tell this user."""
        if self._io is None:
            return None
        try:
            found = keyed(self._io.read(), _IO, b" ")
        except OSError as error:
            if not gone(error) or (self._folder / "stat").exists():
                self._missing.add(f"bytes read and written by process {self.pid}", reason(error))
                self._io = None
            return None
        return tuple(found.values()) if len(found) == len(_IO) else None

    def _younger_than(self, seconds: float, fields: list[bytes]) -> bool:
        age_s = process_age_s(fields)
        return age_s is not None and age_s < seconds

    def _tell(self, now_s: float, fields: list[bytes], rows: list[ProcessRow | TaskRow]) -> None:
        """Who it is: looked up anew now and then, and at once when its name or its parent changed."""
        name, parent = readable(fields[_NAME]), number(fields[_PPID])
        same = self._told is not None and (self._told.name, self._told.parent_pid) == (name, parent)
        if same and now_s < self._identity_due_s:
            return
        self._identity_due_s = now_s + _IDENTITY_PERIOD_S
        cores = allowed_cores(self._status.read())
        row = TaskRow(now_s, self.pid, self.pid, parent, name, self._command(), cores)
        if self._told is None or row[1:] != self._told[1:]:
            self._told = row
            rows.append(row)

    def _command(self) -> str | None:
        try:
            with (self._folder / "cmdline").open("rb") as file:
                raw = file.read(4 * _COMMAND_CHARACTERS)
        except OSError:
            return None
        arguments = map(readable, raw.rstrip(b"\0").split(b"\0"))
        return command_without_secrets(arguments)[:_COMMAND_CHARACTERS] or None

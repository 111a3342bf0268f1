"""Which processes are watched: some with all their descendants, or the members of a control group."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

from headrace.probe.proc_text import TICK_US, number, stat_fields
from headrace.probe.readings import KeptFile, names_in, reason
from headrace.probe.unseen import UnseenOnce
from headrace.records.capture import Unseen

_STATE, _PPID, _THREADS, _START = 3, 4, 20, 22
_LIST_AFTER = 10
"""Refreshes after which processes are listed in any case: one may get its number just before a list and show just after it."""


class ProcessTree:
    """Some processes and all their descendants, also those that start later or lose their parent.

    A descendant is missed when its parent came and went between two calls of `refresh`. That the kernel gave a number to another process
    in the meantime is told by the time the process started.
    """

    def __init__(self, roots: Iterable[int], proc: Path = Path("/proc")) -> None:
        self._proc = str(proc)
        self._missing = UnseenOnce("watched")
        self._seen: set[str] = set()
        self._starts: dict[int, bytes] = {}
        self.roots = frozenset(roots)
        """The processes that were asked for."""
        self.pids: frozenset[int] = frozenset()
        """Those alive at the last `refresh`."""
        self._loadavg = KeptFile(proc / "loadavg", 128)
        self._newest, self._skipped = b"", 0
        self._root_starts = {pid: start for pid in self.roots if (start := _start_of(self._stat(pid)))}
        self._starts.update(self._root_starts)
        self.refresh()

    @property
    def alive(self) -> bool:
        """One of the roots was there at the last `refresh`."""
        return not self._root_starts.items().isdisjoint(self._starts.items())

    def refresh(self) -> None:
        """Looks who came and who went."""
        for pid, start in list(self._starts.items()):
            if _start_of(self._stat(pid)) != start:
                del self._starts[pid]
                self._seen.discard(str(pid))
        if not self._nobody_new():
            self._look_for_children()
        self.pids = frozenset(self._starts)

    def close(self) -> None:
        self._loadavg.close()

    def _nobody_new(self) -> bool:
        """The number that the kernel gave out last is still the same: much cheaper than the list of processes on a big machine."""
        last, self._newest = self._newest, b""
        try:
            self._newest = self._loadavg.read().rpartition(b" ")[2]
        except OSError:
            return False
        self._skipped = self._skipped + 1 if self._newest == last else 0
        return 0 < self._skipped < _LIST_AFTER

    def _look_for_children(self) -> None:
        self._skipped = 0
        try:
            present = set(names_in(self._proc))
        except OSError as error:
            self._missing.add("the list of processes", reason(error))
            return
        if "1" not in present:
            self._missing.add("processes of other users", "the list of processes leaves them out (hidepid)")
        self._adopt({int(name): self._stat(int(name)) for name in present - self._seen if name.isdecimal()})
        self._seen = present

    def _adopt(self, found: dict[int, list[bytes]]) -> None:
        """Takes the children of the watched among `found`, then their children, to the last."""
        children: dict[int, list[int]] = {}
        for pid, fields in found.items():
            if (parent := number(fields[_PPID]) if fields else None) is not None:
                children.setdefault(parent, []).append(pid)
        parents = list(self._starts)
        while parents:
            for pid in children.pop(parents.pop(), ()):
                if pid not in self._starts and (start := _start_of(found[pid])):
                    self._starts[pid] = start
                    parents.append(pid)

    def _stat(self, pid: int) -> list[bytes]:
        """Of its main thread: for the process's own file the kernel would add up all threads."""
        return read_stat(f"{self._proc}/{pid}/task/{pid}/stat")

    def unseen(self) -> Sequence[Unseen]:
        return self._missing.all()


class GroupMembers:
    """The processes of a control group and of all groups below it."""

    def __init__(self, folder: Path) -> None:
        """`folder` is the group's, under /sys/fs/cgroup."""
        self.folder = folder
        self._missing = UnseenOnce("watched")
        self.pids: frozenset[int] = frozenset()
        """The members at the last `refresh`."""
        self.refresh()

    @property
    def alive(self) -> bool:
        """It had members at the last `refresh`."""
        return bool(self.pids)

    def close(self) -> None:
        """Nothing is kept open."""

    def refresh(self) -> None:
        """Reads the lists of members anew."""
        pids: set[int] = set()
        for folder, _, files in os.walk(self.folder):
            if "cgroup.procs" in files:
                pids.update(self._members(f"{folder}/cgroup.procs"))
        self.pids = frozenset(pids)

    def _members(self, file: str) -> Iterable[int]:
        try:
            lines = Path(file).read_bytes().split(b"\n")
        except FileNotFoundError:
            return ()
        except OSError as error:
            self._missing.add(f"members in {file}", reason(error))
            return ()
        members = {pid for line in lines if (pid := number(line)) is not None}
        if 0 in members:
            self._missing.add(
                f"some members in {file}", "they live outside this container's list of processes"
            )
        return members - {0}

    def unseen(self) -> Sequence[Unseen]:
        return self._missing.all()


def read_stat(file: str) -> list[bytes]:
    """The fields of a `stat` file (see `stat_fields`); empty when the process or thread is gone."""
    try:
        fd = os.open(file, os.O_RDONLY)
    except OSError:
        return []
    try:
        return stat_fields(os.read(fd, 1024))
    except OSError:
        return []
    finally:
        os.close(fd)


def has_ended(fields: list[bytes]) -> bool:
    """It merely waits to be collected by its parent. A main thread may end before the others: then the process goes on."""
    return fields[_STATE] in (b"Z", b"X") and fields[_THREADS] in (b"0", b"1")


def process_age_s(fields: list[bytes]) -> float | None:
    """Seconds since a process or thread started, by the fields of its `stat` file; None when it is gone."""
    start = number(fields[_START]) if fields else None
    return None if start is None else time.clock_gettime(time.CLOCK_BOOTTIME) - start * TICK_US / 1e6


def _start_of(fields: list[bytes]) -> bytes:
    """When it started; empty when it is gone or has ended."""
    return b"" if not fields or has_ended(fields) else fields[_START]

"""The folder of a process's threads."""

from __future__ import annotations

import os
from pathlib import Path

from headrace.probe.readings import Descriptors, KeptFile, names_in
from headrace.probe.thread import SCHEDSTAT_BYTES, ThreadReader

_CHANGED_S_PER_THREAD = 0.002
"""The folder is listed when the number of threads changed or one ended, but no more often than this: a list costs 1.4 us a thread."""
_UNCHANGED_S_PER_THREAD = 0.01
"""It is listed in any case after this time, and 5 s at least: one thread may have ended and another begun."""
_UNCHANGED_S = 5.0
_STAT_BYTES, _STATUS_BYTES = 1024, 1 << 14


class TaskFolder:
    """`/proc/PID/task`, kept open: bound to this process even when another one gets its number."""

    def __init__(
        self, pid: int, proc: Path | str, born_s: float | None, descriptors: Descriptors | None
    ) -> None:
        """`born_s`: the process started after that moment. Raises OSError when it is gone or hidden."""
        self.pid = pid
        self.ended = False
        """A thread was found to have ended since the last list."""
        self.dead = False
        """The process is gone."""
        self._folder = os.open(f"{proc}/{pid}/task", os.O_RDONLY | os.O_DIRECTORY)
        self._descriptors = descriptors
        self._listed_s: float | None = born_s
        self._links = -1
        self._threads: dict[str, ThreadReader] = {}
        self.has_schedstat = self._keeps_schedstat()

    def found(self, now_s: float) -> list[ThreadReader]:
        """Threads that were not there at the last list. Those that ended are closed."""
        links = self._link_count()
        if self._links >= 0 and self._listed_s is not None:
            least_s = max(_UNCHANGED_S, _UNCHANGED_S_PER_THREAD * len(self._threads))
            if self.ended or links != self._links:
                least_s = _CHANGED_S_PER_THREAD * len(self._threads)
            if now_s - self._listed_s < least_s:
                return []
        names = self._names()
        self.dead = not names
        for name in self._threads.keys() - names:
            self._threads.pop(name).close()
        new = [
            self._reader(name)
            for name in names
            if name.isdecimal() and ((known := self._threads.get(name)) is None or known.gone)
        ]
        self._threads.update((str(thread.tid), thread) for thread in new)
        self._listed_s, self._links, self.ended = now_s, links, False
        return new

    def close(self) -> None:
        for thread in self._threads.values():
            thread.close()
        self._threads.clear()
        os.close(self._folder)

    def _link_count(self) -> int:
        """The kernel counts each thread as a link of the folder: the cheapest way to learn how many there are."""
        return os.fstat(self._folder).st_nlink

    def _names(self) -> set[str]:
        try:
            return set(names_in(self._folder))
        except OSError:
            return set()

    def _reader(self, name: str) -> ThreadReader:
        def file(kind: str, size_bytes: int) -> KeptFile:
            return KeptFile(f"{name}/{kind}", size_bytes, self._descriptors, self._folder)

        schedstat = file("schedstat", SCHEDSTAT_BYTES) if self.has_schedstat else None
        stat, status = file("stat", _STAT_BYTES), file("status", _STATUS_BYTES)
        return ThreadReader(self.pid, int(name), self._listed_s, schedstat, stat, status)

    def _keeps_schedstat(self) -> bool:
        """The main thread has run: where its numbers are all 0 the kernel does not count."""
        main = KeptFile(f"{self.pid}/schedstat", SCHEDSTAT_BYTES, folder=self._folder)
        try:
            return main.read() != b"0 0 0\n"
        except OSError:
            return False
        finally:
            main.close()

"""The threads of the watched processes."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Sequence
from pathlib import Path
from time import thread_time

from headrace.probe.probe import Watched
from headrace.probe.readings import Descriptors, gone, reason
from headrace.probe.task_folder import TaskFolder
from headrace.probe.thread import ThreadReader, ThreadRows
from headrace.probe.unseen import UnseenOnce
from headrace.probe.watched import process_age_s, read_stat
from headrace.records.capture import Unseen
from headrace.records.rows.process import TaskRow, ThreadRow

_COLD_PERIOD_S = 2.0
_ASLEEP_PERIOD_S = 4.0
_ASLEEP_LOOKS = 5
"""After so many looks that found nothing, 10 s, a thread is asleep. Big servers have hundreds that hardly ever wake."""
_CHECK_EVERY = 4
"""Looks between two readings of the CPU clock, which costs a quarter of one."""


class ThreadsProbe:
    """Threads of the watched processes: `ThreadRow` of those that ran, `TaskRow` of new and renamed ones.

    Every 0.2 s all *hot* threads are looked at (`thread.HOT_SHARE`), and a part of the others, so that each has its turn every 2 s, or
    every 4 s if it sleeps. Their totals lose nothing meanwhile; a row's `window_s` says what it covers. One reading takes at most about
    `budget_s` of CPU time: what is left over comes first in the next. Only the first one takes what it takes to open all threads' files.
    """

    name = "threads"
    period_s = 0.2

    def __init__(
        self,
        watched: Watched,
        proc: Path = Path("/proc"),
        descriptors: Descriptors | None = None,
        budget_s: float = 0.0007,
    ) -> None:
        """`descriptors` bounds the files kept open; None: no bound."""
        self._watched, self._proc, self._descriptors = watched, str(proc), descriptors
        self._budget_s = budget_s
        self._folders: dict[int, TaskFolder] = {}
        self._refused: set[int] = set()
        self._new: deque[ThreadReader] = deque()
        self._hot: deque[ThreadReader] = deque()
        self._cold: deque[ThreadReader] = deque()
        self._asleep: deque[ThreadReader] = deque()
        self._last_s: float | None = None
        self._missing = UnseenOnce(self.name)

    def read(self, now_s: float) -> Iterable[TaskRow | ThreadRow]:
        began_s, first = thread_time(), self._last_s is None
        passed_s = 0.0 if self._last_s is None else now_s - self._last_s
        self._follow(now_s)
        self._last_s = now_s
        rows: ThreadRows = []
        self._take(self._hot, 1.0, began_s + 0.6 * self._budget_s, now_s, rows)
        self._take(self._asleep, passed_s / _ASLEEP_PERIOD_S, began_s + 0.75 * self._budget_s, now_s, rows)
        self._take(self._cold, passed_s / _COLD_PERIOD_S, began_s + 0.9 * self._budget_s, now_s, rows)
        self._take(self._new, 1.0, math.inf if first else began_s + self._budget_s, now_s, rows)
        return rows

    def _take(
        self,
        queue: deque[ThreadReader],
        share: float,
        until_s: float,
        now_s: float,
        rows: ThreadRows,
    ) -> None:
        """Looks at a share of a queue from its head, or at as many as CPU time allows; each thread goes to the end of its next queue."""
        for count in range(math.ceil(len(queue) * min(share, 1.0))):
            if count % _CHECK_EVERY == _CHECK_EVERY - 1 and thread_time() > until_s:
                break
            thread = queue.popleft()
            try:
                if thread.gone:
                    continue
                if queue is self._new:
                    thread.begin(now_s, rows)
                else:
                    thread.look(now_s, rows)
            except OSError as error:
                if gone(error):
                    self._lose(thread)
                else:
                    queue.append(thread)
                    self._missing.add(f"threads of process {thread.pid}", reason(error))
                continue
            if thread.heat > 0:
                self._hot.append(thread)
            else:
                (self._cold if thread.heat > -_ASLEEP_LOOKS else self._asleep).append(thread)

    def _lose(self, thread: ThreadReader) -> None:
        thread.close()
        if folder := self._folders.get(thread.pid):
            folder.ended = True

    def _follow(self, now_s: float) -> None:
        """Processes and threads that came and went since the last reading."""
        pids = self._watched.pids
        for pid in [pid for pid, folder in self._folders.items() if folder.dead or pid not in pids]:
            self._folders.pop(pid).close()
        self._refused &= pids
        for pid in pids - self._folders.keys() - self._refused:
            self._add(pid, now_s)
        for folder in self._folders.values():
            self._new.extend(folder.found(now_s))

    def _add(self, pid: int, now_s: float) -> None:
        try:
            folder = TaskFolder(pid, self._proc, self._born_after(pid, now_s), self._descriptors)
        except OSError as error:
            if not gone(error):
                self._refused.add(pid)
                self._missing.add(f"threads of process {pid}", reason(error))
            return
        self._folders[pid] = folder
        if not folder.has_schedstat and read_stat(f"{self._proc}/{pid}/stat"):
            self._missing.add("threads' waiting for a core", "this kernel keeps no schedstat")

    def _born_after(self, pid: int, now_s: float) -> float | None:
        """The last reading, if the process is younger than that."""
        if self._last_s is None:
            return None
        age_s = process_age_s(read_stat(f"{self._proc}/{pid}/stat"))
        return self._last_s if age_s is not None and age_s < now_s - self._last_s else None

    def unseen(self) -> Sequence[Unseen]:
        return self._missing.all()

    def close(self) -> None:
        for folder in self._folders.values():
            folder.close()
        self._folders.clear()

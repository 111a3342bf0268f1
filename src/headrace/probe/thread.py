"""One thread of a watched process."""

from __future__ import annotations

import os
from typing import TypeAlias

from headrace.probe.proc_text import (
    TICK_US,
    ThreadStat,
    allowed_cores,
    keyed,
    numbers,
    readable,
    stat_fields,
    thread_stat,
    thread_totals,
)
from headrace.probe.readings import LONGEST_WINDOW_S, KeptFile, amounts
from headrace.records.rows.process import TaskRow, ThreadRow

SCHEDSTAT_BYTES = 64
HOT_SHARE = 0.02
"""A thread that runs or waits for a core this share of the time is looked at in every round, as is one that waits for a disk."""
_HOT_LOOKS = 10
"""Rounds of quiet after which it is hot no more: 2 s, so that a thread that works in turns stays hot through its pauses."""
_SWITCHES_HOT_S, _SWITCHES_COLD_S = 2.0, 10.0
"""`status` costs as much as all the rest of a look and so is read less often."""

_UTIME, _STIME = 14, 15
_SWITCHES = (b"voluntary_ctxt_switches:", b"nonvoluntary_ctxt_switches:")
_UNBORN = ThreadStat(b"", "", 0, 0, 0, 0)
ThreadRows: TypeAlias = list[TaskRow | ThreadRow]


class ThreadReader:
    """Reads one thread's files, no more of them than its last looks make worth while.

    All totals count from the thread's start. `look` gives the growth since the last look, or nothing when the thread did not run. Files
    that are kept open end with this thread, also when another one gets its number.
    """

    __slots__ = (
        "_before",
        "_born_s",
        "_cores",
        "_fd",
        "_has_schedstat",
        "_raw",
        "_schedstat",
        "_seen_s",
        "_stat",
        "_state",
        "_status",
        "_status_due_s",
        "_switches",
        "_told",
        "_totals",
        "_turn",
        "_used",
        "gone",
        "heat",
        "pid",
        "tid",
    )

    def __init__(
        self,
        pid: int,
        tid: int,
        born_s: float | None,
        schedstat: KeptFile | None,
        stat: KeptFile,
        status: KeptFile,
    ) -> None:
        """`born_s`: it started after that moment, so that its totals so far belong to the time since. `schedstat` is None where the
        kernel keeps none."""
        self.pid, self.tid = pid, tid
        self.gone = False
        self.heat = 0
        """Above 0: for so many more looks it is hot. Below: so many looks found that it did nothing."""
        self._born_s = born_s
        self._schedstat, self._stat, self._status = schedstat, stat, status
        self._has_schedstat = schedstat is not None
        self._totals = schedstat.read if schedstat else self._ticks
        self._fd = -1
        self._seen_s = self._status_due_s = 0.0
        self._raw = b""
        self._used: tuple[int, int, int] | None = None
        self._before: ThreadStat | None = None
        self._switches: tuple[int, ...] | None = None
        self._state: str | None = None
        self._turn = False
        self._cores: str | None = None
        self._told: tuple[bytes, str | None] | None = None

    def begin(self, now_s: float, rows: ThreadRows) -> None:
        """The first look. Raises OSError, as `look` does: the thread has ended, or may not be looked at."""
        if self._born_s is None:
            self._read_status(now_s)
            self._before = thread_stat(self._stat.read())
            self._raw, self._seen_s = self._totals(), now_s
            self._used = thread_totals(self._raw)
            self._introduce(now_s, self._before, rows)
        else:
            self._used, self._before, self._switches = (0, 0, 0), _UNBORN, (0, 0)
            self._seen_s, self._status_due_s = self._born_s, now_s
            self.look(now_s, rows)
        self._fd = self._schedstat.fd if self._schedstat else -1

    def look(self, now_s: float, rows: ThreadRows) -> None:
        """Adds a `ThreadRow` if it ran or waited since the last look, and a `TaskRow` if its name or its allowed cores changed."""
        raw = self._totals() if self._fd < 0 else os.pread(self._fd, SCHEDSTAT_BYTES, 0)
        if raw == self._raw:
            self.heat -= 1
            if self._state != "R":
                self._seen_s = now_s
            return
        if now_s <= self._seen_s:
            return
        window_s, last = now_s - self._seen_s, self._used
        self._raw, self._used, self._seen_s = raw, thread_totals(raw), now_s
        before, stat = self._before, self._stat_if_due()
        if self._used is None or last is None:
            return
        cpu_ns, wait_ns, slices = self._used[0] - last[0], self._used[1] - last[1], self._used[2] - last[2]
        if min(cpu_ns, wait_ns, slices) < 0 or window_s > LONGEST_WINDOW_S:
            return
        busy = cpu_ns + wait_ns > HOT_SHARE * 1e9 * window_s or self._state == "D"
        self.heat = _HOT_LOOKS if busy else max(0, self.heat - 1)
        system_us, minor, major = _grown(stat, before)
        voluntary, involuntary = self._grown_switches(now_s)
        rows.append(
            ThreadRow(
                now_s,
                window_s,
                self.pid,
                self.tid,
                cpu_ns // 1000,
                wait_ns // 1000 if self._has_schedstat else None,
                slices if self._has_schedstat else None,
                system_us,
                stat and stat.state,
                stat and stat.core,
                minor,
                major,
                voluntary,
                involuntary,
            )
        )
        self._introduce(now_s, stat, rows)

    def close(self) -> None:
        """It has ended, or is watched no more."""
        self.gone = True
        for file in (self._schedstat, self._stat, self._status):
            if file is not None:
                file.close()

    def _stat_if_due(self) -> ThreadStat | None:
        """Of a hot thread at every other look, unless it waits for a disk: it costs twice what schedstat does."""
        self._turn = not self._turn
        if self._turn and self.heat > 0 and self._state != "D":
            return None
        self._before = stat = thread_stat(self._stat.read())
        self._state = stat and stat.state
        return stat

    def _ticks(self) -> bytes:
        """As schedstat: ns on a core in steps of the clock tick, and two numbers that are not known."""
        times = numbers(stat_fields(self._stat.read())[_UTIME : _STIME + 1])
        return b"%d 0 0\n" % (sum(times) * TICK_US * 1000) if times else b""

    def _grown_switches(self, now_s: float) -> tuple[int | None, int | None]:
        """Voluntary and involuntary switches since they were last read, if it is time to read them again."""
        if now_s < self._status_due_s:
            return None, None
        last = self._switches
        self._read_status(now_s)
        grown = amounts(self._switches or (), last)
        return (grown[0], grown[1]) if grown else (None, None)

    def _read_status(self, now_s: float) -> None:
        self._status_due_s = now_s + (_SWITCHES_HOT_S if self.heat > 0 else _SWITCHES_COLD_S)
        raw = self._status.read()
        found = keyed(raw, _SWITCHES, b"\t")
        self._switches = tuple(found.values()) if len(found) == len(_SWITCHES) else None
        self._cores = allowed_cores(raw)

    def _introduce(self, now_s: float, stat: ThreadStat | None, rows: ThreadRows) -> None:
        """Tells its name and its cores if they are new. Those of the main thread are the process's, and told with that."""
        if stat is None or self._told == (stat.name, self._cores):
            return
        self._told = (stat.name, self._cores)
        if self.tid != self.pid:
            rows.append(TaskRow(now_s, self.pid, self.tid, None, readable(stat.name), None, self._cores))


def _grown(now: ThreadStat | None, last: ThreadStat | None) -> tuple[int | None, int | None, int | None]:
    """Us in the kernel, minor and major faults since the last time."""
    if now is None or last is None:
        return None, None, None
    ticks, minor, major = now.system - last.system, now.minor - last.minor, now.major - last.major
    return (ticks * TICK_US, minor, major) if min(ticks, minor, major) >= 0 else (None, None, None)

"""The machine's cores, stalls, memory and run queue."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from headrace.probe.proc_text import TICK_US, keyed, number, numbers, whole_lines
from headrace.probe.readings import KeptFile, Window, reason
from headrace.probe.unseen import UnseenOnce
from headrace.records.capture import Unseen
from headrace.records.rows.host import CoreRow, HostRow, PressureRow

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_STAT_BYTES = 1 << 18
"""`/proc/stat` of 1,024 cores with its long line of interrupts fits."""
_CORE_BYTES = 192
"""A core's line in it, at most. They come first; the rest is not asked for."""


class CoresProbe:
    """CPU time of each core by kind: `CoreRow` at every reading.

    Every 0.2 s: a core's idle gaps are to be laid beside the GPU's. The kernel counts in steps of 10 ms, so that one window is told in 20
    steps.
    """

    name = "cores"
    period_s = 0.2

    def __init__(self, proc: Path = Path("/proc")) -> None:
        self._file = KeptFile(proc / "stat", _CORE_BYTES * (1 + os.sysconf("SC_NPROCESSORS_CONF")))
        self._window, self._missing = Window(), UnseenOnce(self.name)
        self._last: dict[int, tuple[int, ...]] = {}

    def read(self, now_s: float) -> Iterable[CoreRow]:
        try:
            times = core_times(self._file.read())
        except OSError as error:
            self._missing.add("CPU time of the cores", reason(error))
            return []
        window_s, last, self._last = self._window.step(now_s), self._last, times
        if window_s is None:
            return []
        rows = (_core_row(now_s, window_s, core, now, last.get(core)) for core, now in times.items())
        return [row for row in rows if row]

    def unseen(self) -> Sequence[Unseen]:
        return self._missing.all()

    def close(self) -> None:
        self._file.close()


def core_times(raw: bytes) -> dict[int, tuple[int, ...]]:
    """Running totals of each core in ticks: user, nice, system, idle, iowait, irq, softirq, steal (proc_stat(5))."""
    found: dict[int, tuple[int, ...]] = {}
    for line in whole_lines(raw):
        if not line.startswith(b"cpu"):
            break
        fields = line.split()
        core, times = number(fields[0][3:]), numbers(fields[1:9])
        if core is not None and core < 1 << 15 and times is not None and len(times) == 8:
            found[core] = times
    return found


def _core_row(
    now_s: float, window_s: float, core: int, now: tuple[int, ...], last: tuple[int, ...] | None
) -> CoreRow | None:
    """Idle and iowait may step back by their definition and count as 0 then; if another one does, the core was away in between."""
    if last is None:
        return None
    user, nice, system, idle, iowait, irq, softirq, steal = (
        (b - a) * TICK_US for b, a in zip(now, last, strict=True)
    )
    if min(user, nice, system, irq, softirq, steal) < 0:
        return None
    return CoreRow(
        now_s,
        window_s,
        core,
        user_us=user + nice,
        system_us=system,
        interrupt_us=irq + softirq,
        steal_us=steal,
        iowait_us=max(0, iowait),
        idle_us=max(0, idle),
    )


class PressureProbe:
    """Time stalled for want of CPU, memory and disks: `PressureRow` of the scope `host`, from the running totals.

    Once a second: the totals are exact at each reading, unlike the averages beside them, but the kernel adds up all cores for each. What
    happens in between shows in the threads' waiting and states.
    """

    name = "pressure"
    period_s = 1.0

    def __init__(self, proc: Path = Path("/proc")) -> None:
        self._missing = UnseenOnce(self.name)
        files = {
            resource: KeptFile(proc / "pressure" / resource, 256) for resource in ("cpu", "memory", "io")
        }
        self._pressures = {
            resource: Pressure("host", resource, file, self._missing) for resource, file in files.items()
        }

    def read(self, now_s: float) -> Iterable[PressureRow]:
        return [row for pressure in self._pressures.values() if (row := pressure.read(now_s))]

    def unseen(self) -> Sequence[Unseen]:
        return self._missing.all()

    def close(self) -> None:
        for pressure in self._pressures.values():
            pressure.close()


class Pressure:
    """One file of pressure stall information."""

    def __init__(self, scope: str, resource: str, file: KeptFile, missing: UnseenOnce) -> None:
        self._scope, self._resource, self._file, self._missing = scope, resource, file, missing
        self._window = Window()
        self._last: dict[bytes, int] = {}
        self.close = file.close

    def read(self, now_s: float) -> PressureRow | None:
        """The growth since the last reading; None the first time, and where there is no file."""
        try:
            totals = stall_totals(self._file.read())
        except OSError:
            self._missing.add(
                f"{self._resource} pressure of {self._scope}",
                "pressure stall information is off in this kernel (its option is psi=1) or hidden in this container",
            )
            return None
        window_s, last, self._last = self._window.step(now_s), self._last, totals
        some, full = (_grown(totals, last, kind) for kind in (b"some", b"full"))
        if window_s is None or some is None:
            return None
        whole_host_cpu = self._scope == "host" and self._resource == "cpu"
        return PressureRow(
            now_s, window_s, self._scope, self._resource, some, None if whole_host_cpu else full
        )


def stall_totals(raw: bytes) -> dict[bytes, int]:
    """Running totals in us of `some` and `full` (the kernel's psi.rst)."""
    found = {}
    for line in whole_lines(raw):
        kind, _, total = line.partition(b" ")[0], *line.rpartition(b" total=")[1:]
        if kind in (b"some", b"full") and (value := number(total)) is not None:
            found[kind] = value
    return found


def _grown(now: dict[bytes, int], last: dict[bytes, int], key: bytes) -> int | None:
    if key not in now or key not in last or now[key] < last[key]:
        return None
    return now[key] - last[key]


_HOST_NAMES = {
    "meminfo": (b"MemTotal:", b"MemAvailable:", b"SwapTotal:", b"SwapFree:"),
    "vmstat": (b"pgfault", b"pgmajfault", b"pswpin", b"pswpout"),
    "stat": (b"ctxt", b"procs_running", b"procs_blocked"),
}


class HostProbe:
    """Memory, paging and the run queue: `HostRow`, once a second, since memory moves slowly and faults are totals."""

    name = "host"
    period_s = 1.0

    def __init__(self, proc: Path = Path("/proc")) -> None:
        self._files = {name: KeptFile(proc / name, _STAT_BYTES) for name in _HOST_NAMES}
        self._window, self._missing = Window(), UnseenOnce(self.name)
        self._last: dict[bytes, int] = {}

    def read(self, now_s: float) -> Iterable[HostRow]:
        now = {key: value for name in self._files for key, value in self._values(name)}
        window_s, last, self._last = self._window.step(now_s), self._last, now
        return [] if window_s is None or not now else [_host_row(now_s, window_s, now, last)]

    def _values(self, name: str) -> Iterator[tuple[bytes, int]]:
        try:
            raw = self._files[name].read_all()
        except OSError as error:
            self._missing.add(f"/proc/{name}", reason(error))
            return
        yield from keyed(raw, _HOST_NAMES[name]).items()

    def unseen(self) -> Sequence[Unseen]:
        return self._missing.all()

    def close(self) -> None:
        for file in self._files.values():
            file.close()


def _host_row(now_s: float, window_s: float, now: dict[bytes, int], last: dict[bytes, int]) -> HostRow:
    def times(unit_bytes: int, count: int | None) -> int | None:
        return None if count is None else count * unit_bytes

    total, free = now.get(b"SwapTotal:"), now.get(b"SwapFree:")
    swap_used = None if total is None or free is None or free > total else total - free
    return HostRow(
        now_s,
        window_s,
        memory_total_bytes=times(1024, now.get(b"MemTotal:")),
        memory_available_bytes=times(1024, now.get(b"MemAvailable:")),
        swap_used_bytes=times(1024, swap_used),
        page_faults=_grown(now, last, b"pgfault"),
        major_faults=_grown(now, last, b"pgmajfault"),
        swapped_in_bytes=times(_PAGE_BYTES, _grown(now, last, b"pswpin")),
        swapped_out_bytes=times(_PAGE_BYTES, _grown(now, last, b"pswpout")),
        context_switches=_grown(now, last, b"ctxt"),
        runnable=now.get(b"procs_running"),
        blocked=now.get(b"procs_blocked"),
    )

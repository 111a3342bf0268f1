"""Block devices."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from headrace.probe.proc_text import numbers, readable, whole_lines
from headrace.probe.readings import KeptFile, Window, amounts, names_in, reason
from headrace.probe.unseen import UnseenOnce
from headrace.records.capture import Unseen
from headrace.records.rows.host import DiskRow

_SECTOR_BYTES = 512
"""The unit of the table, whatever the device's own sectors are."""

_LEFT_OUT = ("loop", "ram", "zram")
"""Memory or another disk's blocks by a second name."""


class DisksProbe:
    """Whole block devices: `DiskRow`, once a second, since the table is long where there are many.

    Devices made of others (`dm-0`, `md0`) have rows beside those they are made of: amounts must not be added up over devices.
    """

    name = "disks"
    period_s = 1.0

    def __init__(self, proc: Path = Path("/proc"), sys: Path = Path("/sys")) -> None:
        self._file, self._whole = KeptFile(proc / "diskstats", 1 << 20), sys / "block"
        self._window, self._missing = Window(), UnseenOnce(self.name)
        self._last: dict[str, tuple[int, ...]] = {}

    def read(self, now_s: float) -> Iterable[DiskRow]:
        try:
            devices = {name.replace("!", "/") for name in names_in(self._whole)}
            now = disk_totals(self._file.read_all(), devices)
        except OSError as error:
            self._missing.add("disks", reason(error))
            return []
        window_s, last, self._last = self._window.step(now_s), self._last, now
        if window_s is None:
            return []
        rows = (_row(now_s, window_s, device, now[device], last.get(device)) for device in now)
        return [row for row in rows if row]

    def unseen(self) -> Sequence[Unseen]:
        return self._missing.all()

    def close(self) -> None:
        self._file.close()


def disk_totals(raw: bytes, devices: set[str]) -> dict[str, tuple[int, ...]]:
    """Of each of `devices`: reads, sectors read, ms of reads, the same of writes, ms busy, and how many are in flight."""
    found: dict[str, tuple[int, ...]] = {}
    for line in whole_lines(raw):
        fields = line.split(maxsplit=14)
        name = readable(fields[2]) if len(fields) >= 14 else ""
        values = numbers(fields[3:14])
        if name not in devices or name.startswith(_LEFT_OUT) or values is None:
            continue
        reads, _, sectors_read, read_ms, writes, _, sectors_written, write_ms, in_flight, busy_ms, _ = values
        found[name] = (reads, sectors_read, read_ms, writes, sectors_written, write_ms, busy_ms, in_flight)
    return found


def _row(
    now_s: float, window_s: float, device: str, now: tuple[int, ...], last: tuple[int, ...] | None
) -> DiskRow | None:
    grown = amounts(now[:-1], last and last[:-1])
    if grown is None:
        return None
    reads, sectors_read, read_ms, writes, sectors_written, write_ms, busy_ms = grown
    return DiskRow(
        now_s,
        window_s,
        device,
        reads=reads,
        read_bytes=sectors_read * _SECTOR_BYTES,
        read_wait_us=read_ms * 1000,
        writes=writes,
        written_bytes=sectors_written * _SECTOR_BYTES,
        write_wait_us=write_ms * 1000,
        busy_us=busy_ms * 1000,
        in_flight=now[-1],
    )

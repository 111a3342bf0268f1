"""Control groups of the watched processes, from their own up to the root."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from headrace.host.cgroups import Group, cores_of_quota, groups_of, is_root, read_memberships, read_mounts
from headrace.probe.host import Pressure
from headrace.probe.probe import Watched
from headrace.probe.proc_text import core_list, keyed, number
from headrace.probe.readings import KeptFile, Window
from headrace.probe.unseen import UnseenOnce
from headrace.records.capture import Unseen
from headrace.records.rows.host import PressureRow
from headrace.records.rows.process import CgroupRow

_FIND_PERIOD_S = 5.0
"""Processes seldom move between groups."""
_MOST_GROUPS = 64
_UNLIMITED_BYTES = 1 << 62
"""v1 writes no limit as the largest number of whole pages."""

_V2_FILES = {
    "stat": ("cpu", "cpu.stat"),
    "local": ("cpu", "cpu.stat.local"),
    "quota": ("cpu", "cpu.max"),
    "memory": ("memory", "memory.current"),
    "limit": ("memory", "memory.max"),
    "cores": ("cpuset", "cpuset.cpus.effective"),
}
_V1_FILES = {
    "usage": ("cpuacct", "cpuacct.usage"),
    "stat": ("cpu", "cpu.stat"),
    "local": ("cpu", "cpu.stat.local"),
    "quota": ("cpu", "cpu.cfs_quota_us"),
    "period": ("cpu", "cpu.cfs_period_us"),
    "memory": ("memory", "memory.usage_in_bytes"),
    "limit": ("memory", "memory.limit_in_bytes"),
    "cores": ("cpuset", "cpuset.effective_cpus"),
}
_TOTALS = ("usage", "periods", "throttled_periods", "throttled", "held_back")


class CgroupsProbe:
    """Control groups of the watched processes and those above: `CgroupRow` of each, and `PressureRow` where v2 tells it.

    Once a second, ten of a quota's usual periods. In between the threads' waiting shows when a quota ran out.
    """

    name = "cgroups"
    period_s = 1.0

    def __init__(
        self,
        watched: Watched,
        proc: Path = Path("/proc"),
        mountinfo: Path = Path("/proc/self/mountinfo"),
    ) -> None:
        self._watched, self._proc, self._mounts = watched, proc, read_mounts(mountinfo)
        self._readers: dict[tuple[int, str], GroupReader] = {}
        self._pids: frozenset[int] = frozenset()
        self._find_due_s = 0.0
        self._missing = UnseenOnce(self.name)
        if not self._mounts:
            self._missing.add("control groups", "none are mounted here, or they are hidden in this container")

    def read(self, now_s: float) -> Iterable[CgroupRow | PressureRow]:
        if now_s >= self._find_due_s or self._watched.pids != self._pids:
            self._find_due_s, self._pids = now_s + _FIND_PERIOD_S, self._watched.pids
            self._find()
        rows: list[CgroupRow | PressureRow] = []
        for reader in self._readers.values():
            reader.read(now_s, rows)
        return rows

    def unseen(self) -> Sequence[Unseen]:
        return self._missing.all()

    def close(self) -> None:
        for reader in self._readers.values():
            reader.close()
        self._readers.clear()

    def _find(self) -> None:
        """Opens the groups that came, closes those that went."""
        found: dict[tuple[int, str], Group] = {}
        for text in {read_memberships(self._proc / str(pid)) for pid in self._pids}:
            groups = groups_of(text, self._mounts)
            if text and self._mounts and not groups:
                self._missing.add(
                    "control groups of the service", "they lie outside those that this container shows"
                )
            found.update(((group.version, group.path), group) for group in groups)
            self._note_hidden(groups)
        for key in self._readers.keys() - found.keys():
            self._readers.pop(key).close()
        for key, group in found.items():
            if key not in self._readers and len(self._readers) < _MOST_GROUPS:
                self._readers[key] = GroupReader(group, self._missing)
        if len(found) > _MOST_GROUPS:
            self._missing.add(f"control groups beyond the first {_MOST_GROUPS}", "there are too many to read")

    def _note_hidden(self, groups: Sequence[Group]) -> None:
        tops = {(group.version, controller): group for group in groups for controller in group.folders}
        for group in tops.values():
            if not is_root(group):
                self._missing.add(
                    f"control groups above {group.path}",
                    "hidden in this container; a quota set there shows in held_back_us and in the threads' waiting",
                )


class GroupReader:
    """Reads one group's files; those it has not are asked for once."""

    def __init__(self, group: Group, missing: UnseenOnce) -> None:
        self._group = group
        self._window = Window()
        self._last: Mapping[str, int] = {}
        self._files: dict[str, KeptFile] = {}
        for key, (controller, name) in (_V2_FILES if group.version == 2 else _V1_FILES).items():
            path = group.file(controller, name)
            if path is not None and path.exists():
                self._files[key] = KeptFile(path, 2048)
        self._pressures = []
        if group.version == 2 and not is_root(group):
            files = {
                resource: group.folders["cpu"] / f"{resource}.pressure"
                for resource in ("cpu", "memory", "io")
            }
            self._pressures = [
                Pressure(group.path, resource, KeptFile(path, 256), missing)
                for resource, path in files.items()
            ]

    def read(self, now_s: float, rows: list[CgroupRow | PressureRow]) -> None:
        texts = {key: self._text(file) for key, file in self._files.items()}
        now = _v2_totals(texts) if self._group.version == 2 else _v1_totals(texts)
        window_s, last, self._last = self._window.step(now_s), self._last, now
        if window_s is not None and any(texts.values()):
            grown = [now[key] - last[key] if key in now and key in last else None for key in _TOTALS]
            if min((amount for amount in grown if amount is not None), default=0) >= 0:
                rows.append(self._row(now_s, window_s, grown, texts))
        rows.extend(row for pressure in self._pressures if (row := pressure.read(now_s)))

    def close(self) -> None:
        for file in self._files.values():
            file.close()
        for pressure in self._pressures:
            pressure.close()

    def _row(
        self, now_s: float, window_s: float, grown: Sequence[int | None], texts: Mapping[str, bytes]
    ) -> CgroupRow:
        usage, periods, throttled_periods, throttled, held_back = grown
        quota = texts.get("quota", b"") + b" " + texts.get("period", b"")
        limit = number(texts.get("limit"))
        return CgroupRow(
            now_s,
            window_s,
            self._group.path,
            self._group.version,
            usage_us=usage,
            quota_cores=cores_of_quota(quota.decode(errors="replace")),
            periods=periods,
            throttled_periods=throttled_periods,
            throttled_us=throttled,
            held_back_us=held_back,
            memory_bytes=number(texts.get("memory")),
            memory_limit_bytes=None if limit is None or limit >= _UNLIMITED_BYTES else limit,
            allowed_cores=core_list(texts.get("cores", b"")),
        )

    def _text(self, file: KeptFile) -> bytes:
        """What the file says, whole; nothing when it was cut or the group is gone."""
        try:
            raw = file.read()
        except OSError:
            return b""
        return raw[:-1] if raw.endswith(b"\n") else b""


def _v2_totals(texts: Mapping[str, bytes]) -> dict[str, int]:
    """Running totals in us, and periods."""
    names = (b"usage_usec", b"nr_periods", b"nr_throttled", b"throttled_usec")
    stat = keyed(texts.get("stat", b"") + b"\n", names)
    local = keyed(texts.get("local", b"") + b"\n", [b"throttled_usec"])
    found = (*(stat.get(name) for name in names), local.get(b"throttled_usec"))
    return {key: value for key, value in zip(_TOTALS, found, strict=True) if value is not None}


def _v1_totals(texts: Mapping[str, bytes]) -> dict[str, int]:
    """Running totals in us, and periods. v1 counts times in ns."""
    stat = keyed(texts.get("stat", b"") + b"\n", (b"nr_periods", b"nr_throttled", b"throttled_time"))
    local = keyed(texts.get("local", b"") + b"\n", [b"throttled_time"])
    usage, throttled, held_back = (
        None if ns is None else ns // 1000
        for ns in (number(texts.get("usage")), stat.get(b"throttled_time"), local.get(b"throttled_time"))
    )
    found = (usage, stat.get(b"nr_periods"), stat.get(b"nr_throttled"), throttled, held_back)
    return {key: value for key, value in zip(_TOTALS, found, strict=True) if value is not None}

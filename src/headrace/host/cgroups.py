"""The control groups of a process, from its own up to the root, and what they allow (cgroups(7), cgroup v1 and v2).

Nothing is assumed about where hierarchies are mounted: orders such as `cpu,cpuacct`, hybrid layouts and containers that see only a part
of a hierarchy are read from the mount table.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import NamedTuple

CONTROLLERS = frozenset({"cpu", "cpuacct", "cpuset", "memory"})
"""What is read here. A v2 group serves all of them from one folder."""


class Mount(NamedTuple):
    """A hierarchy of groups, or the part of one that is visible here."""

    version: int
    controllers: frozenset[str]
    root: str
    """The group that shows at `folder`: `/` unless higher ones are hidden."""
    folder: Path


@dataclass(frozen=True, slots=True)
class Group:
    """One control group. In v1 each controller has a hierarchy of its own: groups of one path are taken together."""

    version: int
    path: str
    """From the root of its hierarchy."""
    folders: Mapping[str, Path]
    """Where its files are, by controller."""

    def file(self, controller: str, name: str) -> Path | None:
        folder = self.folders.get(controller)
        return None if folder is None else folder / name


def read_mounts(mountinfo: Path = Path("/proc/self/mountinfo")) -> tuple[Mount, ...]:
    """The hierarchies mounted here; none when the table cannot be read."""
    try:
        text = mountinfo.read_text(errors="replace")
    except OSError:
        return ()
    return tuple(mount for line in text.splitlines() if (mount := _mount(line)))


def usual_mounts(folder: Path = Path("/sys/fs/cgroup")) -> tuple[Mount, ...]:
    """Where hierarchies are on most machines, for want of a mount table: v2 in `folder`, v1 in folders named after controllers."""
    names = ("cpu,cpuacct", "cpuacct,cpu", "cpu", "cpuacct", "cpuset", "memory")
    v1 = [
        Mount(1, frozenset(name.split(",")), "/", folder / name) for name in names if (folder / name).is_dir()
    ]
    return (*v1, Mount(2, CONTROLLERS, "/", folder))


def read_memberships(process: Path) -> str:
    """The table of a process's (`/proc/PID`) own groups; empty when it is gone."""
    try:
        return (process / "cgroup").read_text(errors="replace")
    except OSError:
        return ""


def groups_of(memberships: str, mounts: Iterable[Mount]) -> tuple[Group, ...]:
    """The groups of a process that are visible here: v1 first, each version from the process's own group up to the root.

    Empty when nothing is mounted, and when its groups lie outside the part that is mounted.
    """
    mounts = sorted(mounts, key=lambda mount: len(mount.root))
    folders: dict[tuple[int, str], dict[str, Path]] = {}
    for line in memberships.splitlines():
        for version, path, controllers, folder in _chain(line, mounts):
            for controller in controllers:
                folders.setdefault((version, path), {}).setdefault(controller, folder)
    deepest_first = sorted(folders, key=lambda key: (key[0], -len(PurePosixPath(key[1]).parts), key[1]))
    return tuple(Group(version, path, folders[version, path]) for version, path in deepest_first)


def is_root(group: Group) -> bool:
    """Nothing is above it. A group that is merely the highest one visible has files that a true root lacks, or the other way round."""
    folder = next(iter(group.folders.values()))
    return (
        not (folder / "cgroup.events").exists() if group.version == 2 else (folder / "release_agent").exists()
    )


def quota_cores(group: Group) -> float | None:
    """CPU time a second that its tasks may use; None when there is no limit or none can be read."""
    try:
        if group.version == 2:
            return cores_of_quota(_read(group, "cpu.max"))
        return cores_of_quota(f"{_read(group, 'cpu.cfs_quota_us')} {_read(group, 'cpu.cfs_period_us')}")
    except OSError:
        return None


def cores_of_quota(text: str) -> float | None:
    """Cores of `QUOTA PERIOD` in microseconds; None without a limit (`max`, `-1`) and for anything else."""
    fields = text.split()
    if len(fields) != 2 or not all(field.isdecimal() and len(field) < 19 for field in fields):
        return None
    quota_us, period_us = map(int, fields)
    return quota_us / period_us if quota_us and period_us else None


def _read(group: Group, name: str) -> str:
    file = group.file("cpu", name)
    return "" if file is None else file.read_text(errors="replace")


def _mount(line: str) -> Mount | None:
    fields = line.split(" ")
    if "-" not in fields[5:-2]:
        return None
    kind, _, options = fields[fields.index("-", 5) + 1 :][:3]
    root, folder = _unescaped(fields[3]), Path(_unescaped(fields[4]))
    if kind == "cgroup2":
        return Mount(2, CONTROLLERS, root, folder)
    controllers = CONTROLLERS & set(options.split(","))
    return Mount(1, controllers, root, folder) if kind == "cgroup" and controllers else None


def _unescaped(field: str) -> str:
    """The table writes blanks and the like as `\\040`."""
    return re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal[1], 8)), field)


def _chain(line: str, mounts: Iterable[Mount]) -> Iterator[tuple[int, str, frozenset[str], Path]]:
    """Version, path, controllers and folder of each group that a line of `/proc/PID/cgroup` stands for."""
    _, _, rest = line.partition(":")
    names, _, path = rest.partition(":")
    if not path.startswith("/") or ".." in path.split("/"):
        return
    wanted = CONTROLLERS & set(names.split(",")) if names else CONTROLLERS
    version = 1 if names else 2
    for mount in mounts:
        controllers = wanted & mount.controllers
        below = _below(path, mount.root)
        if mount.version != version or not controllers or below is None or not mount.folder.is_dir():
            continue
        for part in (below, *below.parents):
            if (mount.folder / part).is_dir():
                yield version, str(PurePosixPath(mount.root) / part), controllers, mount.folder / part
        wanted -= controllers


def _below(path: str, root: str) -> PurePosixPath | None:
    try:
        return PurePosixPath(path).relative_to(root)
    except ValueError:
        return None

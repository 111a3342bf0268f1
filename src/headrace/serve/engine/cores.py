"""How many cores this process may really use: its affinity mask and its cgroup's quota, whichever is tighter."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path


def usable_cores(proc: Path = Path("/proc/self"), cgroups: Path = Path("/sys/fs/cgroup")) -> int:
    """At least 1. A quota of 2.5 cores counts as 2 threads: a third would be throttled half the time."""
    try:
        affinity = len(os.sched_getaffinity(0))
    except AttributeError:
        affinity = os.cpu_count() or 1
    return max(1, min(affinity, int(cpu_quota_cores(proc, cgroups))))


def cpu_quota_cores(proc: Path, cgroups: Path) -> float:
    """The smallest quota from the process's group up to the root, in cores; infinite when there is none (cgroup v2 and v1)."""
    quotas = [_quota(folder) for folder in _groups(proc, cgroups)]
    return min(quotas, default=float(1 << 16))


def _groups(proc: Path, cgroups: Path) -> Iterator[Path]:
    try:
        lines = (proc / "cgroup").read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            root = cgroups
        elif "cpu" in controllers.split(","):
            root = cgroups / controllers
            root = root if root.is_dir() else cgroups / "cpu"
        else:
            continue
        group = root / path.lstrip("/")
        while True:
            yield group
            if group == root or root not in group.parents:
                break
            group = group.parent


def _quota(folder: Path) -> float:
    unlimited = float(1 << 16)
    try:
        if (folder / "cpu.max").exists():
            quota, period = (folder / "cpu.max").read_text().split()
        else:
            quota = (folder / "cpu.cfs_quota_us").read_text().strip()
            period = (folder / "cpu.cfs_period_us").read_text().strip()
        return unlimited if quota in ("max", "-1") else int(quota) / int(period)
    except (OSError, ValueError, ZeroDivisionError):
        return unlimited

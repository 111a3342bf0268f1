"""How many cores this process may really use: its affinity mask and its cgroup's quota, whichever is tighter."""

from __future__ import annotations

import os
from pathlib import Path

from headrace.host.cgroups import groups_of, quota_cores, read_memberships, read_mounts, usual_mounts

UNLIMITED = float(1 << 16)


def usable_cores(proc: Path = Path("/proc/self"), cgroups: Path = Path("/sys/fs/cgroup")) -> int:
    """At least 1. A quota of 2.5 cores counts as 2 threads: a third would be throttled half the time."""
    try:
        affinity = len(os.sched_getaffinity(0))
    except AttributeError:
        affinity = os.cpu_count() or 1
    return max(1, min(affinity, int(cpu_quota_cores(proc, cgroups))))


def cpu_quota_cores(proc: Path, cgroups: Path) -> float:
    """The smallest quota from the process's group up to the root, in cores; `UNLIMITED` when there is none (cgroup v2 and v1).

    `cgroups` is where groups are looked for when `proc` has no mount table.
    """
    mounts = read_mounts(proc / "mountinfo") or usual_mounts(cgroups)
    quotas = [quota_cores(group) for group in groups_of(read_memberships(proc), mounts)]
    return min((quota for quota in quotas if quota is not None), default=UNLIMITED)

"""The probes that read /proc and /sys, put together."""

from __future__ import annotations

from pathlib import Path

from headrace.probe.cgroups import CgroupsProbe
from headrace.probe.disks import DisksProbe
from headrace.probe.host import CoresProbe, HostProbe, PressureProbe
from headrace.probe.networks import NetworksProbe
from headrace.probe.probe import Probe, Watched
from headrace.probe.processes import ProcessesProbe
from headrace.probe.readings import Descriptors
from headrace.probe.sockets import SocketsProbe
from headrace.probe.threads import ThreadsProbe


def system_probes(
    watched: Watched | None, proc: Path = Path("/proc"), sys: Path = Path("/sys")
) -> list[Probe]:
    """Cores, pressure, memory and run queue, disks, networks of the machine; threads, processes, control groups and sockets of the watched.

    Raises this process's soft limit of open files to the hard one: each thread's files are kept open.
    """
    machine: list[Probe] = [CoresProbe(proc), PressureProbe(proc), HostProbe(proc), DisksProbe(proc, sys)]
    if watched is None:
        return [*machine, NetworksProbe(proc / "self", sys)]
    descriptors = Descriptors.raised()
    return [
        *machine,
        _networks_of(watched, proc, sys),
        ThreadsProbe(watched, proc, descriptors),
        ProcessesProbe(watched, proc, descriptors),
        CgroupsProbe(watched, proc),
        SocketsProbe(watched, proc),
    ]


def _networks_of(watched: Watched, proc: Path, sys: Path) -> NetworksProbe:
    """The networks that the service sees: in a container it may have some of its own."""
    try:
        own = (proc / "self" / "ns" / "net").stat().st_ino
        for pid in watched.pids:
            if (proc / str(pid) / "ns" / "net").stat().st_ino != own:
                return NetworksProbe(proc / str(pid), None)
    except OSError:
        pass
    return NetworksProbe(proc / "self", sys)

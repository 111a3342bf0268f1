"""What a recording watches, and the probes for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from headrace.probe.gpus import GpuProbe
from headrace.probe.probe import Probe
from headrace.probe.progress import LogProgress, LogSource, MetricProgress, parse_progress
from headrace.probe.service import find_service
from headrace.probe.stacks import StackProbe
from headrace.probe.stages import StageProbe
from headrace.probe.system import system_probes
from headrace.probe.targets import by_cgroup, by_pid, by_port
from headrace.probe.watched import GroupMembers, ProcessTree


@dataclass(frozen=True, slots=True, kw_only=True)
class Watch:
    """What to record, and how. At most one of pid, port, cgroup and service names the processes; with none, the machine alone."""

    pid: int | None = None
    port: int | None = None
    cgroup: str | None = None
    service: str | None = None
    """Address of a service, or of its page in Prometheus' format."""
    seconds: float = 60.0
    stacks: bool = False
    progress: tuple[str, ...] = ()
    """`log:FILE` or `metric:URL#NAME`."""


@dataclass(frozen=True, slots=True)
class Target:
    """The watched processes and the service's metrics page; either may be missing."""

    watched: ProcessTree | GroupMembers | None = None
    metrics_url: str | None = None

    def still_there(self) -> bool:
        """Looks for processes that came and went; False when the service has ended."""
        if self.watched is None:
            return True
        self.watched.refresh()
        return self.watched.alive

    def as_dict(self) -> dict[str, Any]:
        return {"pids": sorted(self.watched.pids) if self.watched else [], "metrics_url": self.metrics_url}


def find_target(watch: Watch) -> Target:
    """Raises UsageError that says what was not found and how to name it."""
    if watch.pid is not None:
        return Target(by_pid(watch.pid))
    if watch.port is not None:
        return Target(by_port(watch.port))
    if watch.cgroup is not None:
        return Target(by_cgroup(watch.cgroup))
    if watch.service is not None:
        return Target(*find_service(watch.service))
    return Target()


def probes_for(watch: Watch, target: Target) -> Sequence[Probe]:
    """Everything that can be read of the machine and the target. Raises UsageError for a bad `progress`."""
    sources = [parse_progress(text) for text in watch.progress]
    probes: list[Probe] = [*system_probes(target.watched), GpuProbe()]
    if watch.stacks and target.watched is not None:
        probes.append(StackProbe(target.watched))
    if target.metrics_url is not None:
        probes.append(StageProbe(target.metrics_url))
    probes += [
        LogProgress(source) if isinstance(source, LogSource) else MetricProgress(source) for source in sources
    ]
    return probes

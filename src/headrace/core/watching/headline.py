"""What stands out in a recording, in one sentence: how busy the device was, and what else was at its limit.

It tells what was measured, not why: an idle device beside a full core is a strong hint, no more.
"""

from __future__ import annotations

from collections.abc import Iterator

from headrace.core.watching.figures import Figures

FULL = 0.85
"""From here on a core or the CPU counts as full: before a single one, work then waits nearly 6 times as long as it takes (M/M/1)."""
THROTTLED = 0.1
"""Share of a quota's periods in which it ran out."""
WAITED = 0.2
"""Share of the time in which some task waited for a disk or for memory."""


def headline(figures: Figures) -> str:
    """One sentence; empty before there are figures."""
    if "host.cpu_ratio" not in figures.series and "service.cpu_cores" not in figures.series:
        return ""
    limit = next(_limits(figures), None) or _nothing(figures)
    sentence = "; ".join([*_devices(figures), limit])
    return sentence[0].upper() + sentence[1:] + "."


def _devices(figures: Figures) -> Iterator[str]:
    for kind, label in (("gpu.", "GPU"), ("device.", "device")):
        found = figures.named(kind, ".busy_ratio")
        if len(found) > 2:
            shares = sorted(busy.mean for busy in found.values())
            yield f"{len(shares)} {label}s were busy {shares[0]:.0%} to {shares[-1]:.0%} of the time"
            continue
        for name, busy in found.items():
            yield f"{label} {name} was busy {busy.mean:.0%} of the time"


def _limits(figures: Figures) -> Iterator[str]:
    """What is at its limit, the plainest first."""
    yield from _stopped(figures)
    yield from _quota(figures)
    cpu, cores = (figures.series.get(f"host.{name}") for name in ("cpu_ratio", "cores"))
    service_cores = _service_cores(figures)
    if cpu and cores and cpu.mean >= FULL:
        share = "" if service_cores is None else f", {service_cores:.2f} of them for the service"
        yield f"the {cores.last:.0f} cores were {cpu.mean:.0%} busy{share}"
    elif cpu and cores:
        beside = f"while all {cores.last:.0f} cores together were {cpu.mean:.0%} busy"
        yield from _full_thread(figures, beside)
        yield from _one_core(figures, beside)
    for resource, what in (("memory", "memory"), ("io", "disks")):
        stalled = figures.series.get(f"pressure.{resource}_some_ratio")
        if stalled and stalled.mean >= WAITED:
            yield f"tasks waited for {what} in {stalled.mean:.0%} of the time"


def _stopped(figures: Figures) -> Iterator[str]:
    stopped = figures.series.get("service.stopped_processes")
    if stopped and stopped.last:
        yield (
            f"of the service's processes {stopped.last:.0f} stood still at the end, stopped by Ctrl-Z, SIGSTOP or a debugger "
            "(`kill -CONT PID` lets one go on)"
        )


def _quota(figures: Figures) -> Iterator[str]:
    for path, throttled in figures.named("cgroup.", ".throttled_ratio").items():
        if throttled.mean >= THROTTLED:
            quota = figures.series.get(f"cgroup.{path}.quota_cores")
            limit = f" of {quota.last:.2g} cores" if quota else ""
            yield f"the CPU quota{limit} of {path} ran out in {throttled.mean:.0%} of its periods"


def _full_thread(figures: Figures, beside: str) -> Iterator[str]:
    for thread in figures.busiest(1):
        if thread.mean_ratio >= FULL:
            yield f"thread {thread.name or thread.tid} kept one core busy ({thread.mean_ratio:.0%}) {beside}"


def _one_core(figures: Figures, beside: str) -> Iterator[str]:
    """As threads do that take turns at a lock, Python's among them."""
    cores, processes, threads = (
        figures.series.get(f"service.{name}") for name in ("cpu_cores", "processes", "threads")
    )
    if cores and processes and threads and processes.last == 1 < threads.last and FULL <= cores.mean <= 1.1:
        yield f"the service's {threads.last:.0f} threads together took one core ({cores.mean:.2f}) {beside}"


def _nothing(figures: Figures) -> str:
    cpu, service_cores = figures.series.get("host.cpu_ratio"), _service_cores(figures)
    of_all = f", the CPU was {cpu.mean:.0%} busy" if cpu else ""
    of_service = "" if service_cores is None else f" (the service took {service_cores:.2f} cores)"
    return f"nothing was at its limit{of_all}{of_service}"


def _service_cores(figures: Figures) -> float | None:
    """With its short-lived children; None without a service."""
    parts = [figures.series.get(f"service.{name}") for name in ("cpu_cores", "ended_children_cores")]
    found = [part.mean for part in parts if part]
    return sum(found) if found else None

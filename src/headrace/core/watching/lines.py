"""The main figures as lines of text: what is live on one screen, and what a recording ends with."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from headrace.core.watching.figures import FULL_ABOVE, IDLE_BELOW, Figures, Series
from headrace.records.timeline import STAGES
from headrace.units import format_bytes

WARN_WAIT = 0.1
"""A thread that waits for a core a tenth of its time is told with the wait; below that, the kernel's own switching shows."""


class Line(NamedTuple):
    """One line of the screen."""

    label: str
    now: str
    mean: str
    note: str = ""


def main_lines(figures: Figures) -> list[Line]:
    """GPU first, then the CPU, the service and its busiest threads, and everything that is not idle."""
    return [
        *_gpus(figures),
        *_devices(figures),
        *_host(figures),
        *_service(figures),
        *_threads(figures),
        *_cgroups(figures),
        *_moving(figures),
        *_stages(figures),
        *_progress(figures),
    ]


_GPU_RATIOS = (
    ("sm_active_ratio", "SMs active"),
    ("memory_held_ratio", "memory held"),
    ("decoder_ratio", "video decoder"),
    ("jpeg_ratio", "JPEG decoder"),
)


def _gpus(figures: Figures) -> Iterator[Line]:
    for device, busy in figures.named("gpu.", ".busy_ratio").items():
        yield _busy(f"GPU {device} busy", busy)
        for name, label in _GPU_RATIOS:
            if (series := figures.series.get(f"gpu.{device}.{name}")) and series.high > 0:
                yield _ratio(f"GPU {device} {label}", series, _window(series))
        for name, label in (("pcie_received_bytes_per_s", "PCIe in"), ("pcie_sent_bytes_per_s", "PCIe out")):
            if (series := figures.series.get(f"gpu.{device}.{name}")) and series.high > 0:
                yield _bytes(f"GPU {device} {label}", series)


def _devices(figures: Figures) -> Iterator[Line]:
    for device, busy in figures.named("device.", ".busy_ratio").items():
        yield _busy(f"device {device} busy", busy)


def _busy(label: str, busy: Series) -> Line:
    """A mean hides whether it is a steady trickle or bursts: so the idle and the full windows stand beside it."""
    ends = f"idle in {busy.share_below(IDLE_BELOW):.0%}, full in {busy.share_from(FULL_ABOVE):.0%}, p95 {busy.quantile(0.95):.0%}"
    return _ratio(label, busy, f"{_window(busy)}: {ends}")


def _window(series: Series) -> str:
    return f"windows of {series.first_window_s:.2g} s" if series.first_window_s else "readings of a moment"


def _host(figures: Figures) -> Iterator[Line]:
    if cpu := figures.series.get("host.cpu_ratio"):
        cores, busiest = figures.series["host.cores"], figures.series["host.busiest_core_ratio"]
        note = f"{cores.last:.0f} cores; busiest core {busiest.mean:.0%}, p95 of all {cpu.quantile(0.95):.0%}"
        yield _ratio("CPU", cpu, note)
    if (steal := figures.series.get("host.steal_ratio")) and steal.mean >= 0.01:
        yield _ratio("CPU stolen", steal, "taken by other machines on this hardware")
    for resource in ("cpu", "io", "memory"):
        if (stalled := figures.series.get(f"pressure.{resource}_some_ratio")) and stalled.mean >= 0.01:
            yield _ratio(f"stalled for {resource}", stalled, "share of time in which some task waited for it")
    if memory := figures.series.get("host.memory_used_ratio"):
        yield _ratio("memory used", memory)


def _service(figures: Figures) -> Iterator[Line]:
    cpu = figures.series.get("service.cpu_cores")
    if cpu is None:
        return
    processes, threads = figures.series["service.processes"], figures.series["service.threads"]
    resident = figures.series["service.resident_bytes"]
    yield Line(
        "service", f"{cpu.last:.2f} cores", f"{cpu.mean:.2f}",
        f"{processes.last:.0f} processes, {threads.last:.0f} threads, {format_bytes(resident.last)}",
    )  # fmt: skip


def _threads(figures: Figures) -> Iterator[Line]:
    for thread in figures.busiest(3):
        if thread.mean_ratio < 0.005:
            continue
        wait = (
            f"waits for a core {thread.wait_ratio:.0%} of the time" if thread.wait_ratio >= WARN_WAIT else ""
        )
        name = thread.name or "?"
        yield Line(
            f"  thread {name}",
            f"{thread.now_ratio:.0%}",
            f"{thread.mean_ratio:.0%}",
            f"{wait or 'of one core'} (tid {thread.tid})",
        )


def _cgroups(figures: Figures) -> Iterator[Line]:
    for path, throttled in figures.named("cgroup.", ".throttled_ratio").items():
        if throttled.high > 0:
            quota = figures.series.get(f"cgroup.{path}.quota_cores")
            limit = f"quota {quota.last:.2g} cores" if quota else "a quota above"
            yield _ratio("throttled", throttled, f"of periods; {limit}, {path}")


def _moving(figures: Figures) -> Iterator[Line]:
    for start, end, label in (
        ("disk.", ".read_bytes_per_s", "disk {} read"), ("disk.", ".written_bytes_per_s", "disk {} written"),
        ("network.", ".received_bytes_per_s", "network {} in"), ("network.", ".sent_bytes_per_s", "network {} out"),
    ):  # fmt: skip
        for name, series in figures.named(start, end).items():
            if series.mean >= 1e5:
                yield _bytes(label.format(name), series)
    if (again := figures.series.get("tcp.retransmits_per_s")) and again.mean >= 1:
        yield Line("TCP sent again", f"{again.last:.0f}/s", f"{again.mean:.0f}/s")
    for port, series in figures.named("socket.", ".connections").items():
        waiting = figures.series.get(f"socket.{port}.not_accepted")
        note = f"{waiting.high:.0f} waited to be accepted at worst" if waiting and waiting.high else ""
        yield Line(f"clients on {port}", f"{series.last:.0f}", f"{series.mean:.1f}", note)


def _stages(figures: Figures) -> Iterator[Line]:
    found = figures.named("stage.", ".done_per_s")
    for stage in sorted(found, key=lambda name: (*STAGES, name).index(name)):
        done = found[stage]
        wait = figures.series.get(f"stage.{stage}.wait_ms")
        service = figures.series.get(f"stage.{stage}.service_ms")
        if wait and service:
            note = f"waits {wait.mean:.3g} ms, works {service.mean:.3g} ms"
            yield Line(f"stage {stage}", f"{done.last:.1f}/s", f"{done.mean:.1f}/s", note)


def _progress(figures: Figures) -> Iterator[Line]:
    for unit, series in figures.named("progress.", "_per_s").items():
        yield Line("work done", f"{series.last:.4g} {unit}/s", f"{series.mean:.4g}/s")


def _ratio(label: str, series: Series, note: str = "") -> Line:
    return Line(label, f"{series.last:.0%}", f"{series.mean:.0%}", note)


def _bytes(label: str, series: Series) -> Line:
    return Line(label, f"{format_bytes(series.last)}/s", f"{format_bytes(series.mean)}/s")


def own_cost(figures: Figures) -> str:
    """What watching took, in one sentence; empty before the first account."""
    own, programs = (figures.series.get(f"watching.{name}.cpu_ratio") for name in ("sampler", "programs"))
    if own is None or programs is None:
        return ""
    more = f", the programs it ran {programs.mean:.2%} (stacks)" if programs.mean > 0 else ""
    return f"watching took {own.mean:.2%} of one core{more}"


def columns_of(lines: Sequence[Line], end: bool) -> list[str]:
    """Lines as columns: now and mean while it runs, the mean alone at the end."""
    label_width = max((len(line.label) for line in lines), default=0)
    texts = []
    for line in lines:
        values = f"{line.mean:>12}" if end else f"{line.now:>12}{line.mean:>12}"
        texts.append(f"{line.label:<{label_width}}{values}  {line.note}".rstrip())
    return texts

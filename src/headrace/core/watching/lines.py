"""The main figures as lines of text: what is live on one screen, and what a recording ends with."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from headrace.core.watching.figures import FULL_ABOVE, IDLE_BELOW, Figures, Series
from headrace.records.timeline import STAGES
from headrace.units import format_bytes, format_ms, per_s

WARN_WAIT = 0.1
"""A thread that waits for a core a tenth of its time is told with the wait; below that, the kernel's own switching shows."""
WARN_UNTOLD_CORES, WARN_UNTOLD_SHARE = 0.05, 0.2
"""CPU time of threads or processes too short-lived to be seen is told from here on; below, readings of two sources just differ."""
WARN_MISSED = 0.01
_MOST_STAGES = 16
"""A server has six; a page may say anything."""
_FEW_PORTS = 3
"""Of more, those without any client are left out."""
_LONG_S = 30.0
"""In a shorter recording what starting took weighs in what watching took."""


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
        yield _busy(figures, f"GPU {device} busy", busy)
        for name, label in _GPU_RATIOS:
            if (series := figures.series.get(f"gpu.{device}.{name}")) and series.high > 0:
                yield _ratio(figures, f"GPU {device} {label}", series, _window(series))
        for name, label in (("pcie_received_bytes_per_s", "PCIe in"), ("pcie_sent_bytes_per_s", "PCIe out")):
            if (series := figures.series.get(f"gpu.{device}.{name}")) and series.high > 0:
                yield _bytes(figures, f"GPU {device} {label}", series)


def _devices(figures: Figures) -> Iterator[Line]:
    for device, busy in figures.named("device.", ".busy_ratio").items():
        yield _busy(figures, f"device {device} busy", busy)


def _busy(figures: Figures, label: str, busy: Series) -> Line:
    """A mean hides whether it is a steady trickle or bursts: so the idle and the full windows stand beside it."""
    idle, full = busy.share_below(IDLE_BELOW), busy.share_from(FULL_ABOVE)
    return _ratio(figures, label, busy, f"idle in {idle:.0%}, full in {full:.0%} of {_window(busy)}")


def _window(series: Series) -> str:
    return f"windows of {series.first_window_s:.2g} s" if series.first_window_s else "readings of a moment"


def _host(figures: Figures) -> Iterator[Line]:
    if cpu := figures.series.get("host.cpu_ratio"):
        cores, busiest = figures.series["host.cores"], figures.series["host.busiest_core_ratio"]
        note = f"of {cores.last:.0f} cores; the busiest one {busiest.mean:.0%}"
        yield _ratio(figures, "CPU", cpu, note)
    if (steal := figures.series.get("host.steal_ratio")) and steal.mean >= 0.01:
        yield _ratio(figures, "CPU stolen", steal, "taken by other machines on this hardware")
    for resource, what in (("cpu", "a core"), ("io", "a disk"), ("memory", "memory")):
        if (stalled := figures.series.get(f"pressure.{resource}_some_ratio")) and stalled.mean >= 0.01:
            yield _ratio(figures, f"waited for {what}", stalled, "of the time, some task")
    if memory := figures.series.get("host.memory_used_ratio"):
        yield _ratio(figures, "memory used", memory)


def _service(figures: Figures) -> Iterator[Line]:
    cpu = figures.series.get("service.cpu_cores")
    if cpu is None:
        return
    processes, threads, resident, stopped = (
        figures.series[f"service.{name}"].last
        for name in ("processes", "threads", "resident_bytes", "stopped_processes")
    )
    note = f"{_count(processes, 'process', 'es')}, {_count(threads, 'thread', 's')}, {format_bytes(resident)}"
    yield _cores(figures, "service", cpu, f"{note}, {stopped:.0f} STOPPED" if stopped else note)
    children = figures.series["service.ended_children_cores"]
    if children.mean >= WARN_UNTOLD_CORES:
        yield _cores(figures, "  and children", children, "that came and went between readings")


def _count(number: float, one: str, more: str) -> str:
    return f"{number:.0f} {one}" if number == 1 else f"{number:.0f} {one}{more}"


def _threads(figures: Figures) -> Iterator[Line]:
    for thread in figures.busiest(3):
        if thread.mean_ratio < 0.005:
            continue
        wait = f"waits for a core {thread.wait_ratio:.0%}" if thread.wait_ratio >= WARN_WAIT else ""
        yield Line(
            f"  thread {thread.name or '?'}",
            f"{thread.now_ratio:.0%}",
            f"{thread.mean_ratio:.0%}",
            f"{wait or 'of one core'} (tid {thread.tid})",
        )
    cpu = figures.series.get("service.cpu_cores")
    untold_cores = cpu.mean - figures.threads_cores if cpu else 0.0
    if cpu and untold_cores >= max(WARN_UNTOLD_CORES, WARN_UNTOLD_SHARE * cpu.mean):
        yield Line(
            "  other threads", "", f"{untold_cores:.0%}", "of one core: too short-lived or too many to tell"
        )


def _cgroups(figures: Figures) -> Iterator[Line]:
    for path, throttled in figures.named("cgroup.", ".throttled_ratio").items():
        if throttled.high > 0:
            quota = figures.series.get(f"cgroup.{path}.quota_cores")
            limit = f"quota {quota.last:.2g} cores" if quota else "a quota above"
            yield _ratio(figures, "throttled", throttled, f"of periods; {limit}, {path}")


def _moving(figures: Figures) -> Iterator[Line]:
    for start, end, label in (
        ("disk.", ".read_bytes_per_s", "disk {} read"), ("disk.", ".written_bytes_per_s", "disk {} written"),
        ("network.", ".received_bytes_per_s", "network {} in"), ("network.", ".sent_bytes_per_s", "network {} out"),
    ):  # fmt: skip
        for name, series in figures.named(start, end).items():
            if series.mean >= 1e5:
                yield _bytes(figures, label.format(name), series)
    if (again := figures.series.get("tcp.retransmits_per_s")) and again.mean >= 1:
        yield _rate(figures, "TCP sent again", again, "segments, of the whole machine")
    clients = figures.named("socket.", ".connections")
    for port, series in clients.items():
        if not series.high and len(clients) > _FEW_PORTS:
            continue
        waiting = figures.series.get(f"socket.{port}.not_accepted")
        note = f"{waiting.high:.0f} waited to be accepted at worst" if waiting and waiting.high else ""
        yield Line(f"clients on {port}", _now(figures, series, "{:.0f}"), f"{series.mean:.1f}", note)


def _stages(figures: Figures) -> Iterator[Line]:
    found = figures.named("stage.", ".done_per_s")
    for stage in sorted(found, key=lambda name: (*STAGES, name).index(name))[:_MOST_STAGES]:
        wait = figures.series.get(f"stage.{stage}.wait_ms")
        service = figures.series.get(f"stage.{stage}.service_ms")
        if wait and service:
            note = f"waits {format_ms(wait.mean * 1e-3)}, works {format_ms(service.mean * 1e-3)}"
            yield _rate(figures, f"stage {stage}", found[stage], note)


def _progress(figures: Figures) -> Iterator[Line]:
    for name, series in figures.named("progress.", "_per_s").items():
        source, _, unit = name.rpartition(".")
        yield _rate(figures, "work done", series, f"{unit}, by {source}")


def _now(figures: Figures, series: Series, form: str) -> str:
    now = figures.now(series)
    return "-" if now is None else form.format(now)


def _ratio(figures: Figures, label: str, series: Series, note: str = "") -> Line:
    return Line(label, _now(figures, series, "{:.0%}"), f"{series.mean:.0%}", note)


def _cores(figures: Figures, label: str, series: Series, note: str) -> Line:
    return Line(label, _now(figures, series, "{:.2f} cores"), f"{series.mean:.2f} cores", note)


def _bytes(figures: Figures, label: str, series: Series) -> Line:
    now = figures.now(series)
    return Line(label, "-" if now is None else f"{format_bytes(now)}/s", f"{format_bytes(series.mean)}/s")


def _rate(figures: Figures, label: str, series: Series, note: str) -> Line:
    now = figures.now(series)
    return Line(label, "-" if now is None else per_s(now), per_s(series.mean), note)


def own_cost(figures: Figures) -> str:
    """What watching took, in one sentence; empty before the first account."""
    own, programs = (figures.series.get(f"watching.{name}.cpu_ratio") for name in ("sampler", "programs"))
    if own is None or programs is None:
        return ""
    start = " (its start included)" if own.seconds < _LONG_S else ""
    more = f", the programs it ran {programs.mean:.2%} (stacks)" if programs.mean > 0 else ""
    missed = figures.series.get("watching.sampler.missed_ratio")
    late = f"; {missed.mean:.0%} of its readings were missed" if missed and missed.mean >= WARN_MISSED else ""
    return f"watching took {own.mean:.2%} of one core{start}{more}{late}"


def columns_of(lines: Sequence[Line], end: bool) -> list[str]:
    """Lines as columns under a head: now and mean while it runs, the mean alone at the end. Nothing in them steers a terminal."""
    if not lines:
        return []
    shown = [Line("", "now", "mean"), *(Line(*map(_plain, line)) for line in lines)]
    label_width = max(len(line.label) for line in shown)
    texts = []
    for line in shown:
        values = f"{line.mean:>12}" if end else f"{line.now:>12}{line.mean:>12}"
        texts.append(f"{line.label:<{label_width}}{values}  {line.note}".rstrip())
    return texts


def _plain(text: str) -> str:
    """Names come from foreign pages and file systems."""
    return "".join(sign if sign.isprintable() else "?" for sign in text)

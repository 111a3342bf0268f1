"""From the rows of one reading to named measures: one function a table.

A measure's unit ends its name: `_ratio` is 0 to 1, `_cores` is CPU time a second.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from headrace.records.rows.gpu import GpuRow
from headrace.records.rows.host import CoreRow, DiskRow, HostRow, NetworkRow, PressureRow, TcpRow
from headrace.records.rows.process import CgroupRow, ProcessRow, SocketRow
from headrace.records.rows.service import DeviceRow, ProbeRow, ProgressRow, StageRow


class Measure(NamedTuple):
    """One value, good for the last `window_s` seconds."""

    name: str
    value: float
    window_s: float


def measures(rows: Sequence[Any]) -> Iterator[Measure]:
    """What the rows of one reading of one table say; nothing for a table that has no figures."""
    if rows and (make := _OF.get(type(rows[0]))) is not None:
        for measure in make(rows):
            if measure.window_s >= 0:
                yield measure


def _cores(rows: Sequence[CoreRow]) -> Iterator[Measure]:
    window_s = rows[0].window_s
    busy = [1 - (row.idle_us + row.iowait_us) / max(1, _total_us(row)) for row in rows]
    yield Measure("host.cores", len(rows), window_s)
    yield Measure("host.cpu_ratio", sum(busy) / len(busy), window_s)
    yield Measure("host.busiest_core_ratio", max(busy), window_s)
    yield Measure("host.system_ratio", _share(rows, "system_us"), window_s)
    yield Measure("host.steal_ratio", _share(rows, "steal_us"), window_s)


def _total_us(row: CoreRow) -> int:
    return sum(row[3:])


def _share(rows: Sequence[CoreRow], column: str) -> float:
    part: int = sum(getattr(row, column) for row in rows)
    return part / max(1, sum(map(_total_us, rows)))


def _pressure(rows: Sequence[PressureRow]) -> Iterator[Measure]:
    for row in rows:
        if row.scope == "host":
            yield Measure(
                f"pressure.{row.resource}_some_ratio",
                _a_second(row.some_us, row.window_s) * 1e-6,
                row.window_s,
            )


def _host(rows: Sequence[HostRow]) -> Iterator[Measure]:
    row = rows[-1]
    if row.memory_total_bytes and row.memory_available_bytes is not None:
        yield Measure(
            "host.memory_used_ratio", 1 - row.memory_available_bytes / row.memory_total_bytes, row.window_s
        )
    for name, value in (("major_faults", row.major_faults), ("swapped_in_bytes", row.swapped_in_bytes)):
        if value is not None:
            yield Measure(f"host.{name}_per_s", _a_second(value, row.window_s), row.window_s)
    if row.blocked is not None:
        yield Measure("host.blocked_tasks", row.blocked, row.window_s)


def _disks(rows: Sequence[DiskRow]) -> Iterator[Measure]:
    for row in rows:
        yield Measure(
            f"disk.{row.device}.read_bytes_per_s", _a_second(row.read_bytes, row.window_s), row.window_s
        )
        yield Measure(
            f"disk.{row.device}.written_bytes_per_s", _a_second(row.written_bytes, row.window_s), row.window_s
        )
        yield Measure(
            f"disk.{row.device}.busy_ratio", _a_second(row.busy_us, row.window_s) * 1e-6, row.window_s
        )


def _networks(rows: Sequence[NetworkRow]) -> Iterator[Measure]:
    for row in rows:
        yield Measure(
            f"network.{row.interface}.received_bytes_per_s",
            _a_second(row.received_bytes, row.window_s),
            row.window_s,
        )
        yield Measure(
            f"network.{row.interface}.sent_bytes_per_s", _a_second(row.sent_bytes, row.window_s), row.window_s
        )


def _tcp(rows: Sequence[TcpRow]) -> Iterator[Measure]:
    row = rows[-1]
    yield Measure("tcp.retransmits_per_s", _a_second(row.retransmits, row.window_s), row.window_s)


_STOPPED = ("T", "t")


def _processes(rows: Sequence[ProcessRow]) -> Iterator[Measure]:
    window_s = max(row.window_s for row in rows)
    for name, amounts_us in (
        ("cpu_cores", [row.user_us + row.system_us for row in rows]),
        ("ended_children_cores", [row.ended_children_us for row in rows]),
    ):
        cores = sum(_a_second(us, row.window_s) for us, row in zip(amounts_us, rows, strict=True)) * 1e-6
        yield Measure(f"service.{name}", cores, window_s)
    yield Measure("service.resident_bytes", sum(row.resident_bytes or 0 for row in rows), window_s)
    yield Measure("service.threads", sum(row.threads or 0 for row in rows), window_s)
    yield Measure("service.processes", len(rows), window_s)
    yield Measure("service.stopped_processes", sum(row.state in _STOPPED for row in rows), window_s)


def _cgroups(rows: Sequence[CgroupRow]) -> Iterator[Measure]:
    for row in rows:
        if row.quota_cores is not None:
            yield Measure(f"cgroup.{row.path}.quota_cores", row.quota_cores, row.window_s)
        if row.periods and row.throttled_periods is not None:
            yield Measure(
                f"cgroup.{row.path}.throttled_ratio", row.throttled_periods / row.periods, row.window_s
            )


def _sockets(rows: Sequence[SocketRow]) -> Iterator[Measure]:
    for row in rows:
        if row.role == "served":
            yield Measure(f"socket.{row.port}.connections", row.sockets, row.window_s)
            if row.sent_bytes is not None:
                yield Measure(
                    f"socket.{row.port}.sent_bytes_per_s",
                    _a_second(row.sent_bytes, row.window_s),
                    row.window_s,
                )
        elif row.role == "listen":
            yield Measure(f"socket.{row.port}.not_accepted", row.receive_queue, row.window_s)


_GPU_LEVELS = (
    "memory_busy_ratio", "decoder_ratio", "encoder_ratio", "jpeg_ratio", "sm_active_ratio", "sm_occupancy_ratio", "tensor_ratio",
    "dram_ratio", "sm_clock_mhz", "power_w", "temperature_c", "pcie_sent_bytes_per_s", "pcie_received_bytes_per_s",
)  # fmt: skip


def _gpus(rows: Sequence[GpuRow]) -> Iterator[Measure]:
    for row in rows:
        if row.busy_ratio is not None:
            window_s = row.window_s if row.busy_window_s is None else row.busy_window_s
            yield Measure(f"gpu.{row.device}.busy_ratio", row.busy_ratio, window_s)
        for name in _GPU_LEVELS:
            if (value := getattr(row, name)) is not None:
                yield Measure(f"gpu.{row.device}.{name}", value, row.window_s)
        if row.memory_used_bytes is not None and row.memory_total_bytes:
            yield Measure(
                f"gpu.{row.device}.memory_held_ratio",
                row.memory_used_bytes / row.memory_total_bytes,
                row.window_s,
            )


def _stages(rows: Sequence[StageRow]) -> Iterator[Measure]:
    for row in rows:
        yield Measure(f"stage.{row.stage}.done_per_s", _a_second(row.done, row.window_s), row.window_s)
        if row.done:
            yield Measure(f"stage.{row.stage}.wait_ms", row.wait_us / row.done * 1e-3, row.window_s)
            yield Measure(f"stage.{row.stage}.service_ms", row.service_us / row.done * 1e-3, row.window_s)


def _devices(rows: Sequence[DeviceRow]) -> Iterator[Measure]:
    for row in rows:
        yield Measure(
            f"device.{row.device}.busy_ratio", _a_second(row.busy_us, row.window_s) * 1e-6, row.window_s
        )
        yield Measure(f"device.{row.device}.images_per_s", _a_second(row.images, row.window_s), row.window_s)


def _progress(rows: Sequence[ProgressRow]) -> Iterator[Measure]:
    for row in rows:
        yield Measure(
            f"progress.{row.source}.{row.unit}_per_s", _a_second(row.amount, row.window_s), row.window_s
        )


def _probes(rows: Sequence[ProbeRow]) -> Iterator[Measure]:
    for row in rows:
        yield Measure(
            f"watching.{row.probe}.cpu_ratio", _a_second(row.cpu_us, row.window_s) * 1e-6, row.window_s
        )
        if due := row.readings + row.missed:
            yield Measure(f"watching.{row.probe}.missed_ratio", row.missed / due, row.window_s)


def _a_second(amount: float, window_s: float) -> float:
    return amount / window_s if window_s > 0 else 0.0


_OF: Mapping[type[Any], Callable[[Any], Iterator[Measure]]] = {
    CoreRow: _cores,
    PressureRow: _pressure,
    HostRow: _host,
    DiskRow: _disks,
    NetworkRow: _networks,
    TcpRow: _tcp,
    ProcessRow: _processes,
    CgroupRow: _cgroups,
    SocketRow: _sockets,
    GpuRow: _gpus,
    StageRow: _stages,
    DeviceRow: _devices,
    ProgressRow: _progress,
    ProbeRow: _probes,
}

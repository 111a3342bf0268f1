"""The tables of a capture: the files' schemas and the reference page are made from them.

Every row of a sample covers `window_s` seconds up to `t_s`: counts are amounts in that window, levels are readings at its end. A reading
that could not be had is None, never 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, get_type_hints

from headrace.records.rows.column import Column
from headrace.records.rows.gpu import GpuProcessRow, GpuRow
from headrace.records.rows.host import CoreRow, DiskRow, HostRow, NetworkRow, PressureRow, TcpRow
from headrace.records.rows.load import ImageRow, LatencyRow, OutcomeRow, SpanRow
from headrace.records.rows.process import CgroupRow, ProcessRow, SocketRow, TaskRow, ThreadRow
from headrace.records.rows.service import DeviceRow, ProbeRow, ProgressRow, StackRow, StageRow

TABLES: Mapping[str, type[Any]] = {
    "cores": CoreRow,
    "pressure": PressureRow,
    "host": HostRow,
    "disks": DiskRow,
    "networks": NetworkRow,
    "tcp": TcpRow,
    "tasks": TaskRow,
    "processes": ProcessRow,
    "threads": ThreadRow,
    "cgroups": CgroupRow,
    "sockets": SocketRow,
    "gpus": GpuRow,
    "gpu_processes": GpuProcessRow,
    "stacks": StackRow,
    "stages": StageRow,
    "devices": DeviceRow,
    "progress": ProgressRow,
    "probes": ProbeRow,
    "images": ImageRow,
    "outcomes": OutcomeRow,
    "spans": SpanRow,
    "latencies": LatencyRow,
}
"""Every table by name; its file is `NAME.arrows`."""

NAME_OF: Mapping[type[Any], str] = {row: name for name, row in TABLES.items()}


def columns(row: type[Any]) -> dict[str, Column]:
    """The columns of a table, in order."""
    hints = get_type_hints(row, include_extras=True)
    return {name: hints[name].__metadata__[0] for name in row._fields}

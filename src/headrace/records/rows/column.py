"""How a field of a row is stored, and what it means."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated


@dataclass(frozen=True, slots=True)
class Column:
    """How one field of a row is stored, and what it means."""

    kind: str
    """int16, int32, int64, float32, float64, bool or text."""
    says: str


def int16(says: str) -> Column:
    return Column("int16", says)


def int32(says: str) -> Column:
    return Column("int32", says)


def int64(says: str) -> Column:
    return Column("int64", says)


def float32(says: str) -> Column:
    return Column("float32", says)


def float64(says: str) -> Column:
    return Column("float64", says)


def boolean(says: str) -> Column:
    return Column("bool", says)


def text(says: str) -> Column:
    return Column("text", says)


Time = Annotated[float, float64("End of the window, in seconds since the capture began.")]
Window = Annotated[float, float32("Seconds that the row covers; 0 for a reading of one moment.")]
Pid = Annotated[int, int32("Process, as this machine's host or container numbers it.")]
Tid = Annotated[int, int32("Thread; the process's own number for its main thread.")]
Device = Annotated[int, int16("Number of the GPU, as NVML counts them.")]

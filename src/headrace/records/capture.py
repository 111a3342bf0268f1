"""What a capture says of itself beside its tables: the manifest, the notes, the end."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

FORMAT = 1
"""Raised when a reader of the last one would misread a new capture; new tables and columns alone do not raise it."""


@dataclass(frozen=True, slots=True)
class Unseen:
    """Something a probe could not see."""

    probe: str
    what: str
    """What is missing, as in `pressure of cgroup /a/b`."""
    why: str
    """And why, as in `hidden in this container`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """The head of a capture, written before anything else."""

    format: int = FORMAT
    headrace: str
    """Version of the writer."""
    made_by: str
    """The verb: record, load, isolate."""
    began_wall_s: float
    """Seconds since the epoch when the capture's time was 0."""
    began_monotonic_s: float
    """The machine's monotonic clock (CLOCK_MONOTONIC) at that moment: captures of one boot share it."""
    boot_id: str | None
    machine: Mapping[str, Any] = field(default_factory=dict)
    """Facts: cores, memory, kernel, GPUs."""
    target: Mapping[str, Any] = field(default_factory=dict)
    """What was watched or asked."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """How: rates, limits, the load's pattern."""
    seed: int | None = None
    commit: str | None = None
    emulated: bool = False
    """An emulated accelerator took part."""


@dataclass(frozen=True, slots=True)
class Note:
    """Something that happened: a gap, a change, a phase, a thing unseen, a remark."""

    t_s: float
    kind: str
    """gap, phase, change, unseen, clock, remark."""
    says: str
    data: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class End:
    """Written last; a capture without one was cut."""

    t_s: float
    how: str
    """finished, interrupted, or the sentence of an error."""
    summary: Mapping[str, Any] = field(default_factory=dict)

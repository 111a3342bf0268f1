"""What a probe is."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Protocol, TypeAlias

from headrace.records.capture import Unseen

Row: TypeAlias = tuple[Any, ...]
"""A row of one of `records.tables.TABLES`."""


class Probe(Protocol):
    """Reads one source. Called from one thread, again and again, about every `period_s` seconds.

    The first reading of a running total gives no row: there is nothing to compare it with. What cannot be read is left out, told by
    `unseen`, and never raised.
    """

    name: str
    period_s: float

    def read(self, now_s: float) -> Iterable[Row]:
        """Rows for the time since the last call, up to `now_s` on the capture's clock."""
        ...

    def unseen(self) -> Sequence[Unseen]:
        """What could not be seen so far, and why. May grow."""
        ...

    def close(self) -> None:
        """Gives files and handles back."""
        ...


class Watched(Protocol):
    """Which processes are watched. Kept up to date by somebody else."""

    @property
    def pids(self) -> frozenset[int]: ...

"""The bounds of a load run."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields

from headrace.errors import UsageError


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Raises UsageError for a limit that is not a positive number."""

    connections: int = 1000
    """Open at a time. Requests past them wait, are sent late, and are counted. A service with a short accept queue drops the first
    packet of a connection now and then, which costs the client 1 s: real clients see that too."""
    timeout_s: float = 10.0
    """From the intended time; noticed up to 0.02 s later."""
    grace_s: float = 10.0
    """How long requests still under way are waited for when no more are intended. Below `timeout_s`, slow answers are lost."""
    late_after_s: float = 0.010
    """A request sent later than this after its intended time was late. An order of magnitude below the latency of an image model
    behind a network, and one above the timers of an operating system that is not in trouble."""
    answer_max_bytes: int = 64 * 1024 * 1024
    """Of an answer's body."""

    def __post_init__(self) -> None:
        for limit in fields(self):
            value = getattr(self, limit.name)
            if not math.isfinite(value) or value <= 0:
                raise UsageError(
                    f"the limit {limit.name} of a load run must be a positive number, not {value}"
                )

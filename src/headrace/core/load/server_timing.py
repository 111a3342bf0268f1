"""Reading `Server-Timing` (W3C Server Timing, 2023): where a service says that a request's time went."""

from __future__ import annotations

import re
from typing import NamedTuple

_ENTRIES_MAX = 32
_NAME_MAX = 64
_QUOTED = re.compile(r'"(?:[^"\\]|\\.)*"')
_DURATION_MAX_MS = 2_000_000.0
"""33 minutes; more is no duration of a request, and would not fit the capture's column."""


class StageTime(NamedTuple):
    stage: str
    wait_us: int
    service_us: int


def stage_times(header: str) -> list[StageTime]:
    """`decode-wait;dur=1.5, decode;dur=8, infer;dur=20` -> two stages, in order. A name without `-wait` is service.

    Entries without a sane duration are left out, and so is what follows the 32nd entry: foreign services may write anything here.
    """
    header = _QUOTED.sub(lambda text: text[0].replace(",", " ").replace(";", " "), header)
    times: dict[str, list[float]] = {}
    for entry in header.split(",", _ENTRIES_MAX)[:_ENTRIES_MAX]:
        name, *parameters = (part.strip() for part in entry.split(";"))
        duration_ms = _duration_ms(parameters)
        stage, is_wait = name.removesuffix("-wait"), name.endswith("-wait")
        if duration_ms is not None and stage and len(name) <= _NAME_MAX:
            times.setdefault(stage, [0.0, 0.0])[0 if is_wait else 1] += duration_ms
    return [
        StageTime(stage, _microseconds(wait), _microseconds(service))
        for stage, (wait, service) in times.items()
    ]


def _microseconds(duration_ms: float) -> int:
    return round(min(duration_ms, _DURATION_MAX_MS) * 1e3)


def _duration_ms(parameters: list[str]) -> float | None:
    for parameter in parameters:
        key, _, value = parameter.partition("=")
        if key.strip().lower() == "dur":
            try:
                duration_ms = float(value.strip().strip('"'))
            except ValueError:
                return None
            return duration_ms if 0.0 <= duration_ms <= _DURATION_MAX_MS else None
    return None

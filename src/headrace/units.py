"""Reading and writing quantities with units, the same in flags, files and reports."""

from __future__ import annotations

import re

_BYTES = {"": 1, "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "kib": 2**10, "mib": 2**20, "gib": 2**30}
_SECONDS = {"us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_QUANTITY = re.compile(r"\s*(?P<number>[0-9]+(?:\.[0-9]*)?|\.[0-9]+)\s*(?P<unit>[a-zA-Zµ]*)\s*")


def parse_bytes(text: str) -> int:
    """`64MiB` -> 67108864. No unit means bytes. Raises ValueError that names the text and the units."""
    return int(_parse(text, _BYTES, "16MiB", default_unit=""))


def parse_duration_s(text: str) -> float:
    """`250ms` -> 0.25. A unit is required, so that nobody mixes seconds and milliseconds. Raises ValueError."""
    return _parse(text, _SECONDS, "250ms", default_unit=None)


def _parse(
    text: str, units: dict[str, float] | dict[str, int], example: str, default_unit: str | None
) -> float:
    match = _QUANTITY.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not a quantity; write it like {example}")
    unit = match["unit"].lower() or default_unit
    if unit is None or unit not in units:
        known = ", ".join(name for name in units if name)
        raise ValueError(f"{text!r} needs one of the units {known}, as in {example}")
    return float(match["number"]) * units[unit]


def format_bytes(count: float) -> str:
    """1536 -> '1.5 KiB'."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(count) < 1024 or unit == "GiB":
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    raise AssertionError("unreachable")


def format_rate(rate: float, digits: int = 3) -> str:
    """61.2, 1,250; '-' for NaN. From 1,000 on all digits before the point."""
    if rate != rate:
        return "-"
    return f"{rate:,.0f}" if rate >= 1000 else f"{rate:.{digits}g}"


def per_s(rate: float) -> str:
    """61.2/s."""
    return f"{format_rate(rate)}/s"


def format_ms(seconds: float) -> str:
    """0.0123 -> '12.3 ms'."""
    return f"{seconds * 1e3:.3g} ms" if seconds < 0.1 else f"{seconds * 1e3:.0f} ms"

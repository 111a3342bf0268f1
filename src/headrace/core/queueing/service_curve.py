"""How long an accelerator takes for a batch, as data: parsed from text, asked for seconds. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import pairwise

from headrace.errors import SettingError
from headrace.units import parse_duration_s

GRAMMAR = (
    "write emulated:BASE+PER_IMAGE like emulated:2ms+5ms (or 2+5, in milliseconds), or a table by batch size like "
    "emulated:1=12ms,4=40ms,8=60ms; options follow after semicolons: ;launch=0.1ms (host time before each batch) "
    "and ;copy=1ms or ;copy=1ms+0.2ms (transfer time, overlapping the computing of another batch)"
)
LARGEST_BATCH = 65_536
LONGEST_S = 3600.0
_MILLISECONDS = re.compile(r"[0-9]+(\.[0-9]*)?|\.[0-9]+")


@dataclass(frozen=True, slots=True)
class ServiceCurve:
    """Service time by batch size: straight lines between the points, flat below the first, a straight line above the last."""

    points: tuple[tuple[int, float], ...]
    """(batch size, seconds), batch sizes rising from 1 or more, seconds at least 0."""
    slope_s: float
    """Seconds for each image more than the last point's, at least 0."""

    def seconds(self, batch: int) -> float:
        """Seconds for a batch of `batch` >= 1 images. Raises ValueError below 1."""
        if batch < 1:
            raise ValueError(f"a batch has at least one image, not {batch}")
        last_size, last_s = self.points[-1]
        if batch >= last_size:
            return last_s + (batch - last_size) * self.slope_s
        for (small, small_s), (large, large_s) in pairwise(self.points):
            if small <= batch <= large:
                return small_s + (large_s - small_s) * (batch - small) / (large - small)
        return self.points[0][1]


NO_TIME = ServiceCurve(((1, 0.0),), 0.0)


@dataclass(frozen=True, slots=True)
class EmulatedSpec:
    """An emulated accelerator as data."""

    compute: ServiceCurve
    copy: ServiceCurve = NO_TIME
    launch_s: float = 0.0
    """Seconds the host spends to launch one batch, before the device sees it."""


def parse_curve(text: str) -> ServiceCurve:
    """`2ms+5ms`, `2+5` (milliseconds) or `1=12ms,4=40ms`. Raises SettingError that quotes the part that is wrong."""
    if "=" in text:
        return _parse_table(text)
    parts = text.split("+")
    if len(parts) != 2:
        raise SettingError(f"{text!r} is no service curve; {GRAMMAR}")
    base_s, each_s = (_duration_s(part, text) for part in parts)
    return ServiceCurve(((1, base_s + each_s),), each_s)


def parse_emulated(text: str) -> EmulatedSpec:
    """The whole accelerator setting, with or without its `emulated:`. Raises SettingError that quotes the part that is wrong."""
    curve, *options = text.removeprefix("emulated:").split(";")
    launch_s, copy = 0.0, NO_TIME
    seen: set[str] = set()
    for option in options:
        name, equals, value = (part.strip() for part in option.partition("="))
        if not equals or name not in ("launch", "copy") or name in seen:
            raise SettingError(f"{option!r} in {text!r} is no option, or is there twice; {GRAMMAR}")
        seen.add(name)
        if name == "launch":
            launch_s = _duration_s(value, text)
        else:
            copy = parse_curve(value) if "+" in value else ServiceCurve(((1, _duration_s(value, text)),), 0.0)
    compute = parse_curve(curve.strip())
    if compute.points[0][1] <= 0.0:
        raise SettingError(
            f"{text!r} computes a batch in no time; give a base or a time for each image above 0"
        )
    return EmulatedSpec(compute=compute, copy=copy, launch_s=launch_s)


def _parse_table(text: str) -> ServiceCurve:
    points = []
    for entry in text.split(","):
        size, equals, duration = entry.partition("=")
        if not equals or not size.strip().isascii() or not size.strip().isdigit():
            raise SettingError(f"{entry!r} in {text!r} is no BATCH=TIME; {GRAMMAR}")
        points.append((int(size[:12]), _duration_s(duration, text)))
    if points[0][0] < 1 or points[-1][0] > LARGEST_BATCH:
        raise SettingError(f"{text!r} has a batch size outside 1 to {LARGEST_BATCH}; {GRAMMAR}")
    if any(small >= large for (small, _), (large, _) in pairwise(points)):
        raise SettingError(
            f"the batch sizes in {text!r} do not rise; list them from small to large, each once"
        )
    return ServiceCurve(tuple(points), _last_slope_s(points))


def _last_slope_s(points: list[tuple[int, float]]) -> float:
    """One point: time in proportion to size. More: the last two points' slope, never falling."""
    size, seconds = points[-1]
    if len(points) == 1:
        return seconds / size
    before, before_s = points[-2]
    return max(0.0, (seconds - before_s) / (size - before))


def _duration_s(part: str, text: str) -> float:
    part = part.strip()
    try:
        seconds = float(part) * 1e-3 if _MILLISECONDS.fullmatch(part) else parse_duration_s(part)
    except ValueError:
        raise SettingError(f"{part!r} in {text!r} is no time; {GRAMMAR}") from None
    if not seconds <= LONGEST_S:
        raise SettingError(f"{part!r} in {text!r} is longer than an hour; {GRAMMAR}")
    return seconds

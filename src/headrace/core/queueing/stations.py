"""Stages as bare figures: a service time, workers, and how many images one of them takes in a go. Pure."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass

from headrace.core.queueing.service_curve import ServiceCurve, parse_curve
from headrace.errors import SettingError, UsageError
from headrace.units import parse_duration_s

STAGE_GRAMMAR = (
    "write NAME=TIME/WORKERS like decode=250ms/2; for batches NAME=TIME/WORKERSxIMAGES like model=40ms/1x8, the time being "
    "that of a whole batch, or NAME=BASE+PER_IMAGE/WORKERSxIMAGES like model=2ms+5ms/1x8"
)
MOST_WORKERS = 1_000_000
ON_DEVICE = frozenset({"model", "infer", "inference", "gpu", "device", "accelerator"})
"""Stages of these names use no core of the host, unless `@cpu` follows; all others do, unless `@device` follows."""
_SPEC = re.compile(
    r"(?P<name>[A-Za-z][A-Za-z0-9_.-]{0,39})=(?P<time>[^/@]*)/(?P<workers>[^x@/]*)(?:x(?P<batch>[^@/]*))?(?:@(?P<where>.*))?"
)
_RATE = re.compile(r"(?P<count>[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:/(?P<unit>s|min|h))?")
_UNIT_S = {None: 1.0, "s": 1.0, "min": 60.0, "h": 3600.0}


@dataclass(frozen=True, slots=True)
class Station:
    """One stage: its workers are alike and each takes up to `batch` images in a go."""

    name: str
    alone_s: float
    """Seconds of one image that is alone in its go."""
    go_s: float
    """Seconds of a full go; `alone_s` where `batch` is 1."""
    workers: int | None
    """None: as many as there are images, so that nobody queues (a network, a client's pause)."""
    batch: float = 1.0
    """Images in a go; a measured mean need not be whole."""
    on_device: bool = False
    """It takes the accelerator's time and none of the host's cores."""

    @property
    def demand_s(self) -> float:
        """Seconds for which one image occupies the whole stage: 1 / demand is the most it can do a second. 0 without a queue."""
        return 0.0 if self.workers is None else self.go_s / (self.batch * self.workers)

    @property
    def rate_per_s(self) -> float:
        """The most images a second, by the utilisation law; infinite without a queue."""
        return math.inf if self.workers is None else 1.0 / self.demand_s

    @property
    def work_s(self) -> float:
        """Seconds of one worker for one image of a full go."""
        return self.go_s / self.batch


def parse_station(text: str) -> Station:
    """`decode=250ms/2`, `model=40ms/1x8`, `model=2ms+5ms/1x8`, `tokenise=3ms/4@cpu`. Raises UsageError that names what is wrong."""
    found = _SPEC.fullmatch(text.strip())
    if found is None:
        raise UsageError(f"--stage {text!r} cannot be read; {STAGE_GRAMMAR}")
    name = found["name"]
    workers = _whole(found["workers"], f"{name}: workers", text)
    batch = _whole(found["batch"], f"{name}: images in a batch", text) if found["batch"] is not None else 1
    if found["where"] not in (None, "cpu", "device"):
        raise UsageError(
            f"--stage {text!r}: @{found['where']} is neither @cpu nor @device (what its work takes up)"
        )
    on_device = found["where"] == "device" if found["where"] else name.lower() in ON_DEVICE
    curve = _curve(found["time"].strip(), text)
    alone_s, go_s = curve.seconds(1), curve.seconds(batch)
    if go_s <= 0.0:
        raise UsageError(f"--stage {text!r}: {name} takes no time; give a time above 0")
    return Station(name, min(alone_s, go_s), go_s, workers, float(batch), on_device)


def parse_stations(texts: Iterable[str]) -> tuple[Station, ...]:
    """Each of `texts`. Raises UsageError, also for a name that is there twice."""
    stations = tuple(parse_station(text) for text in texts)
    names = [station.name for station in stations]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise UsageError(
            f"--stage {twice} is given twice; one stage with more workers is written {twice}=TIME/WORKERS"
        )
    return stations


def parse_rate_per_s(text: str) -> float:
    """`20/s`, `20`, `1200/min`, `5000/h` -> requests a second. Raises ValueError that names the text."""
    found = _RATE.fullmatch(text.strip())
    if found is None or not 0.0 < float(found["count"]) < 1e9:
        raise ValueError(f"{text!r} is no rate above 0; write it like 20/s, 1200/min or 5000/h")
    return float(found["count"]) / _UNIT_S[found["unit"]]


def _curve(text: str, spec: str) -> ServiceCurve:
    try:
        if "+" in text or "=" in text:
            return parse_curve(text)
        return ServiceCurve(((1, parse_duration_s(text)),), 0.0)
    except SettingError:
        raise UsageError(f"--stage {spec!r}: {text!r} is no time of a batch; {STAGE_GRAMMAR}") from None
    except ValueError as problem:
        raise UsageError(f"--stage {spec!r}: {problem}") from None


def _whole(text: str, what: str, spec: str) -> int:
    if not text.isascii() or not text.isdecimal() or not 1 <= int(text[:9]) <= MOST_WORKERS:
        raise UsageError(f"--stage {spec!r}: {what} must be a whole number from 1 up, not {text!r}")
    return int(text[:9])

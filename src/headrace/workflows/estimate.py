"""`headrace estimate`: from a few figures, who waits for whom, what can be had at most, and what would help (R4)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from headrace.core.queueing.laws import (
    CORES,
    Ceiling,
    Chain,
    Closed,
    Offered,
    ceilings,
    closed,
    offered,
)
from headrace.core.queueing.stations import Station
from headrace.errors import UsageError
from headrace.records.rows.service import DeviceRow, StageRow
from headrace.records.timeline import STAGES
from headrace.store.captures.reader import Capture
from headrace.units import per_s


@dataclass(frozen=True, slots=True)
class Asked:
    """The figures that an estimate starts from."""

    chain: Chain
    clients: int | None = None
    """Clients that wait for their answers."""
    think_s: float = 0.0
    """What each pauses between an answer and its next request."""
    rate_per_s: float | None = None
    """Requests that come whether or not earlier ones are answered."""
    waiting: int = 64
    """A queue of interest: when is it that long?"""


@dataclass(frozen=True, slots=True)
class Busy:
    """One resource when the slowest runs flat out."""

    name: str
    workers: int | None
    service_s: float
    """Of a full go."""
    batch: float
    rate_per_s: float
    utilisation: float
    measured: float | None
    """The share of its time it was busy in the capture."""


@dataclass(frozen=True, slots=True)
class Measured:
    """What a capture saw, to hold the bounds against."""

    rate_per_s: float
    inside: float
    """Requests inside on average, by Little's law from the stages' times."""
    latency_s: float
    busy: dict[str, float]
    """By stage."""
    notes: tuple[str, ...] = ()
    """What the figures hide."""
    damage: tuple[str, ...] = ()
    emulated: bool = False


@dataclass(frozen=True, slots=True)
class Estimate:
    """The answer."""

    sentence: str
    limit_per_s: float
    limits: tuple[str, ...]
    stages: tuple[Busy, ...]
    closed: Closed | None
    offered: tuple[Offered, ...]
    full_after_s: float | None
    """When `waiting` requests wait before the stage whose queue grows fastest; None when none grows."""
    ceilings: tuple[Ceiling, ...]
    asked: Asked
    measured: Measured | None

    def as_dict(self) -> dict[str, Any]:
        return {"format": 1, **asdict(self)}


def estimate(asked: Asked, measured: Measured | None = None) -> Estimate:
    """Raises UsageError when no stage has a queue."""
    chain = asked.chain
    if not chain.resources:
        raise UsageError(
            "no stage has a number of workers, so nothing limits anything; give one with --stage"
        )
    busy = zip(chain.resources, chain.utilisation(chain.limit_per_s), strict=True)
    seen = measured.busy if measured else {}
    flows = offered(chain, asked.rate_per_s) if asked.rate_per_s else ()
    grows = max((flow.grows_per_s for flow in flows), default=0.0)
    return Estimate(
        sentence=_sentence(chain),
        limit_per_s=chain.limit_per_s,
        limits=tuple(resource.name for resource in chain.limits),
        stages=tuple(_busy(resource, share, chain, seen) for resource, share in busy),
        closed=closed(chain, asked.clients, asked.think_s) if asked.clients else None,
        offered=flows,
        full_after_s=asked.waiting / grows if grows > 0.0 else None,
        ceilings=ceilings(chain, asked.clients, asked.think_s),
        asked=asked,
        measured=measured,
    )


def _busy(resource: Station, share: float, chain: Chain, seen: dict[str, float]) -> Busy:
    if resource.name == CORES and chain.cores is not None:
        return Busy(
            CORES, math.ceil(chain.cores), resource.go_s * chain.cores, 1.0, resource.rate_per_s, share, None
        )
    return Busy(
        resource.name,
        resource.workers,
        resource.go_s,
        resource.batch,
        resource.rate_per_s,
        share,
        seen.get(resource.name),
    )


def _sentence(chain: Chain) -> str:
    limits = [resource.name for resource in chain.limits]
    shares = zip(chain.resources, chain.utilisation(chain.limit_per_s), strict=True)
    others = [
        f"{resource.name} (could do {per_s(resource.rate_per_s)}, is {share:.0%} busy)"
        for resource, share in shares
        if resource.name not in limits
    ]
    names = listed(["the cores" if name == CORES else name for name in limits])
    head = f"{names} {'is' if len(limits) == 1 and limits[0] != CORES else 'are'} the limit: {per_s(chain.limit_per_s)}"
    return f"{head}; waiting for that: {listed(others)}." if others else f"{head}."


def listed(names: Sequence[str]) -> str:
    """a, b and c."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


# --- from a capture ------------------------------------------------------------------------------------------------------------


def from_capture(
    folder: Path, instead: Sequence[Station] = (), cores: float | None = None
) -> tuple[Chain, Measured]:
    """The stages of a headrace server as its capture has them, those named in `instead` replaced.

    A stage's service time is the mean of the capture, with whatever shared the cores then. The accelerator counts as one worker whose
    go is the busy time of a launch. Raises CaptureError, and UsageError when there are no stages or none of a name.
    """
    capture = Capture.open(folder)
    rows = capture.columns(StageRow)
    names = sorted({str(name) for name in rows["stage"] if name}, key=_order)
    stages = [stage for name in names if (stage := _stage(rows, name)) is not None]
    if not stages:
        raise UsageError(
            f"{folder} holds no stages of a headrace server (record one with --service URL); give them with --stage"
        )
    devices = capture.columns(DeviceRow)
    device = _device(devices)
    stations, busy = [], {}
    for stage in stages:
        station, share = device if device and stage.station.name == "infer" else (stage.station, stage.busy)
        stations.append(station)
        if share is not None:
            busy[station.name] = share
    rate = max(stage.rate_per_s for stage in stages)
    inside = sum(stage.inside for stage in stages)
    emulated = capture.manifest.emulated or bool(np.nansum(np.asarray(devices["emulated"], np.float64)))
    measured = Measured(rate, inside, inside / rate, busy, _notes(device), capture.damage, emulated)
    return Chain(_replaced(tuple(stations), instead, folder), cores), measured


def _notes(device: tuple[Station, float | None] | None) -> tuple[str, ...]:
    contended = "Service times are as measured, with whatever else used the cores then."
    if device is None:
        return (contended,)
    return (
        contended,
        f"The accelerator is counted at its measured {device[0].batch:.3g} images a launch. Were more images there, batches could be "
        "fuller and it could do more: then the others win more than is shown.",
    )


def _order(name: str) -> tuple[int, str]:
    """The order of a request's way; stages of a later version last."""
    return (STAGES.index(name) if name in STAGES else len(STAGES)), name


@dataclass(frozen=True, slots=True)
class _Stage:
    station: Station
    rate_per_s: float
    inside: float
    busy: float | None


def _stage(rows: dict[str, Any], name: str) -> _Stage | None:
    """None when nothing left the stage, or no time passed."""
    mine = rows["stage"] == name
    seconds = float(np.nansum(rows["window_s"][mine]))
    done = float(np.nansum(rows["done"][mine]))
    wait_s, service_s = (float(np.nansum(rows[column][mine])) / 1e6 for column in ("wait_us", "service_us"))
    if seconds <= 0.0 or done <= 0.0:
        return None
    known = rows["workers"][mine]
    known = known[~np.isnan(np.asarray(known, np.float64))]
    workers = int(known[-1]) if len(known) and known[-1] >= 1 and service_s > 0.0 else None
    mean_s = service_s / done
    busy = min(1.0, service_s / (seconds * workers)) if workers else None
    return _Stage(
        Station(name, mean_s, mean_s, workers, 1.0, name == "infer"),
        done / seconds,
        (wait_s + service_s) / seconds,
        busy,
    )


def _device(rows: dict[str, Any]) -> tuple[Station, float | None] | None:
    busy_s = float(np.nansum(rows["busy_us"])) / 1e6
    launches, images = (float(np.nansum(rows[column])) for column in ("launches", "images"))
    seconds = float(np.nansum(rows["window_s"]))
    if busy_s <= 0.0 or launches <= 0.0 or images <= 0.0 or seconds <= 0.0:
        return None
    on_device = rows["device"][-1] != "cpu"
    go_s = busy_s / launches
    return Station("infer", go_s, go_s, 1, images / launches, on_device), min(1.0, busy_s / seconds)


def _replaced(stations: tuple[Station, ...], instead: Sequence[Station], folder: Path) -> tuple[Station, ...]:
    names = [station.name for station in stations]
    for other in instead:
        if other.name not in names:
            raise UsageError(f"{folder} has no stage {other.name}; it has {listed(names)}")
    by_name = {other.name: other for other in instead}
    return tuple(by_name.get(station.name, station) for station in stations)

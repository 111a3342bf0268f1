"""The steps of our own chain: what each contains, and how it is measured."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

from headrace.core.queueing.service_curve import NO_TIME, parse_emulated
from headrace.serve.engine.engine import Engine
from headrace.workflows.isolation.parts import Measure, Parts


@dataclass(frozen=True, slots=True)
class Link:
    """One step, ready to be measured."""

    link: str
    contains: str
    measure: Measure | None = None
    """None: there is nothing to measure,"""
    absent: str = ""
    """and this is why."""


def links_of(parts: Parts, http: Measure) -> tuple[Link, ...]:
    """From the model outwards, in the order in which the plan does the work."""
    return _staged(parts, http) if parts.subject.staged else _legacy(parts, http)


def _staged(parts: Parts, http: Measure) -> tuple[Link, ...]:
    stages = {stage.name: stage.workers for stage in parts.subject.plan.stages}
    front = (
        Link("normalise", "", absent="the emulated device takes no longer with it")
        if parts.runner.emulated
        else Link("normalise", "uint8 pixels, normalised in the graph", parts.with_front())
    )
    resizing = cast(Engine, parts.resizing)
    return (
        _model(parts),
        front,
        _copy(parts),
        Link(
            "batch",
            "prepared images one by one through queues into batches",
            parts.through(parts.engine, parts.prepared()),
        ),
        Link(
            "resize",
            f"decoded pictures, {threads(resizing_workers(resizing))}",
            parts.through(resizing, parts.decoded()),
        ),
        Link(
            "decode",
            f"encoded images in memory, {threads(stages['decode'])}",
            parts.through(parts.engine, parts.encoded()),
        ),
        *_outside(parts, http),
    )


def _legacy(parts: Parts, http: Measure) -> tuple[Link, ...]:
    return (
        _model(parts),
        _copy(parts),
        Link(
            "normalise",
            "prepared images, normalised on one thread, into batches",
            parts.through(parts.engine, parts.prepared()),
        ),
        Link("resize", "", absent="the legacy path resizes and decodes in one go: see decode"),
        Link(
            "decode",
            "encoded images in memory: full decode and resize on the same thread",
            parts.through(parts.engine, parts.encoded()),
        ),
        *_outside(parts, http),
    )


def _model(parts: Parts) -> Link:
    where = "in the host's memory" if parts.bare.device == "cpu" else "on the device"
    text = (
        f"batches of {parts.batch} that lie ready {where}, {parts.subject.settings.batch_in_flight} in flight"
    )
    return Link("model", text, parts.model_alone(parts.batch))


def _copy(parts: Parts) -> Link:
    if parts.runner.emulated and parse_emulated(parts.subject.settings.accelerator).copy == NO_TIME:
        return Link("copy", "", absent="the emulated device was given no copy time (;copy=TIME)")
    if parts.runner.device == "cpu":
        return Link("copy", "", absent="no copy: the model runs in the host's memory")
    return Link("copy", "each batch copied from the host's memory, and its answers back", parts.with_copy())


def _outside(parts: Parts, http: Measure) -> tuple[Link, Link]:
    fetch = "each image read from its file, which the system may have in memory"
    return (
        Link("fetch", fetch, parts.through(parts.engine, parts.fetched())),
        Link("http", "the whole server in a process of its own, asked over the loopback", http),
    )


def resizing_workers(engine: Engine) -> int:
    """Threads that resize in `engine`."""
    return next(stage.workers for stage in engine.plan.stages if stage.name == "resize")


def threads(count: int) -> str:
    return f"{count} thread{'' if count == 1 else 's'}"

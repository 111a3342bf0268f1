"""The plan of stages: which operations run where, on how many threads. Data that server, isolation test and simulator share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from headrace.records.settings import Settings

Where = Literal["cpu", "accelerator"]


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation on one image, and what could be done about it (R16)."""

    name: str
    where: Where
    cacheable: bool
    """Its result depends on the image and the recipe only."""
    merges_with: str = ""
    """The operation it is, or could be, fused with."""
    movable: str = ""
    """Where else it could run."""


@dataclass(frozen=True, slots=True)
class StagePlan:
    """One pool of threads and what each of them does to an image."""

    name: str
    workers: int
    operations: tuple[Operation, ...]


@dataclass(frozen=True, slots=True)
class Plan:
    """Every stage between the request's bytes and the prediction, in order."""

    path: str
    stages: tuple[StagePlan, ...]


_READ_HEADER = Operation("read header, check limits", "cpu", True)
_SCALED_DECODE = Operation(
    "decode at reduced DCT scale", "cpu", True, "resize (part of the reduction)", "hardware JPEG decoder"
)
_FULL_DECODE = Operation("decode in full", "cpu", True, "", "scaled decode; hardware JPEG decoder")
_RESIZE = Operation("resize, antialiased", "cpu", True, "", "accelerator")
_TURN = Operation("orientation, channel order, write into batch", "cpu", True, "resize")
_COLOUR = Operation("colour conversion", "cpu", True, "decode")
_NORMALISE_CPU = Operation("float normalise", "cpu", True, "", "accelerator, inside the model graph")
_LAYOUT_CPU = Operation(
    "transpose to the model's layout", "cpu", True, "float normalise", "accelerator, inside the model graph"
)
_NORMALISE = Operation("layout, cast, normalise", "accelerator", False, "model")
_MODEL = Operation("model", "accelerator", True)


def model_threads(settings: Settings, cores: int) -> int:
    """Threads of one model run on the CPU: the batches in flight share the cores instead of each claiming all of them."""
    return settings.model_threads or max(1, cores // settings.batch_in_flight)


def make_plan(settings: Settings, cores: int) -> Plan:
    """The stages that `settings` ask for on `cores` usable cores."""
    infer = settings.batch_in_flight
    if settings.prepare_path == "legacy":
        prepare = (_READ_HEADER, _FULL_DECODE, _RESIZE, _COLOUR, _NORMALISE_CPU, _LAYOUT_CPU)
        return Plan("legacy", (StagePlan("decode", 1, prepare), StagePlan("infer", infer, (_MODEL,))))
    decoders = settings.decode_workers or cores
    resizers = settings.resize_workers or -(-decoders // 4)
    decode = _SCALED_DECODE if settings.decode_fidelity == "fast" else _FULL_DECODE
    return Plan(
        "staged",
        (
            StagePlan("decode", decoders, (_READ_HEADER, decode)),
            StagePlan("resize", resizers, (_RESIZE, _TURN)),
            StagePlan("infer", infer, (_NORMALISE, _MODEL)),
        ),
    )

"""How far headrace's pixels, and the model's answers, are from those of the training pipeline: on the user's own images.

The reference is a full decode and one antialiased Pillow resize. Both fidelities are held against it. One image is in memory at
a time; what is kept of it is a row of figures and a histogram that is added up.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from headrace.core.image import reference
from headrace.core.image.canvas import FreshCanvas
from headrace.core.image.compare import Difference, Histogram, histogram, summarise
from headrace.core.image.decode import decode
from headrace.core.image.decode_plan import Limits, plan_decode
from headrace.core.image.header import read_header
from headrace.core.image.resize import Resizer
from headrace.errors import RequestError
from headrace.models.opening import open_runner
from headrace.models.runner import Runner
from headrace.records.image import AnyArray, Encoded, Header, Uint8Array
from headrace.records.recipe import RecipeFile
from headrace.records.settings import Settings
from headrace.store.recipe_files import load_recipe

WAYS = ("fast", "exact")


@dataclass(frozen=True, slots=True)
class OutputChange:
    """One output of the model, against the same output for the reference pixels."""

    output: str
    relative_l2: float
    """Length of the change by the length of the reference output; 0 when both are zero."""
    mean_abs: float
    same_top1: bool | None
    """Whether the first answer is the same; None when the model does not classify."""


@dataclass(frozen=True, slots=True)
class WayParity:
    """One image prepared one way."""

    pixels: Difference
    outputs: tuple[OutputChange, ...]


@dataclass(frozen=True, slots=True)
class ImageParity:
    """One image that could be read. `eighths`/8 is the share of each side that fast decoded."""

    name: str
    format: str
    width: int
    height: int
    eighths: int
    fast: WayParity
    exact: WayParity


@dataclass(frozen=True, slots=True)
class Unreadable:
    """An image that could not be compared."""

    name: str
    code: str
    message: str


@dataclass(frozen=True, slots=True)
class OutputTotal:
    """One output over all images."""

    output: str
    mean_relative_l2: float
    mean_abs: float
    top1_agreement: float | None
    """Share of the images whose first answer is the same."""


@dataclass(frozen=True, slots=True)
class WayTotal:
    """One way over all images; the pixels of all of them are pooled."""

    pixels: Difference
    worst_image: str
    worst_mean: float
    outputs: tuple[OutputTotal, ...]


@dataclass(frozen=True, slots=True)
class ParityReport:
    """What `headrace parity` found. The totals are None when no image could be read."""

    recipe: str
    recipe_digest: str
    model: str
    device: str
    images: tuple[ImageParity, ...]
    unreadable: tuple[Unreadable, ...]
    fast: WayTotal | None
    exact: WayTotal | None
    notes: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        return {"format": 1, **asdict(self)}

    def as_text(self) -> str:
        return "\n".join(_lines(self))


def parity(
    model: Path | None,
    recipe_file: Path,
    images: Sequence[Path],
    *,
    skip_scans: bool = True,
    accelerator: str = "cpu",
    threads: int = 2,
    limits: Limits | None = None,
) -> ParityReport:
    """Compares both fidelities with the reference on `images`; with a model, its outputs, too.

    Images that cannot be read are listed in the report. Raises RecipeError, ModelError or SettingError.
    """
    file = load_recipe(recipe_file)
    with _runner(model, file, accelerator, threads) as runner:
        return compare_images(file, images, runner, skip_scans=skip_scans, limits=limits or default_limits())


def default_limits() -> Limits:
    settings = Settings()
    return Limits(settings.limits_max_pixels, settings.limits_max_decode_bytes)


@contextmanager
def _runner(model: Path | None, file: RecipeFile, accelerator: str, threads: int) -> Iterator[Runner | None]:
    if model is None:
        yield None
        return
    with closing(open_runner(model, file, accelerator=accelerator, threads=threads)) as runner:
        yield runner


def compare_images(
    file: RecipeFile, images: Sequence[Path], runner: Runner | None, *, skip_scans: bool, limits: Limits
) -> ParityReport:
    """The comparison itself, with a runner that is open already."""
    comparison = _Comparison(file, runner, skip_scans, limits)
    rows: list[ImageParity] = []
    unreadable: list[Unreadable] = []
    for path in images:
        try:
            rows.append(comparison.row(path))
        except RequestError as problem:
            unreadable.append(Unreadable(str(path), problem.code, str(problem)))
        except OSError as problem:
            unreadable.append(Unreadable(str(path), "unreadable", problem.strerror or str(problem)))
    recipe = file.recipe
    return ParityReport(
        recipe=f"{recipe.width}x{recipe.height} {recipe.fit} {recipe.filter}",
        recipe_digest=recipe.digest,
        model=runner.name if runner else "",
        device=runner.device if runner else "",
        images=tuple(rows),
        unreadable=tuple(unreadable),
        fast=_total([(row.name, row.fast) for row in rows], comparison.pooled["fast"]),
        exact=_total([(row.name, row.exact) for row in rows], comparison.pooled["exact"]),
        notes=_notes(runner),
    )


def _notes(runner: Runner | None) -> tuple[str, ...]:
    if runner is None:
        return ("no model was given: pixels only",)
    if runner.emulated:
        return ("the accelerator is emulated: its outputs say nothing", *runner.notes)
    return runner.notes


class _Comparison:
    def __init__(self, file: RecipeFile, runner: Runner | None, skip_scans: bool, limits: Limits) -> None:
        self._recipe = file.recipe
        self._classifies = file.model.task == "classify"
        self._runner = runner
        self._skip_scans = skip_scans
        self._limits = limits
        self._resizer = Resizer(file.recipe)
        self.pooled: dict[str, Histogram] = {way: np.zeros(256, np.int64) for way in WAYS}

    def row(self, path: Path) -> ImageParity:
        """Nothing is added to the totals unless the image is read in full. Raises RequestError or OSError."""
        encoded = Encoded(path.read_bytes(), str(path))
        header = read_header(encoded.data)
        plan_decode(header, self._recipe, "exact", False, self._limits)
        shape = (1 + len(WAYS), self._recipe.height, self._recipe.width, self._recipe.channels)
        batch = np.zeros(shape, np.uint8)
        batch[0] = reference.prepare(encoded, header, self._recipe)
        eighths = [self._prepare(encoded, header, way, batch[1 + n]) for n, way in enumerate(WAYS)]
        counts = [histogram(batch[1 + n], batch[0]) for n in range(len(WAYS))]
        changes = self._changes(batch)
        for way, count in zip(WAYS, counts, strict=True):
            self.pooled[way] += count
        fast, exact = (WayParity(summarise(count), changes[n]) for n, count in enumerate(counts))
        return ImageParity(str(path), header.format, header.width, header.height, eighths[0], fast, exact)

    def _prepare(self, encoded: Encoded, header: Header, way: str, slot: Uint8Array) -> int:
        plan = plan_decode(header, self._recipe, way, self._skip_scans, self._limits)
        pixels = decode(encoded, header, plan, self._recipe, FreshCanvas)
        try:
            self._resizer.write(pixels, slot)
        finally:
            pixels.release()
        return plan.eighths

    def _changes(self, batch: Uint8Array) -> list[tuple[OutputChange, ...]]:
        if self._runner is None:
            return [() for _ in WAYS]
        outputs = self._runner.run(batch)
        return [
            tuple(_change(name, array[0], array[1 + n], self._classifies) for name, array in outputs.items())
            for n in range(len(WAYS))
        ]


def _change(name: str, expected: AnyArray, got: AnyArray, classifies: bool) -> OutputChange:
    expected, got = np.asarray(expected, np.float64), np.asarray(got, np.float64)
    apart, length = float(np.linalg.norm(got - expected)), float(np.linalg.norm(expected))
    return OutputChange(
        output=name,
        relative_l2=apart / length if length else (0.0 if not apart else float("inf")),
        mean_abs=float(np.mean(np.abs(got - expected))) if got.size else 0.0,
        same_top1=bool(np.argmax(got) == np.argmax(expected)) if classifies and got.size else None,
    )


def _total(rows: list[tuple[str, WayParity]], pooled: Histogram) -> WayTotal | None:
    if not rows:
        return None
    worst = max(rows, key=lambda row: row[1].pixels.mean)
    return WayTotal(
        pixels=summarise(pooled),
        worst_image=worst[0],
        worst_mean=worst[1].pixels.mean,
        outputs=tuple(
            _output_total([way.outputs[position] for _, way in rows])
            for position in range(len(rows[0][1].outputs))
        ),
    )


def _output_total(changes: list[OutputChange]) -> OutputTotal:
    answers = [change.same_top1 for change in changes if change.same_top1 is not None]
    return OutputTotal(
        output=changes[0].output,
        mean_relative_l2=float(np.mean([change.relative_l2 for change in changes])),
        mean_abs=float(np.mean([change.mean_abs for change in changes])),
        top1_agreement=sum(answers) / len(answers) if answers else None,
    )


def _lines(report: ParityReport) -> Iterator[str]:
    yield f"{len(report.images)} images as {report.recipe}, against full decode and antialiased Pillow resize"
    yield "levels of 0..255, the pixels of all images pooled"
    yield ""
    yield f"{'':<6}  {'mean':>6}  {'p99':>4}  {'p99.9':>5}  {'max':>4}  worst image"
    for name, total in (("fast", report.fast), ("exact", report.exact)):
        if total is not None:
            worst = f"{Path(total.worst_image).name} ({total.worst_mean:.2f})"
            yield f"{name:<6}  {_figures(total.pixels)}  {worst}"
    for name, total in (("fast", report.fast), ("exact", report.exact)):
        for output in total.outputs if total is not None else ():
            yield f"{report.model} on {report.device}, {name}: {_output_text(output, len(report.images))}"
    yield ""
    for row in report.images:
        size = f"{row.width}x{row.height} {row.format}, fast at {row.eighths}/8"
        yield f"{_figures(row.fast.pixels)}  {Path(row.name).name}: {size}; exact {row.exact.pixels.mean:.2f}"
    for item in report.unreadable:
        yield f"not compared: {item.name}: {item.code}: {item.message}"
    for note in report.notes:
        yield f"note: {note}"


def _figures(pixels: Difference) -> str:
    return f"{pixels.mean:6.2f}  {pixels.p99:4d}  {pixels.p999:5d}  {pixels.maximum:4d}"


def _output_text(output: OutputTotal, images: int) -> str:
    change = f"{output.output} changes by {100 * output.mean_relative_l2:.2g} % (mean {output.mean_abs:.3g})"
    if output.top1_agreement is None:
        return change
    return f"same first answer for {round(output.top1_agreement * images)} of {images}; {change}"

"""`headrace plan`: the operations of a plan, each with its measured cost on the user's own images (R16)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from headrace.clock import monotonic_s
from headrace.core.image import reference
from headrace.core.image.canvas import FreshCanvas
from headrace.core.image.decode import decode
from headrace.core.image.decode_plan import DecodePlan, Limits, plan_decode
from headrace.core.image.geometry import as_stored
from headrace.core.image.header import read_header
from headrace.core.image.resize import Resizer
from headrace.core.policy.plan import Operation, Plan, make_plan, model_threads
from headrace.errors import RequestError, UsageError
from headrace.models.opening import open_runner
from headrace.models.runner import Runner
from headrace.records.image import Encoded, Header, Pixels
from headrace.records.recipe import Recipe, RecipeFile
from headrace.records.settings import Settings
from headrace.serve.engine.cores import usable_cores
from headrace.serve.engine.pixel_pool import PixelPool

_ROUNDS = 3


@dataclass(frozen=True, slots=True)
class Cost:
    """One row of the table."""

    stage: str
    workers: int
    operation: Operation
    median_ms: float
    """Per image, median over images of the best of three rounds; for the model, its share of a full batch."""
    share: float
    """Of the sum of all operations."""


@dataclass(frozen=True, slots=True)
class PlanReport:
    """The table, and what it was measured on."""

    path: str
    images: int
    refused: tuple[str, ...]
    device: str
    emulated: bool
    costs: tuple[Cost, ...]

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def measure_plan(
    model: Path | None, recipe_file: RecipeFile, images: Sequence[Path], settings: Settings
) -> PlanReport:
    """Times every operation of the plan `settings` ask for. Raises UsageError when no image can be read, ModelError."""
    cores = usable_cores()
    plan = make_plan(settings, cores)
    runner = open_runner(
        model,
        recipe_file,
        accelerator=settings.accelerator,
        threads=model_threads(settings, cores),
        front=plan.path == "staged",
    )
    try:
        bench = _Bench(recipe_file.recipe, settings, runner)
        if plan.path == "staged" and not runner.emulated:
            threads = model_threads(settings, cores)
            bench.bare_model = open_runner(
                model, recipe_file, accelerator=settings.accelerator, threads=threads, front=False
            )
        samples, refused = [], []
        for path in images:
            try:
                samples.append(bench.sample(path))
            except (RequestError, OSError) as problem:
                refused.append(f"{path}: {problem}")
        if not samples:
            raise UsageError(
                "none of the images can be read: " + "; ".join(refused[:3] or ["the folder holds none"])
            )
        costs = _costs(plan, bench, samples)
        return PlanReport(plan.path, len(samples), tuple(refused), runner.device, runner.emulated, costs)
    finally:
        runner.close()


@dataclass(frozen=True, slots=True)
class _Sample:
    encoded: Encoded
    header: Header
    plan: DecodePlan
    pixels: Pixels
    """Decoded once, for timing what comes after."""


class _Bench:
    """How each operation is timed."""

    def __init__(self, recipe: Recipe, settings: Settings, runner: Runner) -> None:
        self._recipe, self._settings, self._runner = recipe, settings, runner
        self._limits = Limits(settings.limits_max_pixels, settings.limits_max_decode_bytes)
        self._pool = PixelPool(4)
        self._resizer = Resizer(recipe)
        self._slot = np.zeros((recipe.height, recipe.width, recipe.channels), np.uint8)
        self._batch = runner.allocate(
            (min(settings.batch_max_items, runner.max_batch or 1024), *runner.image_shape)
        )
        self.of: dict[str, Callable[[_Sample], object]] = {
            "read header, check limits": lambda sample: self._header(sample.encoded),
            "decode at reduced DCT scale": self._decode,
            "decode in full": self._decode_full,
            "resize, antialiased": self._resize,
            "orientation, channel order, write into batch": self._put,
            "colour conversion": self._colour,
            "float normalise": lambda sample: reference.normalise(self._slot, self._recipe),
            "transpose to the model's layout": self._layout,
            _IN_GRAPH: lambda sample: self._runner.run(self._batch),
            "model": lambda sample: self._run_bare(),
        }
        self.bare_model: Runner | None = None
        """The model without the normalising front, to tell the two apart."""

    def _run_bare(self) -> None:
        if self.bare_model is None:
            self._runner.run(self._batch)
            return
        shape = (self.batch_size, *self.bare_model.image_shape)
        self.bare_model.run(np.zeros(shape, self.bare_model.input_dtype))

    @property
    def batch_size(self) -> int:
        return int(self._batch.shape[0])

    def sample(self, path: Path) -> _Sample:
        encoded = Encoded(path.read_bytes(), str(path))
        header, plan = self._header(encoded)
        if self._settings.prepare_path == "legacy":
            image = reference.decode_full(encoded, header, self._recipe)
            pixels = Pixels(image, 1, image.size)
        else:
            pixels = decode(encoded, header, plan, self._recipe, FreshCanvas)
        return _Sample(encoded, header, plan, pixels)

    def _header(self, encoded: Encoded) -> tuple[Header, DecodePlan]:
        header = read_header(encoded.data)
        settings = self._settings
        return header, plan_decode(
            header, self._recipe, settings.decode_fidelity, settings.decode_skip_scans, self._limits
        )

    def _decode(self, sample: _Sample) -> None:
        decode(sample.encoded, sample.header, sample.plan, self._recipe, self._pool.take).release()

    def _decode_full(self, sample: _Sample) -> None:
        if self._settings.prepare_path == "legacy":
            reference.decode_full(sample.encoded, sample.header, self._recipe)
        else:
            self._decode(sample)

    def _resize(self, sample: _Sample) -> None:
        if self._settings.prepare_path == "legacy":
            reference.resize(sample.pixels.image, self._recipe)
        else:
            self._resizer.write(sample.pixels, self._slot)

    def _put(self, sample: _Sample) -> None:
        small = np.empty((self._recipe.height, self._recipe.width, 4), np.uint8)
        self._resizer.put(small, as_stored(self._slot, 1))

    def _colour(self, sample: _Sample) -> None:
        reference.colour(reference.resize(sample.pixels.image, self._recipe), self._recipe)

    def _layout(self, sample: _Sample) -> None:
        reference.layout(reference.normalise(self._slot, self._recipe), self._recipe)


_IN_GRAPH = "layout, cast, normalise"

_INCLUDES = {
    _IN_GRAPH: "model",
    "resize, antialiased": "orientation, channel order, write into batch",
    "colour conversion": "resize, antialiased",
    "transpose to the model's layout": "float normalise",
}
"""Timed together with another operation, whose own time is then taken off."""


def _costs(plan: Plan, bench: _Bench, samples: Sequence[_Sample]) -> tuple[Cost, ...]:
    operations = [(stage, operation) for stage in plan.stages for operation in stage.operations]
    raw = {operation.name: _median_ms(bench, operation.name, samples) for _, operation in operations}
    for name in raw.keys() & {_IN_GRAPH, "model"}:
        raw[name] /= bench.batch_size
    own = {name: max(0.0, time - raw.get(_INCLUDES.get(name, ""), 0.0)) for name, time in raw.items()}
    total = sum(own.values())
    rows = []
    for stage, operation in operations:
        time = own[operation.name]
        rows.append(Cost(stage.name, stage.workers, operation, time, time / total))
    return tuple(rows)


def _median_ms(bench: _Bench, name: str, samples: Sequence[_Sample]) -> float:
    return median(_best_ms(lambda: bench.of[name](sample)) for sample in samples)  # noqa: B023


def _best_ms(run: Callable[[], object]) -> float:
    times = []
    for _ in range(_ROUNDS):
        start_s = monotonic_s()
        run()
        times.append(monotonic_s() - start_s)
    return min(times) * 1e3

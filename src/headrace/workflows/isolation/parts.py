"""What the steps of our own chain are made of: the very models and engine of a server, each able to run without what lies before it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from itertools import cycle
from pathlib import Path

from headrace.core.isolation.buildup import Window
from headrace.core.policy.plan import Plan, make_plan, model_threads
from headrace.core.policy.readiness import warm_up_sizes
from headrace.core.queueing.service_curve import NO_TIME, parse_emulated
from headrace.errors import ModelError
from headrace.models.emulated import EmulatedRunner
from headrace.models.opening import open_runner
from headrace.models.resident import resident_run
from headrace.models.runner import Runner
from headrace.records.image import AnyArray, Encoded, Pixels, Uint8Array
from headrace.records.recipe import RecipeFile
from headrace.records.settings import Settings
from headrace.serve.engine.cores import usable_cores
from headrace.serve.engine.engine import Engine
from headrace.serve.engine.job import Job
from headrace.workflows.image_sets import ImageSet
from headrace.workflows.isolation.loops import Fill, loop_engine, loop_model
from headrace.workflows.isolation.meter import Pace
from headrace.workflows.isolation.samples import Samples, batch_of, normalised

NO_DEVICE = "emulated:0.001ms+0ms"
"""A device that takes no time: what is left is preparation."""

Measure = Callable[[Pace], Window]


@dataclass(frozen=True, slots=True)
class Subject:
    """What the buildup is about."""

    model: Path | None
    recipe_file: RecipeFile
    settings: Settings
    images: ImageSet
    samples: Samples
    inside: int
    """Images inside at once, on the steps with an engine."""

    @property
    def staged(self) -> bool:
        return self.settings.prepare_path == "staged"

    @property
    def plan(self) -> Plan:
        return make_plan(self.settings, usable_cores())

    def runner(self, front: bool) -> Runner:
        """The model with or without the front that normalises."""
        settings = self.settings
        return open_runner(
            self.model,
            self.recipe_file,
            accelerator=settings.accelerator,
            threads=model_threads(settings, usable_cores()),
            front=front,
        )


class Parts:
    """Everything that the steps share, opened once. Raises ModelError, SettingError."""

    def __init__(self, subject: Subject, closing: ExitStack) -> None:
        self.subject = subject
        self.runner = subject.runner(front=subject.staged)
        closing.callback(self.runner.close)
        self.bare = self._bare()
        closing.callback(self.bare.close)
        self.engine = self._engine(closing, self.runner, subject.settings)
        self.resizing = (
            self._engine(closing, self.runner, self._resize_settings()) if subject.staged else None
        )
        self.preparing = self._engine(closing, self._instant(), subject.settings)

    def _bare(self) -> Runner:
        """The model alone: without front, and without a copy."""
        subject = self.subject
        if not self.runner.emulated:
            return subject.runner(front=False) if subject.staged else self.runner
        spec = replace(parse_emulated(subject.settings.accelerator), copy=NO_TIME)
        recipe = subject.recipe_file.recipe
        return EmulatedRunner(
            spec,
            self.runner.image_shape,
            layout="nhwc" if subject.staged else recipe.layout,
            dtype=str(self.runner.input_dtype),
        )

    def _instant(self) -> Runner:
        return open_runner(
            None, self.subject.recipe_file, accelerator=NO_DEVICE, threads=1, front=self.subject.staged
        )

    def _engine(self, closing: ExitStack, runner: Runner, settings: Settings) -> Engine:
        settings = roomy(settings, self.subject.inside)
        engine = Engine(runner, self.subject.recipe_file.recipe, settings, usable_cores())
        engine.start()
        closing.callback(engine.close)
        readiness = engine.wait_ready(LONGEST_WARM_UP_S)
        if not readiness.ready:
            raise ModelError(f"the model could not be warmed up: {readiness.reason}")
        return engine

    def _resize_settings(self) -> Settings:
        """Pictures that the plan resizes on the threads that decoded them get as many threads here."""
        settings = self.subject.settings
        here = [
            pixels.image.width * pixels.image.height <= settings.resize_hand_over_pixels
            for pixels in self.subject.samples.decoded
        ]
        stages = {stage.name: stage.workers for stage in self.subject.plan.stages}
        return replace(settings, resize_workers=stages["decode"]) if sum(here) * 2 > len(here) else settings

    # --- the model -----------------------------------------------------------------------------------------------------------

    @property
    def sizes(self) -> tuple[int, ...]:
        """Powers of two up to the plan's largest batch; the only size there is where the graph is fixed to one."""
        fixed = self.runner.max_batch
        return (fixed,) if fixed else warm_up_sizes(self.subject.settings.batch_max_items)

    @property
    def batch(self) -> int:
        """The largest."""
        return self.sizes[-1]

    def model_alone(self, size: int) -> Measure:
        """Resident input, as many batches in flight as in the plan."""
        batch = self._for(self.bare, size)
        return self._threads(self.bare, size, lambda: resident_run(self.bare, batch))

    def with_front(self) -> Measure:
        batch = self._for(self.runner, self.batch)
        return self._threads(self.runner, self.batch, lambda: resident_run(self.runner, batch))

    def with_copy(self) -> Measure:
        batch = self._for(self.runner, self.batch)
        own = self.runner.allocate(batch.shape)
        own[...] = batch
        return self._threads(self.runner, self.batch, lambda: partial(self.runner.run, own))

    def _for(self, runner: Runner, size: int) -> AnyArray:
        pixels = batch_of(self.subject.samples, size)
        ready = runner.image_shape == pixels.shape[1:] and runner.input_dtype == pixels.dtype
        return pixels if ready else normalised(pixels, self.subject.recipe_file.recipe)

    def _threads(self, runner: Runner, size: int, make: Callable[[], Callable[[], object]]) -> Measure:
        runs = [make() for _ in range(self.subject.settings.batch_in_flight)]
        return lambda pace: loop_model(runs, size, runner, pace)

    # --- the engine ----------------------------------------------------------------------------------------------------------

    def through(self, engine: Engine, fills: Iterator[Fill]) -> Measure:
        return lambda pace: loop_engine(engine, fills, self.subject.inside, pace)

    def prepared(self) -> Iterator[Fill]:
        return cycle([partial(_give_prepared, image.prepared) for image in self.subject.samples.images])

    def decoded(self) -> Iterator[Fill]:
        return cycle([partial(_give_pixels, pixels) for pixels in self.subject.samples.decoded])

    def encoded(self) -> Iterator[Fill]:
        return cycle([partial(_give_encoded, image.encoded) for image in self.subject.samples.images])

    def fetched(self) -> Iterator[Fill]:
        read = self.subject.images.read
        return cycle([partial(_fetch, read, image.number) for image in self.subject.samples.images])


LONGEST_WARM_UP_S = 600.0


def roomy(settings: Settings, inside: int) -> Settings:
    """With room for so many at the door: nobody is refused here."""
    return replace(settings, door_max_inside=max(settings.door_max_inside, inside))


def _give_prepared(image: Uint8Array, job: Job) -> None:
    job.prepared = image


def _give_pixels(pixels: Pixels, job: Job) -> None:
    job.pixels = pixels


def _give_encoded(encoded: Encoded, job: Job) -> None:
    job.encoded = encoded


def _fetch(read: Callable[[int], bytes], number: int, job: Job) -> None:
    job.encoded = Encoded(read(number))

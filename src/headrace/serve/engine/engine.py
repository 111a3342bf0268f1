"""The engine: door, preparation stages, batching, model. It knows nothing of HTTP."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from pathlib import Path
from threading import Condition, Thread
from typing import cast

from headrace.core.image.decode_plan import Limits, plan_decode
from headrace.core.image.header import read_header
from headrace.core.policy.batching import BatchPolicy
from headrace.core.policy.plan import Plan, make_plan, model_threads
from headrace.core.policy.readiness import Readiness, warm_up_sizes
from headrace.errors import ClientGone, DeadlineExceeded, HeadraceError, NotReady, Overloaded
from headrace.models.opening import open_runner
from headrace.models.runner import Runner
from headrace.records.image import Pixels
from headrace.records.recipe import Recipe, RecipeFile
from headrace.records.settings import Settings
from headrace.serve.engine.batcher import Batcher
from headrace.serve.engine.books import Book
from headrace.serve.engine.cores import usable_cores
from headrace.serve.engine.inference import Inference
from headrace.serve.engine.job import Job
from headrace.serve.engine.pixel_pool import PixelPool
from headrace.serve.engine.stage import Outcome, Stage, Worker
from headrace.serve.engine.workers import DecodeWorker, LegacyWorker, ResizeWorker

_log = logging.getLogger(__name__)


class Engine:
    """Constructible and drivable without a server: `start`, `submit`, `close`."""

    def __init__(self, runner: Runner, recipe: Recipe, settings: Settings, cores: int) -> None:
        self.runner = runner
        self.recipe = recipe
        self.settings = settings
        self.plan: Plan = make_plan(settings, cores)
        self.readiness = Readiness.start(warm_up_sizes(settings.batch_max_items))
        self._inside = 0
        self._state = Condition()
        policy = BatchPolicy(
            settings.batch_max_items, settings.batch_window_ms / 1e3, settings.batch_in_flight
        )
        self._batcher = Batcher(policy, runner.allocate, runner.image_shape)
        self._build_stages()

    def _build_stages(self) -> None:
        preparation = {stage.name: stage.workers for stage in self.plan.stages}
        self.inference = Inference(
            self.runner, self._batcher, preparation["infer"], end=self._end, drop=self._drop_placed
        )
        to_batch = Outcome(self.inference.fill, self._drop_placed, self._end)
        if self.plan.path == "legacy":
            make: Worker = LegacyWorker(self.recipe, self._batcher)
            self._entry = Stage("decode", preparation["decode"], lambda: make, to_batch)
            self._stages = [self._entry]
            self._prepared_entry = self._entry
        else:
            pool = PixelPool(preparation["decode"] + 2 * preparation["resize"])
            resize = Stage(
                "resize",
                preparation["resize"],
                lambda: ResizeWorker(self.recipe, pool, self._batcher),
                to_batch,
            )

            def hand_over(job: Job) -> None:
                pixels = cast(Pixels, job.pixels)
                if pixels.image.width * pixels.image.height <= self.settings.resize_hand_over_pixels:
                    resize.do_here(job)
                else:
                    resize.put(job)

            to_resize = Outcome(hand_over, self._drop_expected, self._fail_expected)
            self._entry = Stage(
                "decode", preparation["decode"], lambda: DecodeWorker(self.recipe, pool), to_resize
            )
            self._stages = [self._entry, resize]
            self._prepared_entry = resize

    # --- life ----------------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Starts the threads and warms the model up in the background; `readiness` says when it may be used."""
        for stage in self._stages:
            stage.start()
        self.inference.start()
        Thread(target=self._warm_up, name="headrace-warm-up", daemon=True).start()

    def wait_ready(self, timeout_s: float) -> Readiness:
        """Waits until warm-up succeeded or failed, at most `timeout_s`."""
        with self._state:
            self._state.wait_for(lambda: self.readiness.state != "warming", timeout_s)
            return self.readiness

    def drain(self, timeout_s: float) -> bool:
        """No new jobs; True when those inside ended in time."""
        self._become(Readiness.drain)
        with self._state:
            return self._state.wait_for(lambda: self._inside == 0, timeout_s)

    def close(self) -> None:
        """No new jobs; ends every thread after the jobs inside."""
        self._become(Readiness.drain)
        for stage in self._stages:
            stage.close()
        self._batcher.close()
        self.inference.join()
        self.runner.close()

    def _warm_up(self) -> None:
        for size in self.readiness.left:
            if self.readiness.state != "warming":
                return
            try:
                self.runner.run(self.runner.allocate((size, *self.runner.image_shape)))
            except Exception as problem:
                _log.error("warm-up failed: %s", problem)
                self._become(partial(Readiness.broke, reason=str(problem)))
                return
            self._become(partial(Readiness.ran, size=size))

    def _become(self, step: Callable[[Readiness], Readiness]) -> None:
        with self._state:
            self.readiness = step(self.readiness)
            self._state.notify_all()

    # --- the door ------------------------------------------------------------------------------------------------------------

    @property
    def inside(self) -> int:
        return self._inside

    def admit(self) -> None:
        """Would a request be let in now? Cheap, so that it can be asked before a body is read. Raises NotReady or Overloaded."""
        if not self.readiness.ready:
            raise NotReady(f"not ready: {self.readiness.reason}")
        if self._inside >= self.settings.door_max_inside:
            raise Overloaded(
                f"{self._inside} requests are inside, door.max_inside allows {self.settings.door_max_inside}; try again"
            )

    def submit(self, job: Job) -> None:
        """Takes the job in, or raises NotReady, Overloaded, UnsupportedMedia, ImageError or ImageTooLarge without having touched it."""
        settings = self.settings
        if job.encoded is not None:
            job.header = read_header(job.encoded.data)
            limits = Limits(settings.limits_max_pixels, settings.limits_max_decode_bytes)
            job.plan = plan_decode(
                job.header, self.recipe, settings.decode_fidelity, settings.decode_skip_scans, limits
            )
        with self._state:
            self.admit()
            self._inside += 1
        self._batcher.expect()
        (self._entry if job.encoded is not None else self._prepared_entry).put(job)

    # --- ends of a job -------------------------------------------------------------------------------------------------------

    def _end(self, job: Job, error: HeadraceError | None) -> None:
        job.error = error
        with self._state:
            self._inside -= 1
            if self._inside == 0:
                self._state.notify_all()
        job.done(job)

    def _drop_expected(self, job: Job) -> None:
        self._batcher.unexpect()
        self._end(job, _why_dropped(job))

    def _drop_placed(self, job: Job) -> None:
        if job.place is None:
            self._batcher.unexpect()
        self._end(job, _why_dropped(job))

    def _fail_expected(self, job: Job, error: HeadraceError) -> None:
        self._batcher.unexpect()
        self._end(job, error)

    # --- figures -------------------------------------------------------------------------------------------------------------

    @property
    def books(self) -> tuple[Book, ...]:
        return (*(stage.book for stage in self._stages), self.inference.batch_book, self.inference.book)


def _why_dropped(job: Job) -> HeadraceError:
    if job.abandoned:
        return ClientGone("nobody waits for this request any more; its work was dropped")
    return DeadlineExceeded("the request's deadline passed while it was queued; its work was dropped")


def open_engine(model: Path | None, recipe_file: RecipeFile, settings: Settings) -> Engine:
    """Opens the model for the path the settings choose. Raises ModelError, SettingError."""
    cores = usable_cores()
    runner = open_runner(
        model,
        recipe_file,
        accelerator=settings.accelerator,
        threads=model_threads(settings, cores),
        front=settings.prepare_path == "staged",
    )
    return Engine(runner, recipe_file.recipe, settings, cores)

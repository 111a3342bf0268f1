"""What the threads of each preparation stage do."""

from __future__ import annotations

from typing import cast

from headrace.clock import monotonic_s
from headrace.core.image import reference
from headrace.core.image.decode import decode
from headrace.core.image.decode_plan import DecodePlan
from headrace.core.image.resize import Resizer
from headrace.records.image import AnyArray, Encoded, Header, Pixels, Uint8Array
from headrace.records.recipe import Recipe
from headrace.serve.engine.batcher import Batcher
from headrace.serve.engine.job import Job
from headrace.serve.engine.pixel_pool import PixelPool


class DecodeWorker:
    """Bytes to pixels, at the scale the plan asks for."""

    def __init__(self, recipe: Recipe, pool: PixelPool) -> None:
        self._recipe = recipe
        self._pool = pool

    def reserve(self, job: Job) -> bool:
        self._pool.enter()
        return True

    def discard(self, job: Job, *, reserved: bool) -> None:
        if reserved:
            self._pool.leave()

    def work(self, job: Job) -> None:
        job.timeline.decode_start_s = monotonic_s()
        try:
            encoded, header, plan = cast(
                tuple[Encoded, Header, DecodePlan], (job.encoded, job.header, job.plan)
            )
            job.pixels = decode(encoded, header, plan, self._recipe, self._pool.take)
        except BaseException:
            self._pool.leave()
            raise
        job.encoded = None
        job.timeline.decode_end_s = monotonic_s()


class ResizeWorker:
    """Pixels into a row of a batch. Images that came prepared are copied there."""

    def __init__(self, recipe: Recipe, pool: PixelPool, batcher: Batcher) -> None:
        self._pool = pool
        self._batcher = batcher
        self._resizer = Resizer(recipe)

    def reserve(self, job: Job) -> bool:
        job.place = self._batcher.claim()
        return job.place is not None

    def discard(self, job: Job, *, reserved: bool) -> None:
        if reserved:
            self._batcher.void(job.place)  # type: ignore[arg-type]
        self._let_go(job)

    def work(self, job: Job) -> None:
        job.timeline.resize_start_s = monotonic_s()
        row: Uint8Array = self._batcher.row(job.place)  # type: ignore[arg-type]
        try:
            if job.pixels is None:
                row[...] = cast(Uint8Array, job.prepared)
            else:
                self._resizer.write(job.pixels, row)
        except BaseException:
            self._batcher.void(job.place)  # type: ignore[arg-type]
            raise
        finally:
            self._let_go(job)
        job.timeline.resize_end_s = monotonic_s()

    def _let_go(self, job: Job) -> None:
        pixels: Pixels | None = job.pixels
        if pixels is not None:
            job.pixels = None
            pixels.release()
            self._pool.leave()


class LegacyWorker:
    """All of preparation in one go, as most services do it: full decode, resize, colour, float normalise, layout, on the CPU."""

    def __init__(self, recipe: Recipe, batcher: Batcher) -> None:
        self._recipe = recipe
        self._batcher = batcher

    def reserve(self, job: Job) -> bool:
        job.place = self._batcher.claim()
        return job.place is not None

    def discard(self, job: Job, *, reserved: bool) -> None:
        if reserved:
            self._batcher.void(job.place)  # type: ignore[arg-type]

    def work(self, job: Job) -> None:
        job.timeline.decode_start_s = monotonic_s()
        row: AnyArray = self._batcher.row(job.place)  # type: ignore[arg-type]
        try:
            row[...] = self._prepare(job)
        except BaseException:
            self._batcher.void(job.place)  # type: ignore[arg-type]
            raise
        job.encoded = None
        job.timeline.resize_end_s = monotonic_s()

    def _prepare(self, job: Job) -> AnyArray:
        recipe = self._recipe
        if job.prepared is not None:
            prepared = job.prepared
            job.timeline.decode_end_s = job.timeline.resize_start_s = job.timeline.decode_start_s
        else:
            encoded, header = cast(tuple[Encoded, Header], (job.encoded, job.header))
            image = reference.decode_full(encoded, header, recipe)
            job.timeline.decode_end_s = job.timeline.resize_start_s = monotonic_s()
            prepared = reference.colour(reference.resize(image, recipe), recipe)
        return reference.layout(reference.normalise(prepared, recipe), recipe)

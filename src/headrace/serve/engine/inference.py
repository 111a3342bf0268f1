"""The last stages of the engine: batches wait for the accelerator, and runner threads run them."""

from __future__ import annotations

import logging
from collections.abc import Callable
from threading import Lock, Thread

from headrace.clock import monotonic_s
from headrace.core.policy.batching import Launch
from headrace.core.stats.share import ShareWindow
from headrace.errors import HeadraceError, InferenceFailed
from headrace.host.thread_name import show_thread_name
from headrace.models.runner import Runner
from headrace.records.image import AnyArray, Prediction
from headrace.serve.engine.batcher import Batcher
from headrace.serve.engine.books import Book
from headrace.serve.engine.job import Job
from headrace.serve.engine.stage import wanted

_log = logging.getLogger(__name__)

BUSY_WINDOW_S = 10.0


class Inference:
    """`workers` threads, each with one batch in flight. `end` and `drop` are told of every image, once."""

    def __init__(
        self,
        runner: Runner,
        batcher: Batcher,
        workers: int,
        *,
        end: Callable[[Job, HeadraceError | None], None],
        drop: Callable[[Job], None],
    ) -> None:
        self.batch_book = Book("batch", 0)
        self.book = Book("infer", workers)
        self._runner, self._batcher = runner, batcher
        self._end, self._drop = end, drop
        self._one_at_a_time = runner.device != "cpu"
        """A device runs batches one after another: the second in flight waits for the first."""
        self._device_free_s = 0.0
        self._lock = Lock()
        self._batches: dict[int, tuple[int, float]] = {}
        self._busy_window = ShareWindow(monotonic_s(), BUSY_WINDOW_S)
        self._threads = [
            Thread(target=self._work, name=f"headrace-infer-{number}", daemon=True)
            for number in range(workers)
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def join(self) -> None:
        """After the batcher was closed: waits until every batch was run."""
        for thread in self._threads:
            thread.join()

    def fill(self, job: Job) -> None:
        """The image's pixels are in their place."""
        self.batch_book.enter()
        self._batcher.fill(job.place, job)  # type: ignore[arg-type]

    def batches(self) -> dict[int, tuple[int, float]]:
        """{images in a batch: (batches run, seconds in all)}, warm-up apart."""
        with self._lock:
            return dict(self._batches)

    def device_busy_share(self) -> tuple[float, float]:
        """(window in seconds, share of it with a batch on the device). The window is the last 10 to 20 seconds, shorter after the start."""
        with self._lock:
            return self._busy_window.share(monotonic_s(), self._runner.busy().busy_s)

    def _work(self) -> None:
        show_thread_name()
        while (launch := self._batcher.take()) is not None:
            jobs = [job for job in launch.items if job is not None]
            self._leave_batch(jobs)
            if any(wanted(job) for job in jobs):
                self._run(launch, jobs)
            else:
                self._batcher.finish(launch)
                for job in jobs:
                    self._drop(job)
            del launch, jobs

    def _leave_batch(self, jobs: list[Job]) -> None:
        now_s = monotonic_s()
        self.batch_book.start(len(jobs))
        self.batch_book.finish(0.0, [now_s - job.timeline.resize_end_s for job in jobs])
        for job in jobs:
            job.timeline.launched_s = now_s

    def _run(self, launch: Launch[Job], jobs: list[Job]) -> None:
        self.book.enter(len(jobs))
        self.book.start(len(jobs))
        launched_s = monotonic_s()
        outputs, error = self._outputs(launch)
        end_s = monotonic_s()
        start_s = min(end_s, max(launched_s, self._device_free_s)) if self._one_at_a_time else launched_s
        self._device_free_s = end_s
        self._batcher.finish(launch)
        self.book.finish(end_s - start_s, [start_s - launched_s] * len(jobs), failed=error is not None)
        self._note(len(jobs), end_s - start_s, end_s)
        for row, job in enumerate(launch.items):
            if job is not None:
                job.timeline.infer_start_s, job.timeline.infer_end_s = start_s, end_s
                if error is None:
                    job.prediction = Prediction({name: array[row] for name, array in outputs.items()})
                self._end(job, error)

    def _outputs(self, launch: Launch[Job]) -> tuple[dict[str, AnyArray], HeadraceError | None]:
        try:
            return self._runner.run(self._batcher.rows(launch)), None
        except Exception as problem:
            _log.exception("the model failed on a batch of %d", launch.rows)
            return {}, InferenceFailed(f"the model failed on a batch of {launch.rows}: {problem}")

    def _note(self, images: int, service_s: float, now_s: float) -> None:
        with self._lock:
            count, total_s = self._batches.get(images, (0, 0.0))
            self._batches[images] = count + 1, total_s + service_s
            self._busy_window.share(now_s, self._runner.busy().busy_s)

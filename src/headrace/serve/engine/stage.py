"""A stage: some threads that take jobs from one queue, one after the other, and hand each on."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from queue import SimpleQueue
from threading import Thread, local
from typing import Protocol

from headrace.clock import monotonic_s
from headrace.errors import HeadraceError, InternalError
from headrace.host.thread_name import show_thread_name
from headrace.serve.engine.books import Book
from headrace.serve.engine.job import Job

_log = logging.getLogger(__name__)


class Worker(Protocol):
    """What one thread of a stage does; it may own scratch memory."""

    def reserve(self, job: Job) -> bool:
        """Wait until there is room for the result: this is where a stage is pushed back. False when the engine is closing."""

    def work(self, job: Job) -> None:
        """Do the stage's part. Raises HeadraceError for this job only; gives its reservation back when it raises."""

    def discard(self, job: Job, *, reserved: bool) -> None:
        """The job is dropped before `work`: give back what it holds, and the reservation if there is one."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """Where a job goes next."""

    forward: Callable[[Job], None]
    drop: Callable[[Job], None]
    fail: Callable[[Job, HeadraceError], None]


class Stage:
    """`workers` threads named after the stage, each with a worker of its own."""

    def __init__(self, name: str, workers: int, make: Callable[[], Worker], outcome: Outcome) -> None:
        self.book = Book(name, workers)
        self._make = make
        self._outcome = outcome
        self._queue: SimpleQueue[tuple[Job, float] | None] = SimpleQueue()
        self._guest = local()
        self._threads = [
            Thread(target=self._run, name=f"headrace-{name}-{number}", daemon=True)
            for number in range(workers)
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def put(self, job: Job) -> None:
        """Never blocks: the door bounds how many jobs are inside."""
        self.book.enter()
        self._queue.put((job, monotonic_s()))

    def do_here(self, job: Job) -> None:
        """Do the stage's part on the calling thread: for jobs that are smaller than the hand-over would be."""
        worker: Worker | None = getattr(self._guest, "worker", None)
        if worker is None:
            worker = self._guest.worker = self._make()
        self.book.enter()
        self._handle(worker, job, monotonic_s())

    def close(self) -> None:
        """Ends the threads after what is queued."""
        for _ in self._threads:
            self._queue.put(None)
        for thread in self._threads:
            thread.join()

    def _run(self) -> None:
        show_thread_name()
        worker = self._make()
        while (entry := self._queue.get()) is not None:
            self._handle(worker, *entry)
            del entry

    def _handle(self, worker: Worker, job: Job, queued_s: float) -> None:
        reserved = wanted(job) and worker.reserve(job)
        if reserved and wanted(job):
            self._work(worker, job, queued_s)
        else:
            worker.discard(job, reserved=reserved)
            self._drop(job)

    def _drop(self, job: Job) -> None:
        self.book.drop()
        self._outcome.drop(job)

    def _work(self, worker: Worker, job: Job, queued_s: float) -> None:
        start_s = monotonic_s()
        self.book.start()
        error: HeadraceError | None = None
        try:
            worker.work(job)
        except HeadraceError as problem:
            error = problem
        except Exception as problem:
            _log.exception("stage %s failed on a job", self.book.stage)
            error = InternalError(f"the {self.book.stage} stage failed: {type(problem).__name__}: {problem}")
        self.book.finish(monotonic_s() - start_s, (start_s - queued_s,), failed=error is not None)
        if error is None:
            self._outcome.forward(job)
        else:
            self._outcome.fail(job, error)


def wanted(job: Job) -> bool:
    """Whether somebody still waits for this job."""
    return not job.abandoned and monotonic_s() < job.deadline_s

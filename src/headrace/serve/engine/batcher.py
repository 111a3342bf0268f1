"""The batching machine, driven by threads: real clock, real buffers, real waiting."""

from __future__ import annotations

from collections.abc import Callable
from queue import Empty, SimpleQueue
from threading import Condition
from typing import Any

from headrace.clock import monotonic_s
from headrace.core.policy.batching import Batching, BatchPolicy, Launch, Place, WaitUntil
from headrace.records.image import AnyArray
from headrace.serve.engine.job import Job


class Batcher:
    """Preparation claims and fills rows; runner threads take whole batches.

    Whoever changes the machine asks it for the next step at once and passes a batch that is due to the runner threads, so that these sleep
    until there is something to run: one wake-up a batch, not one an image.
    """

    def __init__(
        self, policy: BatchPolicy, allocate: Callable[[tuple[int, ...]], AnyArray], row_shape: tuple[int, ...]
    ) -> None:
        count = policy.max_in_flight + 2
        self._machine: Batching[Job] = Batching(policy, count)
        self._buffers = [allocate((policy.max_items, *row_shape)) for _ in range(count)]
        self._space = Condition()
        """Guards all below; notified when a buffer is free again."""
        self._due: SimpleQueue[Launch[Job] | None] = SimpleQueue()
        """Batches to run; None asks a runner thread to look at the clock and at `_closing`."""
        self._wake_s: float | None = None
        self._coming = 0
        self._closing = False

    @property
    def queued(self) -> int:
        with self._space:
            return self._machine.queued

    def expect(self) -> None:
        """An image entered preparation."""
        with self._space:
            self._coming += 1

    def unexpect(self) -> None:
        """It will not come."""
        with self._space:
            self._coming -= 1
            self._step()

    def claim(self) -> Place | None:
        """A place for an expected image; waits while every buffer is taken. None when closing."""
        with self._space:
            while (place := self._machine.claim(monotonic_s())) is None:
                if self._closing:
                    return None
                self._space.wait()
            self._coming -= 1
            return place

    def row(self, place: Place) -> Any:
        """The row to write into."""
        return self._buffers[place.buffer][place.row]

    def fill(self, place: Place, job: Job) -> None:
        """Its pixels are written."""
        with self._space:
            self._machine.fill(place, job, monotonic_s())
            self._step()

    def void(self, place: Place) -> None:
        """They will not be."""
        with self._space:
            self._machine.void(place)
            self._step()

    def take(self) -> Launch[Job] | None:
        """The next batch to run; waits for it. None when closing and nothing is left."""
        while True:
            try:
                launch = self._due.get(timeout=self._seconds_to_wake())
            except Empty:
                launch = None
            if launch is not None:
                return launch
            with self._space:
                self._step()
                if self._over():
                    return None

    def rows(self, launch: Launch[Job]) -> AnyArray:
        """The rows to run, C-contiguous."""
        rows: AnyArray = self._buffers[launch.buffer][: launch.rows]
        return rows

    def finish(self, launch: Launch[Job]) -> None:
        """Its buffer may be written again."""
        with self._space:
            self._machine.finish(launch.buffer)
            self._space.notify_all()
            self._step()

    def close(self) -> None:
        """Wakes everybody; runner threads end when nothing is left."""
        with self._space:
            self._closing = True
            self._space.notify_all()
            self._due.put(None)

    def _seconds_to_wake(self) -> float | None:
        wake_s = self._wake_s
        return None if wake_s is None else max(0.0, wake_s - monotonic_s())

    def _step(self) -> None:
        """Pass on every batch that is due; when one will be due later, see to it that a runner thread wakes then."""
        while isinstance(step := self._machine.take(monotonic_s(), self._coming), Launch):
            self._due.put(step)
        wake_s = step.time_s if isinstance(step, WaitUntil) else None
        if wake_s is not None and self._wake_s is None:
            self._due.put(None)
        self._wake_s = wake_s
        if self._over():
            self._due.put(None)

    def _over(self) -> bool:
        """Closing, and nothing is or will be left to run."""
        return self._closing and not (self._machine.queued or self._machine.in_flight or self._coming)

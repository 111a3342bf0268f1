"""The batching machine, driven by threads: real clock, real buffers, real waiting."""

from __future__ import annotations

from collections.abc import Callable
from threading import Condition
from typing import Any

from headrace.clock import monotonic_s
from headrace.core.policy.batching import Batching, BatchPolicy, Launch, Place, WaitUntil
from headrace.records.image import AnyArray
from headrace.serve.engine.job import Job


class Batcher:
    """Preparation claims and fills rows; runner threads take whole batches. One condition variable guards it all."""

    def __init__(
        self, policy: BatchPolicy, allocate: Callable[[tuple[int, ...]], AnyArray], row_shape: tuple[int, ...]
    ) -> None:
        count = policy.max_in_flight + 2
        self._machine: Batching[Job] = Batching(policy, count)
        self._buffers = [allocate((policy.max_items, *row_shape)) for _ in range(count)]
        self._changed = Condition()
        self._space = Condition(self._changed._lock)  # type: ignore[attr-defined]
        self._coming = 0
        self._closing = False

    @property
    def queued(self) -> int:
        with self._changed:
            return self._machine.queued

    def expect(self) -> None:
        """An image entered preparation."""
        with self._changed:
            self._coming += 1

    def unexpect(self) -> None:
        """It will not come."""
        with self._changed:
            self._coming -= 1
            if self._coming == 0:
                self._changed.notify()

    def claim(self) -> Place | None:
        """A place for an expected image; waits while every buffer is taken. None when closing."""
        with self._changed:
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
        with self._changed:
            self._machine.fill(place, job, monotonic_s())
            self._changed.notify()

    def void(self, place: Place) -> None:
        with self._changed:
            self._machine.void(place)
            self._changed.notify()

    def take(self) -> Launch[Job] | None:
        """The next batch to run; waits for it. None when closing and nothing is left."""
        with self._changed:
            while True:
                step = self._machine.take(monotonic_s(), self._coming)
                if isinstance(step, Launch):
                    return step
                if self._closing and self._machine.queued == 0 and self._coming == 0:
                    return None
                self._changed.wait(
                    max(0.0, step.time_s - monotonic_s()) if isinstance(step, WaitUntil) else None
                )

    def rows(self, launch: Launch[Job]) -> AnyArray:
        """The rows to run, C-contiguous."""
        rows: AnyArray = self._buffers[launch.buffer][: launch.rows]
        return rows

    def finish(self, launch: Launch[Job]) -> None:
        """Its buffer may be written again."""
        with self._changed:
            self._machine.finish(launch.buffer)
            self._space.notify_all()
            self._changed.notify()

    def close(self) -> None:
        """Wakes everybody; runner threads end when nothing is left."""
        with self._changed:
            self._closing = True
            self._space.notify_all()
            self._changed.notify_all()

"""The books of a stage: what came in, went out, failed, was dropped, is inside; how long it waited and was worked on.

At every moment: entered = left + failed + dropped + inside. A lost item would show.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from threading import Lock

from headrace.core.stats.histogram import DURATION_BOUNDS_S, Histogram


@dataclass(frozen=True, slots=True)
class BookReading:
    """One consistent look at a stage."""

    stage: str
    workers: int
    busy: int
    queued: int
    entered: int
    left: int
    failed: int
    dropped: int
    wait_s: Histogram
    service_s: Histogram

    @property
    def inside(self) -> int:
        return self.queued + self.busy

    @property
    def balanced(self) -> bool:
        return self.entered == self.left + self.failed + self.dropped + self.inside


class Book:
    """Written by the stage's threads, read by metrics."""

    def __init__(self, stage: str, workers: int) -> None:
        self.stage = stage
        self.workers = workers
        self._lock = Lock()
        self._queued = self._busy = 0
        self._entered = self._left = self._failed = self._dropped = 0
        self._wait_s = Histogram(DURATION_BOUNDS_S)
        self._service_s = Histogram(DURATION_BOUNDS_S)

    def enter(self, count: int = 1) -> None:
        with self._lock:
            self._entered += count
            self._queued += count

    def start(self, count: int = 1) -> None:
        with self._lock:
            self._queued -= count
            self._busy += count

    def finish(self, service_s: float, waits_s: Sequence[float], *, failed: bool = False) -> None:
        """One wait for each image that was started; all took `service_s` together."""
        count = len(waits_s)
        with self._lock:
            self._busy -= count
            if failed:
                self._failed += count
            else:
                self._left += count
            for wait_s in waits_s:
                self._wait_s.add(wait_s)
                self._service_s.add(service_s)

    def drop(self, count: int = 1) -> None:
        """Taken out of the queue without being worked on, because nobody waits for it."""
        with self._lock:
            self._queued -= count
            self._dropped += count

    def read(self) -> BookReading:
        with self._lock:
            return BookReading(
                self.stage,
                self.workers,
                self._busy,
                self._queued,
                self._entered,
                self._left,
                self._failed,
                self._dropped,
                self._wait_s.copy(),
                self._service_s.copy(),
            )

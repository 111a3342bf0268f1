"""How long a device was busy: the union of the runs on it, never their sum."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from headrace.models.runner import DeviceBusy


class BusyMeter:
    """Counts the time in which at least one run is on. Any number of threads may run and read at once."""

    def __init__(self, clock_s: Callable[[], float]) -> None:
        self._clock_s = clock_s
        self._lock = threading.Lock()
        self._running = 0
        self._since_s = 0.0
        self._busy_s = 0.0
        self._launches = 0
        self._images = 0

    @contextmanager
    def run(self, images: int) -> Iterator[None]:
        """Everything inside counts as busy, also when it raises."""
        self._enter(images)
        try:
            yield
        finally:
            self._leave()

    def read(self) -> DeviceBusy:
        """Totals up to now, a run that is still on counted up to now."""
        with self._lock:
            open_s = max(0.0, self._clock_s() - self._since_s) if self._running else 0.0
            return DeviceBusy(busy_s=self._busy_s + open_s, launches=self._launches, images=self._images)

    def _enter(self, images: int) -> None:
        with self._lock:
            if self._running == 0:
                self._since_s = self._clock_s()
            self._running += 1
            self._launches += 1
            self._images += images

    def _leave(self) -> None:
        with self._lock:
            self._running -= 1
            if self._running == 0:
                self._busy_s += max(0.0, self._clock_s() - self._since_s)

"""Memory for decoded pixels, used again and again: faulting in fresh pages costs as much as decoding into them."""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock, Semaphore

import numpy as np

from headrace.records.image import Uint8Array

_ROUND_UP_BYTES = 1 << 16
_KEEP_BELOW_BYTES = 64 << 20
"""A rare giant is given back to the system, or a few of them would stay for ever."""


class PixelPool:
    """At most `pictures` decoded pictures exist at once: that bounds the hand-over from decode to resize."""

    def __init__(self, pictures: int) -> None:
        self._room = Semaphore(pictures)
        self._pictures = pictures
        self._lock = Lock()
        self._free: list[Uint8Array] = []

    def enter(self) -> None:
        """Waits until another picture may exist."""
        self._room.acquire()

    def leave(self) -> None:
        self._room.release()

    def take(self, size_bytes: int) -> tuple[Uint8Array, Callable[[], None]]:
        """uint8[>= size_bytes], uninitialised, and how to give it back."""
        array = self._best_fit(size_bytes)
        if array is None:
            array = np.empty(-(-size_bytes // _ROUND_UP_BYTES) * _ROUND_UP_BYTES, np.uint8)
        kept = array

        def give_back() -> None:
            if kept.nbytes <= _KEEP_BELOW_BYTES:
                with self._lock:
                    self._free.append(kept)
                    self._free.sort(key=len)
                    del self._free[: -self._pictures]

        return array, give_back

    def _best_fit(self, size_bytes: int) -> Uint8Array | None:
        with self._lock:
            for index, array in enumerate(self._free):
                if array.nbytes >= size_bytes:
                    return self._free.pop(index)
        return None

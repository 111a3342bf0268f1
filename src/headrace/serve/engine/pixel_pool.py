"""Memory for decoded pixels, used again and again: faulting in fresh pages costs as much as decoding into them."""

from __future__ import annotations

from queue import SimpleQueue
from threading import Lock
from typing import Any

import numpy as np

from headrace.core.image.canvas import view_as_image
from headrace.records.image import Uint8Array

_ROUND_UP_BYTES = 1 << 16
_KEEP_BELOW_BYTES = 64 << 20
"""A rare giant is given back to the system, or a few of them would stay for ever."""


class _Slab:
    """Reused memory, with the Pillow view of the size it was last used for: traffic repeats its sizes."""

    __slots__ = ("_pool", "_shape", "array", "image", "memory")

    def __init__(self, pool: PixelPool, size_bytes: int) -> None:
        self._pool = pool
        self._shape: tuple[int, ...] = ()
        self.memory: Uint8Array = np.empty(-(-size_bytes // _ROUND_UP_BYTES) * _ROUND_UP_BYTES, np.uint8)
        self.array: Uint8Array = self.memory
        self.image: Any = None

    def shape(self, width: int, height: int, channels: int) -> None:
        shape = (height, width) if channels == 1 else (height, width, channels)
        if shape != self._shape:
            self._shape = shape
            self.array = self.memory[: width * height * channels].reshape(shape)
            self.image = view_as_image(self.array)

    def release(self) -> None:
        self._pool.give_back(self)


class PixelPool:
    """At most `pictures` decoded pictures exist at once: that bounds the hand-over from decode to resize."""

    def __init__(self, pictures: int) -> None:
        self._room: SimpleQueue[None] = SimpleQueue()
        for _ in range(pictures):
            self._room.put(None)
        self._pictures = pictures
        self._lock = Lock()
        self._free: list[_Slab] = []

    def enter(self) -> None:
        """Waits until another picture may exist."""
        self._room.get()

    def leave(self) -> None:
        self._room.put(None)

    def take(self, width: int, height: int, channels: int) -> _Slab:
        """A canvas of that size. The smallest free slab that is large enough is used again."""
        size_bytes = width * height * channels
        slab = self._best_fit(size_bytes) or _Slab(self, size_bytes)
        slab.shape(width, height, channels)
        return slab

    def give_back(self, slab: _Slab) -> None:
        if slab.memory.nbytes > _KEEP_BELOW_BYTES:
            return
        with self._lock:
            self._free.append(slab)
            if len(self._free) > self._pictures:
                self._free.remove(min(self._free, key=lambda free: free.memory.nbytes))

    def _best_fit(self, size_bytes: int) -> _Slab | None:
        with self._lock:
            large_enough = [slab for slab in self._free if slab.memory.nbytes >= size_bytes]
            if not large_enough:
                return None
            best = min(large_enough, key=lambda slab: slab.memory.nbytes)
            self._free.remove(best)
            return best

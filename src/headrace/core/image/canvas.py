"""Memory that pixels are decoded into, with a Pillow view on it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
from PIL import Image

from headrace.records.image import Uint8Array

FOUR_BYTES = "RGBA"
"""The Pillow mode under which decoder and resizer accept foreign four-byte memory. The fourth byte is never read as alpha."""


def view_as_image(array: Uint8Array) -> Any:
    """A Pillow image over the memory of `array`, uint8[h, w, 4] or [h, w], C order: no copy, either side may write."""
    mode = "L" if array.ndim == 2 else FOUR_BYTES
    return Image.frombuffer(mode, (array.shape[1], array.shape[0]), array, "raw", mode, 0, 1)


class Canvas(Protocol):
    """Memory for one picture of a size asked for."""

    @property
    def memory(self) -> Uint8Array:
        """uint8[>= width * height * channels], uninitialised."""

    @property
    def array(self) -> Uint8Array:
        """The same as uint8[height, width, 4] or, for one channel, [height, width]."""

    @property
    def image(self) -> Any:
        """The Pillow view on it."""

    def release(self) -> None:
        """Gives the memory back; neither view may be read afterwards."""


Take = Callable[[int, int, int], Canvas]
"""Asks for (width, height, channels), channels 1 or 4."""


class FreshCanvas:
    """Memory of its own: for tools that decode now and then."""

    def __init__(self, width: int, height: int, channels: int) -> None:
        shape = (height, width) if channels == 1 else (height, width, channels)
        self.memory: Uint8Array = np.empty(width * height * channels, np.uint8)
        self.array: Uint8Array = self.memory.reshape(shape)
        self.image = view_as_image(self.array)

    def release(self) -> None:
        """Nothing to give back to."""

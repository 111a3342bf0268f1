"""What an image is at each state of its way: a wrong order does not type-check.

`Encoded` -> `Header` -> `Pixels` -> (prepared, in a batch slot) -> `Prediction`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NewType

import numpy as np
import numpy.typing as npt

Uint8Array = npt.NDArray[np.uint8]
FloatArray = npt.NDArray[np.float32]
AnyArray = npt.NDArray[Any]

Data = bytes | bytearray
"""The bytes of a file. A bytearray is what a socket was read into; nobody writes to it afterwards."""

Prepared = NewType("Prepared", np.ndarray)
"""uint8[H, W, C] at the model's size, C order, channel order and range (0..255) of the recipe's colour; a view of a batch slot."""


@dataclass(frozen=True, slots=True)
class Encoded:
    """An image as it came: bytes nobody has looked into yet."""

    data: Data
    name: str = ""
    """What people call it: a file name or URL; empty for a posted body."""


@dataclass(frozen=True, slots=True)
class Header:
    """What the first bytes promise. Nothing was allocated to learn this; nothing here is trusted beyond the limits."""

    format: str
    """`jpeg`, `png`, `webp`, `gif`, `bmp`, `tiff`, `avif` or `heic`."""
    width: int
    height: int
    """Pixels as stored, before orientation."""
    orientation: int = 1
    """EXIF orientation 1..8; 1 when absent or out of range."""
    frames: int = 1
    """Frames promised; 2 stands for "more than one" where the header does not say how many."""
    channels: int = 3
    bits: int = 8
    """Bits per channel."""
    progressive: bool = False
    """JPEG: several scans; PNG, GIF: interlaced."""
    sampling: tuple[tuple[int, int], ...] = ()
    """JPEG: horizontal and vertical sampling factor of each component."""
    colour: str = "rgb"
    """How samples are coded: `rgb`, `ycc`, `grey`, `cmyk`, `palette`."""
    alpha: bool = False
    icc: bool = False
    """A colour profile is embedded."""

    @property
    def pixels(self) -> int:
        return self.width * self.height

    @property
    def oriented_size(self) -> tuple[int, int]:
        """(width, height) as a person sees it."""
        return (self.height, self.width) if self.orientation >= 5 else (self.width, self.height)


@dataclass(frozen=True, slots=True)
class Pixels:
    """Decoded pixels, on their way to the resize.

    `image` is a Pillow image whose memory holds four bytes a pixel (R, G, B and one unused byte; mode RGB or RGBA) or one (L): that is
    what a SIMD resize reads in place. It may be a view of a reused buffer: `release()` gives the memory back, after
    which `image` must not be read.
    """

    image: Any
    """PIL.Image.Image, uint8, sRGB-like or as stored (see the recipe's `icc`)."""
    orientation: int
    """Still to be applied, 1..8."""
    stored: tuple[int, int]
    """(width, height) of the file, before any reduction and before orientation."""
    shrink: float = 1.0
    """Decoded size divided by stored size; exact also where the decoder rounded the size up, and the last pixel is partly outside."""
    array: Uint8Array | None = None
    """The same memory as uint8[h, w, 4] or [h, w], where it is plain memory and not Pillow's own."""
    icc_profile: bytes | None = None
    release: Callable[[], None] = field(default=lambda: None)


@dataclass(frozen=True, slots=True)
class Prediction:
    """What the model said about one image."""

    outputs: dict[str, AnyArray]
    """By output name, without the batch dimension."""

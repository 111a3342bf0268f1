"""Every other format, and the odd JPEG, to 8-bit pixels through Pillow."""

from __future__ import annotations

import struct
import zlib
from io import BytesIO
from typing import Any

import numpy as np
from PIL import AvifImagePlugin, Image, UnidentifiedImageError

from headrace.core.image.decode_plan import DecodePlan
from headrace.errors import ImageError, ImageTooLarge, UnsupportedMedia
from headrace.records.image import Data, Header, Pixels
from headrace.records.recipe import Recipe

Image.MAX_IMAGE_PIXELS = None
"""Pillow's own limit only warns at first; ours is applied to the header before Pillow sees the bytes, and again to what it found there."""
AvifImagePlugin.DEFAULT_MAX_THREADS = 1
"""One image, one thread: the pool of decode workers is the parallelism."""

_PLUGINS = {
    "jpeg": ("JPEG", "MPO"),
    "png": ("PNG",),
    "webp": ("WEBP",),
    "gif": ("GIF",),
    "tiff": ("TIFF",),
    "bmp": ("BMP", "DIB"),
    "avif": ("AVIF",),
    "heic": ("HEIF",),
}

_BROKEN = (
    OSError,
    SyntaxError,
    ValueError,
    EOFError,
    IndexError,
    KeyError,
    TypeError,
    OverflowError,
    ZeroDivisionError,
    MemoryError,
    RuntimeError,
    struct.error,
    zlib.error,
)
"""What Pillow's plugins raise on hostile bytes."""


def decode(data: Data, header: Header, plan: DecodePlan, recipe: Recipe) -> Pixels:
    """The first frame or page as mode RGB or L. Raises ImageError, ImageTooLarge or UnsupportedMedia."""
    _ensure_plugin(header.format)
    try:
        with Image.open(BytesIO(data), formats=_PLUGINS[header.format]) as image:
            return _decode(image, header, plan, recipe)
    except UnidentifiedImageError:
        raise ImageError(f"the {header.format} header is broken: the decoder does not recognise it") from None
    except _BROKEN as problem:
        raise ImageError(f"the {header.format} cannot be decoded: {problem}") from None


def _ensure_plugin(name: str) -> None:
    if name != "heic" or "HEIF" in Image.OPEN:
        return
    try:
        import pillow_heif
    except ImportError:
        raise UnsupportedMedia(
            "this is a HEIC image; install the extra headrace[heic] on the server to read it"
        ) from None
    pillow_heif.register_heif_opener(thumbnails=False, decode_threads=1)


def _decode(image: Any, header: Header, plan: DecodePlan, recipe: Recipe) -> Pixels:
    if image.width * image.height > header.pixels:
        raise ImageTooLarge(
            f"the {header.format} says {header.width}x{header.height} and holds {image.width}x{image.height}"
        )
    stored = image.size
    if plan.eighths < 8:
        image.draft(
            None, (max(1, header.width * plan.eighths // 8), max(1, header.height * plan.eighths // 8))
        )
    reduced = image.size != stored
    orientation = _orientation(image, header)
    profile = image.info.get("icc_profile")
    image.load()
    if header.format == "tiff" and orientation > 1:
        image = image.transpose(_UNTURN[orientation])
    return Pixels(
        _eight_bit_rgb(image, recipe),
        orientation,
        stored if reduced else image.size,
        _nearest_eighths(image.width, stored[0]) / 8 if reduced else 1.0,
        icc_profile=profile if recipe.icc == "srgb" else None,
    )


def _nearest_eighths(decoded: int, stored: int) -> int:
    return min((1, 2, 4, 8), key=lambda n: abs(decoded - stored * n / 8))


def _orientation(image: Any, header: Header) -> int:
    """Pillow reads EXIF of every format, and the rotation boxes of AVIF; HEIC is turned by its decoder, TIFF by Pillow."""
    if header.format == "heic":
        return 1
    if header.format in ("jpeg", "png", "webp"):
        return header.orientation
    value = image.getexif().get(0x0112, 1)
    return value if isinstance(value, int) and 1 <= value <= 8 else 1


_UNTURN = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_90,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_270,
}
"""EXIF orientation -> from the upright picture back to the stored one. Pillow turns a TIFF as it loads it, and nothing else."""


def _eight_bit_rgb(image: Any, recipe: Recipe) -> Any:
    if image.mode in ("RGB", "L"):
        return _without_key_colour(image, recipe)
    if image.mode.startswith("I"):
        return _scaled_to_eight_bits(image)
    if image.mode == "F":
        raise ImageError(
            "the image has floating-point pixels, whose range is not defined; convert it to 8 or 16 bits"
        )
    if image.mode == "1":
        return image.convert("L")
    if recipe.alpha != "drop" and image.has_transparency_data:
        return _blended(image, recipe.alpha)
    return image.convert("L" if image.mode == "LA" else "RGB")


def _without_key_colour(image: Any, recipe: Recipe) -> Any:
    if recipe.alpha != "drop" and image.has_transparency_data:
        return _blended(image, recipe.alpha)
    return image


def _scaled_to_eight_bits(image: Any) -> Any:
    """16-bit grey by its high byte, as every 16-bit RGB decoder does; a plain convert would clip it to white."""
    values = np.asarray(image)
    if values.dtype.itemsize > 2 and (values.min() < 0 or values.max() > 0xFFFF):
        raise ImageError(
            f"the image has 32-bit pixels ({values.min()} to {values.max()}); up to 16 bits are read"
        )
    return Image.fromarray((values >> 8).astype(np.uint8))


def _blended(image: Any, background: str) -> Any:
    canvas = Image.new("RGBA", image.size, background)
    canvas.alpha_composite(image.convert("RGBA"))
    return canvas.convert("RGB")

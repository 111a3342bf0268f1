"""Small pictures in every format and layout, the ways to prepare them, and the fetched photographs where there are any."""

from __future__ import annotations

from functools import lru_cache
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from headrace.core.image import reference
from headrace.core.image.canvas import FreshCanvas
from headrace.core.image.decode import decode
from headrace.core.image.decode_plan import Limits, plan_decode
from headrace.core.image.header import read_header
from headrace.core.image.resize import Resizer
from headrace.errors import AssetError
from headrace.lab.assets import Assets, load
from headrace.records.image import Encoded, Pixels
from headrace.records.recipe import Recipe
from headrace.records.settings import Settings

LIMITS = Limits(Settings().limits_max_pixels, Settings().limits_max_decode_bytes)

UPRIGHT_TO_STORED = {
    1: None,
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_90,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_270,
}
"""EXIF orientation -> how the stored picture comes from the upright one, in Pillow's words."""


@lru_cache
def picture(width: int = 97, height: int = 61, mode: str = "RGB") -> Image.Image:
    """Waves without symmetry and a little noise, so that a turned or shifted picture shows."""
    y, x = np.mgrid[0:height, 0:width].astype(np.float32)
    noise = np.random.default_rng(width * 10_007 + height).normal(0, 3, (height, width, 4)).astype(np.float32)
    waves = [
        110 + x * 60 / width + 60 * np.sin(x / (9 + 3 * n) + n + y / 31) * np.cos(y / (11 + 2 * n))
        for n in range(4)
    ]
    pixels = Image.fromarray(np.clip(np.stack(waves, -1) + noise, 0, 255).astype(np.uint8), "RGBA")
    return pixels if mode == "RGBA" else pixels.convert("RGB").convert(mode)


def encoded(image: Image.Image, kind: str, **options: object) -> bytes:
    out = BytesIO()
    image.save(out, kind, **options)
    return out.getvalue()


def exif(orientation: int) -> bytes:
    tags = Image.Exif()
    tags[0x0112] = orientation
    return tags.tobytes()


def turned(orientation: int, kind: str, image: Image.Image, **options: object) -> bytes:
    """`image` stored so that `orientation` makes it upright."""
    turn = UPRIGHT_TO_STORED[orientation]
    stored = image.transpose(turn) if turn is not None else image
    if kind == "TIFF":
        return encoded(stored, kind, tiffinfo={274: orientation}, **options)
    return encoded(stored, kind, exif=exif(orientation), **options)


@lru_cache
def small_files() -> dict[str, bytes]:
    """Whole files of a few kilobytes, by what they are."""
    rgb, grey, rgba = picture(48, 31), picture(48, 31, "L"), picture(48, 31, "RGBA")
    second = rgb.rotate(180)
    grey16 = Image.fromarray(np.arange(48 * 31, dtype=np.uint16).reshape(31, 48) * 44)
    return {
        "jpeg baseline": encoded(rgb, "JPEG", exif=exif(6)),
        "jpeg progressive": encoded(rgb, "JPEG", progressive=True),
        "jpeg grey": encoded(grey, "JPEG"),
        "jpeg cmyk": encoded(picture(48, 31, "CMYK"), "JPEG"),
        "png rgb": encoded(rgb, "PNG", exif=exif(3)),
        "png rgba": encoded(rgba, "PNG"),
        "png palette": encoded(rgb.quantize(9), "PNG", transparency=2),
        "png grey16": encoded(grey16, "PNG"),
        "png bilevel": encoded(grey.convert("1"), "PNG"),
        "png animated": encoded(rgb, "PNG", save_all=True, append_images=[second]),
        "gif": encoded(rgb.quantize(9), "GIF"),
        "gif animated": encoded(rgb, "GIF", save_all=True, append_images=[second], loop=0),
        "webp lossy": encoded(rgb, "WEBP"),
        "webp turned": encoded(rgb, "WEBP", exif=exif(6)),
        "webp lossless alpha": encoded(rgba, "WEBP", lossless=True),
        "webp animated": encoded(rgb, "WEBP", save_all=True, append_images=[second]),
        "tiff raw": encoded(rgb, "TIFF", tiffinfo={274: 8}),
        "tiff deflate": encoded(rgb, "TIFF", compression="tiff_adobe_deflate"),
        "tiff big": encoded(rgb, "TIFF", big_tiff=True),
        "tiff pages": encoded(rgb, "TIFF", compression="tiff_lzw", save_all=True, append_images=[second]),
        "bmp rgb": encoded(rgb, "BMP"),
        "bmp palette": encoded(rgb.quantize(9), "BMP"),
        "avif": encoded(rgb, "AVIF", speed=10),
        "avif alpha": encoded(rgba, "AVIF", speed=10),
    }


def decoded(data: bytes, recipe: Recipe, fidelity: str = "fast", limits: Limits = LIMITS) -> Pixels:
    header = read_header(data)
    plan = plan_decode(header, recipe, fidelity, True, limits)
    return decode(Encoded(data), header, plan, recipe, FreshCanvas)


def prepared(data: bytes, recipe: Recipe, fidelity: str = "fast", limits: Limits = LIMITS) -> np.ndarray:
    """uint8[H, W, C], the whole way from bytes."""
    slot = np.full((recipe.height, recipe.width, recipe.channels), 77, np.uint8)
    Resizer(recipe).write(decoded(data, recipe, fidelity, limits), slot)
    return slot


def reference_of(data: bytes, recipe: Recipe) -> np.ndarray:
    return reference.prepare(Encoded(data), read_header(data), recipe)


def apart(one: np.ndarray, other: np.ndarray) -> float:
    """Mean absolute difference in levels."""
    return float(np.mean(np.abs(one.astype(np.int16) - other.astype(np.int16))))


@lru_cache
def assets_or_none() -> Assets | None:
    try:
        return load()
    except AssetError:
        return None


def assets() -> Assets:
    found = assets_or_none()
    if found is None:
        pytest.skip("the photographs are not here; `python -m headrace.lab.assets` fetches them")
    return found


def awkward() -> list[Path]:
    """For parametrising: empty where the files are missing."""
    found = assets_or_none()
    return list(found.awkward) if found else []


def awkward_named(ending: str) -> bytes:
    """The one awkward file whose name ends so."""
    paths = [path for path in assets().awkward if path.name.endswith(ending)]
    if not paths:
        pytest.skip(f"no awkward file {ending} here")
    return paths[0].read_bytes()

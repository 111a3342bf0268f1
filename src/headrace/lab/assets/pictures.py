"""Make the sets of pictures whose decoding is measured: 12 MP baseline, progressive and PNG, and small ones.

All sets come from the same pixels, so that only the encoding differs between them. The pictures are stored as a phone
stores them: quality 92, colour at half resolution, standard Huffman tables, the colour profile kept. Some sources
were compressed so hard that their sensor's grain is gone, and with it half of the bytes a phone would have written
(and the time to decode them); those get a faint seeded grain back. Orientation tags are dropped, not obeyed: every
source was looked at, and its pixels stand upright (one carries a stale tag).
"""

from __future__ import annotations

import zlib
from pathlib import Path

import numpy as np
from PIL import Image, ImageOps

from headrace.errors import AssetError
from headrace.lab.assets.catalogue import (
    LARGE_BASELINE,
    LARGE_PNG,
    LARGE_PROGRESSIVE,
    NATURAL,
    SMALL,
    LargePicture,
)
from headrace.lab.assets.files import replacing

SMALL_SIDE = 256
REVISION = 1  # raised when the pictures come out otherwise
_SUBSAMPLING_420 = 2
_MAX_PIXELS = 40_000_000


def make_large(root: Path, picture: LargePicture) -> list[str]:
    """One photograph in all sets; returns the names written below `root`."""
    pixels, profile = _decode(root / picture.source)
    if picture.size is not None and picture.size != pixels.size:
        pixels = ImageOps.fit(pixels, picture.size, Image.Resampling.LANCZOS)
    if picture.grain:
        pixels = _with_grain(pixels, picture.grain, seed=zlib.crc32(picture.name.encode()))
    small = ImageOps.fit(pixels, (SMALL_SIDE, SMALL_SIDE), Image.Resampling.LANCZOS)
    baseline, progressive = f"{LARGE_BASELINE}{picture.name}.jpg", f"{LARGE_PROGRESSIVE}{picture.name}.jpg"
    names = [baseline, progressive, f"{SMALL}{picture.name}.jpg"]
    _save_jpeg(pixels, root / baseline, profile, quality=92)
    _save_jpeg(pixels, root / progressive, profile, quality=92, progressive=True)
    _save_jpeg(small, root / names[2], profile, quality=90)
    if picture.png:
        names.append(f"{LARGE_PNG}{picture.name}.png")
        with replacing(root / names[-1]) as temporary:
            pixels.save(temporary, "PNG", compress_level=3, icc_profile=profile)
    return names


def make_decoded(root: Path, name: str, source: str) -> list[str]:
    """A HEIF photograph as an ordinary JPEG of the same pixels."""
    pixels, profile = _decode(root / source)
    target = f"{NATURAL}{name}.jpg"
    _save_jpeg(pixels, root / target, profile, quality=92)
    return [target]


def _with_grain(pixels: Image.Image, sigma: float, seed: int) -> Image.Image:
    """Brightness noise, the same in all three channels, as sensors after demosaicing mostly show it."""
    noise = np.random.default_rng(seed).standard_normal((pixels.height, pixels.width), dtype=np.float32)
    grained = np.asarray(pixels).astype(np.int16) + np.rint(noise * sigma).astype(np.int16)[:, :, None]
    return Image.fromarray(np.clip(grained, 0, 255).astype(np.uint8))


def _save_jpeg(
    pixels: Image.Image, path: Path, profile: bytes | None, quality: int, progressive: bool = False
) -> None:
    with replacing(path) as temporary:
        pixels.save(
            temporary,
            "JPEG",
            quality=quality,
            subsampling=_SUBSAMPLING_420,
            progressive=progressive,
            icc_profile=profile,
        )


def _decode(path: Path) -> tuple[Image.Image, bytes | None]:
    """RGB pixels and the colour profile. HEIF needs the optional decoder."""
    if path.suffix in {".heic", ".hif"}:
        _enable_heif()
    try:
        with Image.open(path) as image:
            if image.width * image.height > _MAX_PIXELS:
                raise AssetError(f"{path.name} has {image.width}x{image.height} pixels, too many; refused")
            return image.convert("RGB"), image.info.get("icc_profile") or None
    except (OSError, Image.DecompressionBombError) as error:
        raise AssetError(f"{path.name} cannot be decoded: {error}") from error


def _enable_heif() -> None:
    try:
        import pillow_heif
    except ImportError:
        raise AssetError(
            "HEIF photographs need pillow-heif: pip install 'headrace[heic]', then run again"
        ) from None
    pillow_heif.register_heif_opener()

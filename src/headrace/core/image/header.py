"""Header first: what an image promises, read before anything is allocated, and the limits it is held against."""

from __future__ import annotations

from collections.abc import Callable

from headrace.core.image.formats import Malformed, bmff, bmp, gif, jpeg, png, tiff, webp
from headrace.errors import ImageError, UnsupportedMedia
from headrace.records.image import Data, Header

_BY_MAGIC: tuple[tuple[bytes, Callable[[Data], Header]], ...] = (
    (jpeg.MAGIC, jpeg.read),
    (png.MAGIC, png.read),
    (gif.MAGIC, gif.read),
    *((magic, tiff.read) for magic in tiff.MAGICS),
    (bmp.MAGIC, bmp.read),
)


def read_header(data: Data) -> Header:
    """What `data` says of itself.

    Raises UnsupportedMedia when the first bytes are of no format read here, ImageError when they are and the header is broken.
    """
    reader = _reader(data)
    if reader is None:
        raise UnsupportedMedia(
            f"the body ({len(data)} bytes, starting {data[:8].hex(' ') or 'with nothing'}) is no JPEG, PNG, WebP, AVIF, GIF, TIFF, BMP "
            "or HEIC image"
        )
    try:
        return reader(data)
    except Malformed as problem:
        raise ImageError(f"the image header is broken: {problem}") from None


def _reader(data: Data) -> Callable[[Data], Header] | None:
    for magic, reader in _BY_MAGIC:
        if data.startswith(magic):
            return reader
    if webp.is_webp(data):
        return webp.read
    return bmff.read if bmff.brand(data) else None

"""TIFF 6.0 and BigTIFF: the tags of the first directory that decide size and meaning."""

from __future__ import annotations

import struct

from headrace.core.image.formats import Malformed
from headrace.records.image import Data, Header

MAGICS = (b"II*\x00", b"MM\x00*", b"II+\x00", b"MM\x00+")

_WIDTH, _HEIGHT, _BITS, _PHOTOMETRIC, _ORIENTATION, _SAMPLES = 256, 257, 258, 262, 274, 277
_TILE_WIDTH, _TILE_HEIGHT, _EXTRA, _ICC = 322, 323, 338, 34675
_WANTED = frozenset({_WIDTH, _HEIGHT, _BITS, _PHOTOMETRIC, _ORIENTATION, _SAMPLES, _TILE_WIDTH, _TILE_HEIGHT})
_PRESENCE = frozenset({_EXTRA, _ICC})
_SIZES = {1: 1, 3: 2, 4: 4, 16: 8}
_COLOUR = {0: "grey", 1: "grey", 2: "rgb", 3: "palette", 5: "cmyk", 6: "ycc"}
_MAX_TAGS = 512
_MAX_TILE_PIXELS = 2048 * 2048
"""A decoder allocates whole tiles: one may be this large, or four times the picture."""


def read(data: Data) -> Header:
    """The header of the first page. Raises Malformed."""
    try:
        tags, more = _first_directory(data)
    except (struct.error, OverflowError):
        raise Malformed("the TIFF directory is cut off") from None
    width, height = tags.get(_WIDTH, 0), tags.get(_HEIGHT, 0)
    if width <= 0 or height <= 0:
        raise Malformed(f"the TIFF says its size is {width}x{height}")
    tile = tags.get(_TILE_WIDTH, 0) * tags.get(_TILE_HEIGHT, 0)
    if tile > max(4 * width * height, _MAX_TILE_PIXELS):
        raise Malformed(f"the TIFF is {width}x{height} and its tiles have {tile / 1e6:.0f} megapixels each")
    turn = tags.get(_ORIENTATION, 1)
    return Header(
        format="tiff",
        width=width,
        height=height,
        orientation=turn if 1 <= turn <= 8 else 1,
        frames=2 if more else 1,
        channels=min(tags.get(_SAMPLES, 1), 255),
        bits=tags.get(_BITS, 1),
        colour=_COLOUR.get(tags.get(_PHOTOMETRIC, 1), "rgb"),
        alpha=_EXTRA in tags,
        icc=_ICC in tags,
    )


def _first_directory(data: Data) -> tuple[dict[int, int], bool]:
    """First value of each wanted tag, and whether another page follows."""
    order = "<" if data[:2] == b"II" else ">"
    big = data[2:4] in (b"+\x00", b"\x00+")
    offset_format, count_format, entry_size = ("Q", "Q", 20) if big else ("I", "H", 12)
    (at,) = struct.unpack_from(order + offset_format, data, 8 if big else 4)
    (count,) = struct.unpack_from(order + count_format, data, at)
    at += struct.calcsize(count_format)
    tags: dict[int, int] = {}
    for _ in range(min(count, _MAX_TAGS)):
        tag, kind = struct.unpack_from(order + "HH", data, at)
        (values,) = struct.unpack_from(order + offset_format, data, at + 4)
        if tag in _WANTED and kind in _SIZES:
            tags[tag] = _first_value(
                data, order, kind, values, at + 4 + struct.calcsize(offset_format), offset_format
            )
        elif tag in _PRESENCE:
            tags[tag] = 1
        at += entry_size
    if count > _MAX_TAGS:
        return tags, False
    (following,) = struct.unpack_from(order + offset_format, data, at)
    return tags, following != 0


def _first_value(data: Data, order: str, kind: int, values: int, at: int, offset_format: str) -> int:
    if _SIZES[kind] * values > struct.calcsize(offset_format):
        (at,) = struct.unpack_from(order + offset_format, data, at)
    letter = {1: "B", 3: "H", 4: "I", 16: "Q"}[kind]
    (value,) = struct.unpack_from(order + letter, data, at)
    return int(value)

"""GIF (CompuServe 89a): logical screen and first frame."""

from __future__ import annotations

from headrace.core.image.formats import Malformed
from headrace.records.image import Data, Header

MAGIC = b"GIF8"
_MAX_BLOCKS = 65_536
"""Extension blocks before the first frame: 16 MiB of comments and metadata, more than any real file has."""


def read(data: Data) -> Header:
    """The header; the size is the larger of the screen and the first frame, since decoders allocate either. Raises Malformed."""
    if len(data) < 13 or data[:6] not in (b"GIF87a", b"GIF89a"):
        raise Malformed("the GIF header is cut off")
    width, height = _u16(data, 6), _u16(data, 8)
    at = 13 + (3 << ((data[10] & 7) + 1) if data[10] & 0x80 else 0)
    transparent, repeats, blocks = False, False, 0
    while data[at : at + 1] == b"\x21":
        if data[at + 1 : at + 3] == b"\xf9\x04":
            transparent = bool(data[at + 3 : at + 4]) and bool(data[at + 3] & 1)
        repeats = repeats or data[at + 1 : at + 14] == b"\xff\x0bNETSCAPE2.0"
        at += 2
        while at < len(data) and data[at] and blocks <= _MAX_BLOCKS:
            at += 1 + data[at]
            blocks += 1
        at, blocks = at + 1, blocks + 1
        if blocks > _MAX_BLOCKS:
            raise Malformed(f"the GIF has more than {_MAX_BLOCKS} blocks before its first frame")
    if data[at : at + 1] != b"\x2c" or at + 10 > len(data):
        raise Malformed("the GIF ends before its first frame")
    left, top, frame_width, frame_height = (_u16(data, at + 1 + 2 * n) for n in range(4))
    width, height = max(width, left + frame_width), max(height, top + frame_height)
    if not width or not height:
        raise Malformed(f"the GIF says its size is {width}x{height}")
    return Header(
        format="gif",
        width=width,
        height=height,
        frames=2 if repeats else 1,
        colour="palette",
        alpha=transparent,
    )


def _u16(data: Data, at: int) -> int:
    return int.from_bytes(data[at : at + 2], "little")

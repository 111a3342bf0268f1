"""GIF (CompuServe 89a): logical screen and first frame."""

from __future__ import annotations

from headrace.core.image.formats import Malformed
from headrace.records.image import Header

MAGIC = b"GIF8"


def read(data: bytes) -> Header:
    """The header; the size is the larger of the screen and the first frame, since decoders allocate either. Raises Malformed."""
    if len(data) < 13 or data[:6] not in (b"GIF87a", b"GIF89a"):
        raise Malformed("the GIF header is cut off")
    width, height = _u16(data, 6), _u16(data, 8)
    at = 13 + (3 << ((data[10] & 7) + 1) if data[10] & 0x80 else 0)
    transparent = False
    while at < len(data):
        kind = data[at]
        if kind == 0x21:
            if data[at + 1 : at + 3] == b"\xf9\x04" and at + 4 <= len(data):
                transparent = bool(data[at + 3] & 1)
            at = _after_blocks(data, at + 2)
        elif kind == 0x2C and at + 10 <= len(data):
            left, top, frame_width, frame_height = (_u16(data, at + 1 + 2 * n) for n in range(4))
            width, height = max(width, left + frame_width), max(height, top + frame_height)
            break
        else:
            break
    if not width or not height:
        raise Malformed(f"the GIF says its size is {width}x{height}")
    return Header(
        format="gif",
        width=width,
        height=height,
        frames=2 if b"NETSCAPE2.0" in data[:4096] else 1,
        colour="palette",
        alpha=transparent,
    )


def _u16(data: bytes, at: int) -> int:
    return int.from_bytes(data[at : at + 2], "little")


def _after_blocks(data: bytes, at: int) -> int:
    while at < len(data) and data[at]:
        at += 1 + data[at]
    return at + 1

"""PNG and APNG (W3C PNG, third edition)."""

from __future__ import annotations

from headrace.core.image.formats import Malformed
from headrace.core.image.formats.exif import orientation
from headrace.records.image import Data, Header

MAGIC = b"\x89PNG\r\n\x1a\n"

_CHANNELS = {0: 1, 2: 3, 3: 3, 4: 2, 6: 4}
_COLOUR = {0: "grey", 2: "rgb", 3: "palette", 4: "grey", 6: "rgb"}
_MAX_CHUNKS = 4096
"""Chunks before the picture data; real files have a handful, screenshots and generated pictures some dozens."""


def read(data: Data) -> Header:
    """The header: all chunks before the picture data. Raises Malformed."""
    if len(data) < 33 or data[12:16] != b"IHDR":
        raise Malformed("the PNG has no IHDR")
    width, height = int.from_bytes(data[16:20], "big"), int.from_bytes(data[20:24], "big")
    bits, kind, interlace = data[24], data[25], data[28]
    if not width or not height or kind not in _CHANNELS or bits not in (1, 2, 4, 8, 16):
        raise Malformed(f"the PNG says {width}x{height}, {bits} bits, colour type {kind}")
    turn, frames, icc, transparent = 1, 1, False, kind in (4, 6)
    for name, payload in _chunks_before_pixels(data):
        if name == b"acTL" and len(payload) >= 4:
            frames = max(1, int.from_bytes(payload[:4], "big"))
        elif name == b"eXIf":
            turn = orientation(payload)
        elif name == b"iCCP":
            icc = True
        elif name == b"tRNS":
            transparent = True
    return Header(
        format="png",
        width=width,
        height=height,
        orientation=turn,
        frames=frames,
        channels=_CHANNELS[kind],
        bits=bits,
        progressive=interlace == 1,
        colour=_COLOUR[kind],
        alpha=transparent,
        icc=icc,
    )


def _chunks_before_pixels(data: Data) -> list[tuple[bytes, bytes]]:
    chunks: list[tuple[bytes, bytes]] = []
    at = 8
    while at + 8 <= len(data) and len(chunks) < _MAX_CHUNKS:
        length, name = int.from_bytes(data[at : at + 4], "big"), bytes(data[at + 4 : at + 8])
        if name == b"IDAT":
            return chunks
        chunks.append((name, bytes(data[at + 8 : at + 8 + min(length, 65_536)])))
        at += 12 + length
    raise Malformed("the PNG has no picture data")

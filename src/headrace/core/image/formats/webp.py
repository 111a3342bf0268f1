"""WebP (RFC 9649): RIFF chunks VP8, VP8L and VP8X."""

from __future__ import annotations

from headrace.core.image.formats import Malformed
from headrace.core.image.formats.exif import orientation
from headrace.records.image import Data, Header

MAGIC = b"RIFF"
_MAX_CHUNKS = 4096


def is_webp(data: Data) -> bool:
    return data[:4] == MAGIC and data[8:12] == b"WEBP"


def read(data: Data) -> Header:
    """The header. Raises Malformed."""
    kind, payload = data[12:16], data[20:36]
    if kind == b"VP8 " and len(payload) >= 10 and payload[3:6] == b"\x9d\x01\x2a":
        return _header(
            int.from_bytes(payload[6:8], "little") & 0x3FFF, int.from_bytes(payload[8:10], "little") & 0x3FFF
        )
    if kind == b"VP8L" and len(payload) >= 5 and payload[0] == 0x2F:
        packed = int.from_bytes(payload[1:5], "little")
        return _header((packed & 0x3FFF) + 1, (packed >> 14 & 0x3FFF) + 1, alpha=bool(packed >> 28 & 1))
    if kind == b"VP8X" and len(payload) >= 10:
        flags = payload[0]
        return _header(
            int.from_bytes(payload[4:7], "little") + 1,
            int.from_bytes(payload[7:10], "little") + 1,
            alpha=bool(flags & 0x10),
            frames=2 if flags & 0x02 else 1,
            icc=bool(flags & 0x20),
            turn=_exif_chunk(data) if flags & 0x08 else 1,
        )
    raise Malformed("the WebP has no VP8, VP8L or VP8X chunk")


def _header(
    width: int, height: int, *, alpha: bool = False, frames: int = 1, icc: bool = False, turn: int = 1
) -> Header:
    if not width or not height:
        raise Malformed(f"the WebP says its size is {width}x{height}")
    channels = 4 if alpha else 3
    return Header(
        "webp", width, height, orientation=turn, frames=frames, channels=channels, alpha=alpha, icc=icc
    )


def _exif_chunk(data: Data) -> int:
    """The orientation, read from the EXIF chunk, which follows the picture."""
    end = 8 + int.from_bytes(data[4:8], "little")
    if end > len(data):
        raise Malformed(f"the WebP says it has {end} bytes and has {len(data)}")
    at, seen = 12, 0
    while at + 8 <= end and seen < _MAX_CHUNKS:
        size = int.from_bytes(data[at + 4 : at + 8], "little")
        if data[at : at + 4] == b"EXIF":
            block = bytes(data[at + 8 : at + 8 + min(size, 65_536)])
            return orientation(block.removeprefix(b"Exif\0\0"))
        at += 8 + size + (size & 1)
        seen += 1
    return 1

"""The one EXIF value that changes pixels: the orientation."""

from __future__ import annotations

import struct

_ORIENTATION = 0x0112
_MAX_TAGS = 512
"""A real IFD has some dozens of tags; what claims more is not walked."""


def orientation(tiff: bytes) -> int:
    """Orientation 1..8 from an EXIF block that starts with its TIFF header; 1 when absent, out of range or broken.

    Broken EXIF never refuses an image: viewers ignore it, so do we (EXIF 2.32, 4.6.2 and 4.6.4 A).
    """
    order = {b"II*\x00": "<", b"MM\x00*": ">"}.get(tiff[:4])
    if order is None or len(tiff) < 10:
        return 1
    (offset,) = struct.unpack_from(order + "I", tiff, 4)
    if offset + 2 > len(tiff):
        return 1
    (count,) = struct.unpack_from(order + "H", tiff, offset)
    for index in range(min(count, _MAX_TAGS)):
        at = offset + 2 + 12 * index
        if at + 12 > len(tiff):
            return 1
        tag, kind, values = struct.unpack_from(order + "HHI", tiff, at)
        if tag == _ORIENTATION and kind == 3 and values == 1:
            (value,) = struct.unpack_from(order + "H", tiff, at + 8)
            return value if 1 <= value <= 8 else 1
    return 1

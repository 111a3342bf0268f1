"""Windows bitmap, all header versions."""

from __future__ import annotations

import struct

from headrace.core.image.formats import Malformed
from headrace.records.image import Data, Header

MAGIC = b"BM"
_RUN_LENGTH = (1, 2)
"""Compression: 8 and 4 bits. Pillow unpacks them byte by byte in Python (16 megapixels: 11 s with the interpreter locked)."""


def read(data: Data) -> Header:
    """The header. Raises Malformed."""
    if len(data) < 26:
        raise Malformed("the BMP header is cut off")
    (size,) = struct.unpack_from("<I", data, 14)
    if size == 12:
        width, height = struct.unpack_from("<HH", data, 18)
        (bits,) = struct.unpack_from("<H", data, 24)
    elif size >= 16 and len(data) >= 30:
        width, height = struct.unpack_from("<ii", data, 18)
        (bits,) = struct.unpack_from("<H", data, 28)
    else:
        raise Malformed(f"the BMP header says it is {size} bytes long")
    if size >= 20 and len(data) >= 34 and struct.unpack_from("<I", data, 30)[0] in _RUN_LENGTH:
        raise Malformed("the BMP is run-length coded; those are not read, because decoding one takes seconds")
    if width <= 0 or height == 0:
        raise Malformed(f"the BMP says its size is {width}x{height}")
    colour = "palette" if bits <= 8 else "rgb"
    return Header("bmp", width, abs(height), channels=4 if bits == 32 else 3, colour=colour)

"""JPEG (ITU-T T.81): the walk over its marker segments up to the first scan."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from headrace.core.image.formats import Malformed
from headrace.core.image.formats.exif import orientation
from headrace.records.image import Data, Header

MAGIC = b"\xff\xd8\xff"

SOI, EOI, SOS, DQT, DHT, DRI = 0xD8, 0xD9, 0xDA, 0xDB, 0xC4, 0xDD
_WITHOUT_LENGTH = frozenset({0x00, 0x01, 0xFF, EOI, *range(0xD0, 0xD9)})
_FRAMES = frozenset(range(0xC0, 0xD0)) - {DHT, 0xC8, 0xCC}
_DECODABLE = frozenset({0xC0, 0xC1, 0xC2})
"""Baseline, extended and progressive Huffman; the rest (lossless, hierarchical, arithmetic) no decoder here reads."""


_MARKER = re.compile(rb"\xff[\x01-\xcf\xd8-\xfe]")
"""What ends a scan: in entropy-coded data 0xFF is followed by zero, a restart or another 0xFF."""
_MAX_MARKERS = 4096
"""Markers and fill bytes walked over before a scan: several times what a profile and metadata of 16 MiB take."""


class Segment(NamedTuple):
    """One marker segment: `data[start:end]` is its payload, without marker and length."""

    marker: int
    start: int
    end: int


def segments(data: Data, at: int = 2) -> Iterator[Segment]:
    """Marker segments from `at` up to and including the next SOS or EOI. Raises Malformed when one leaves the data."""
    size = len(data)
    for _ in range(_MAX_MARKERS):
        at = data.find(b"\xff", at)
        if at < 0 or at + 1 >= size:
            raise Malformed("the JPEG ends before its first scan")
        marker = data[at + 1]
        if marker in _WITHOUT_LENGTH:
            if marker == EOI:
                yield Segment(marker, at + 2, at + 2)
                return
            at += 1 if marker in (0x00, 0xFF) else 2
            continue
        length = data[at + 2] << 8 | data[at + 3] if at + 3 < size else 0
        end = at + 2 + length
        if length < 2 or end > size:
            raise Malformed(f"JPEG segment 0x{marker:02x} at byte {at} is cut off")
        yield Segment(marker, at + 4, end)
        if marker == SOS:
            return
        at = end
    raise Malformed(f"the JPEG has more than {_MAX_MARKERS} markers before a scan")


def without_strays(data: Data) -> bytes:
    """The JPEG without stray bytes between the segments of its header and without zeros that pad its first scan. Raises Malformed."""
    parts: list[Data] = [b"\xff\xd8"]
    at = 2
    for segment in segments(data):
        parts.append(bytes((0xFF, segment.marker)) + data[segment.start - 2 : segment.end])
        at = segment.end
    following = _MARKER.search(data, at)
    if following is not None:
        scan = data[at : following.start()].rstrip(b"\0")
        parts.append(scan + b"\0" if scan.endswith(b"\xff") else scan)
        at = following.start()
    return b"".join(parts) + data[at:]


def read(data: Data) -> Header:
    """The header. Raises Malformed."""
    turn, icc, adobe, frame, first_scan = 1, False, None, None, 0
    for marker, start, end in segments(data):
        if marker == SOS:
            first_scan = data[start] if end > start else 0
        elif marker in _FRAMES:
            frame = _frame(marker, bytes(data[start:end]))
        elif marker == 0xE1 and data.startswith(b"Exif\0\0", start):
            turn = orientation(bytes(data[start + 6 : end]))
        elif marker == 0xE2 and data.startswith(b"ICC_PROFILE\0", start):
            icc = True
        elif marker == 0xEE and data.startswith(b"Adobe", start) and end - start >= 12:
            adobe = data[start + 11]
    if frame is None or not first_scan:
        raise Malformed("the JPEG has no frame header or no scan")
    marker, bits, height, width, components = frame
    return Header(
        format="jpeg",
        width=width,
        height=height,
        orientation=turn,
        channels=len(components),
        bits=bits,
        progressive=marker == 0xC2 or first_scan < len(components),
        sampling=tuple([(h, v) for _, h, v in components]),
        colour=_colour(components, adobe),
        icc=icc,
    )


def _frame(marker: int, payload: bytes) -> tuple[int, int, int, int, list[tuple[int, int, int]]]:
    if marker not in _DECODABLE:
        raise Malformed(
            f"this kind of JPEG (SOF marker 0x{marker:02x}: lossless, hierarchical or arithmetic) is not read"
        )
    if len(payload) < 6 or len(payload) < 6 + 3 * payload[5]:
        raise Malformed("the JPEG frame header is cut off")
    bits, height, width = payload[0], int.from_bytes(payload[1:3], "big"), int.from_bytes(payload[3:5], "big")
    if not width or not height:
        raise Malformed(f"the JPEG says its size is {width}x{height}")
    if payload[5] not in (1, 3, 4):
        raise Malformed(f"the JPEG has {payload[5]} components, not 1, 3 or 4")
    components = [
        (payload[at], payload[at + 1] >> 4, payload[at + 1] & 15) for at in range(6, 6 + 3 * payload[5], 3)
    ]
    for _, h, v in components:
        if not (1 <= h <= 4 and 1 <= v <= 4):
            raise Malformed("a JPEG sampling factor is not 1 to 4")
    return marker, bits, height, width, components


def _colour(components: list[tuple[int, int, int]], adobe: int | None) -> str:
    if len(components) == 1:
        return "grey"
    if len(components) == 4:
        return "cmyk"
    named_rgb = adobe is None and [identifier for identifier, _, _ in components] == [82, 71, 66]
    return "rgb" if adobe == 0 or named_rgb else "ycc"

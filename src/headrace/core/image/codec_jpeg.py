"""JPEG to pixels at a reduced DCT scale, into memory the caller owns."""

from __future__ import annotations

import simplejpeg

from headrace.core.image import jpeg_scans
from headrace.core.image.canvas import Take
from headrace.core.image.decode_plan import DecodePlan
from headrace.core.image.formats import Malformed
from headrace.core.image.formats.jpeg import without_strays
from headrace.errors import ImageError
from headrace.records.image import Data, Header, Pixels, Uint8Array

_STRAYS = "extraneous bytes before marker"
"""A warning of libjpeg that may leave the picture whole: stray bytes between segments, or zeros that pad the last scan."""


def reads(header: Header) -> bool:
    """CMYK and 12-bit files go the general way."""
    return header.colour != "cmyk" and header.bits == 8


def decode(data: Data, header: Header, plan: DecodePlan, take: Take) -> Pixels:
    """uint8[h, w, 4] or, for grey, [h, w]. Raises ImageError for truncated or corrupt data; ValueError when the layout is not read here."""
    if plan.skip_scans:
        data = _without_unneeded_scans(data, header, plan)
    width, height = plan.size(header)
    colour, channels = ("GRAY", 1) if header.colour == "grey" else ("RGBX", 4)
    canvas = take(width, height, channels)
    try:
        _decode(data, colour, width, height, canvas.memory)
    except BaseException:
        canvas.release()
        raise
    return Pixels(
        canvas.image,
        header.orientation,
        (header.width, header.height),
        plan.eighths / 8,
        canvas.array,
        release=canvas.release,
    )


def _without_unneeded_scans(data: Data, header: Header, plan: DecodePlan) -> Data:
    try:
        return jpeg_scans.reduced(data, header, plan.eighths) or data
    except Malformed as problem:
        raise ImageError(f"the JPEG is truncated or corrupt: {problem}") from None


def _decode(data: Data, colour: str, width: int, height: int, memory: Uint8Array) -> Uint8Array:
    """Strict: the first warning refuses. Strays are taken out and the rest is held to the same measure."""
    try:
        return _strictly(data, colour, width, height, memory)
    except ValueError as problem:
        if _STRAYS not in str(problem):
            raise _named(problem) from None
    try:
        return _strictly(without_strays(data), colour, width, height, memory)
    except ValueError as problem:
        raise _named(problem) from None


def _strictly(data: Data, colour: str, width: int, height: int, memory: Uint8Array) -> Uint8Array:
    array: Uint8Array = simplejpeg.decode_jpeg(
        data, colour, min_width=width, min_height=height, buffer=memory
    )
    return array


def _named(problem: ValueError) -> Exception:
    text = str(problem)
    if "ubsampling" in text or "Unsupported" in text:
        return problem
    return ImageError(f"the JPEG is truncated or corrupt: {text}")

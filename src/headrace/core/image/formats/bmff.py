"""AVIF and HEIC: ISO base media boxes (ISO/IEC 14496-12, 23008-12), only as deep as the picture sizes lie."""

from __future__ import annotations

from collections.abc import Iterator

from headrace.core.image.formats import Malformed
from headrace.records.image import Data, Header

_AVIF_BRANDS = frozenset({b"avif", b"avis"})
_HEIC_BRANDS = frozenset({b"heic", b"heix", b"heim", b"heis", b"hevc", b"hevx", b"mif1", b"msf1"})
_MAX_BOXES = 4096


def brand(data: Data) -> str | None:
    """`avif`, `heic`, or None when the bytes are neither."""
    if data[4:8] != b"ftyp":
        return None
    end = min(int.from_bytes(data[:4], "big"), 512, len(data))
    head = bytes(data[:end])
    brands = {head[8:12], *(head[at : at + 4] for at in range(16, end - 3, 4))}
    if brands & _AVIF_BRANDS:
        return "avif"
    return "heic" if brands & _HEIC_BRANDS else None


def read(data: Data) -> Header:
    """The header. The size is the largest any item or track claims: grids and thumbnails have sizes of their own. Raises Malformed."""
    sizes, alpha, icc, bits = [(0, 0)], False, False, 8
    for kind, start, end in _walk(data, 0, len(data)):
        if kind == b"ispe" and end - start >= 12:
            sizes.append((_u32(data, start + 4), _u32(data, start + 8)))
        elif kind == b"auxC":
            alpha = alpha or b"auxid:1" in data[start:end] or b"alpha" in data[start:end]
        elif kind == b"pixi" and end - start > 5:
            bits = max(bits, *data[start + 5 : end])
        elif kind == b"colr":
            icc = icc or data[start : start + 4] in (b"prof", b"rICC")
    width, height = max(sizes, key=lambda size: size[0] * size[1])
    if not width or not height:
        raise Malformed("no picture size was found in the file's boxes")
    name = brand(data) or "heic"
    frames = 2 if data[8:12] in (b"avis", b"msf1", b"hevc") else 1
    channels = 4 if alpha else 3
    return Header(name, width, height, frames=frames, channels=channels, bits=bits, alpha=alpha, icc=icc)


def _walk(data: Data, start: int, end: int) -> Iterator[tuple[bytes, int, int]]:
    """(kind, payload start, payload end) of boxes, into those that hold picture properties; iterative and bounded."""
    spans, seen = [(start, end)], 0
    while spans:
        at, stop = spans.pop()
        while at + 8 <= stop and seen < _MAX_BOXES:
            seen += 1
            size, kind, payload = _u32(data, at), bytes(data[at + 4 : at + 8]), at + 8
            if size == 1:
                size, payload = int.from_bytes(data[at + 8 : at + 16], "big"), at + 16
            box_end = at + size if size else stop
            if kind == b"meta" and box_end > stop:
                raise Malformed("the boxes that describe the picture are cut off")
            box_end = min(box_end, stop)
            if box_end < payload:
                break
            yield kind, payload, box_end
            if kind == b"meta":
                spans.append((payload + 4, box_end))
            elif kind in (b"iprp", b"ipco"):
                spans.append((payload, box_end))
            at = box_end


def _u32(data: Data, at: int) -> int:
    return int.from_bytes(data[at : at + 4], "big")

"""Images packed by MXNet's im2rec: `.rec` files, with or without their `.idx`.

A record is the magic number, a word with its kind (3 bits) and length (29), that many bytes, zeros up to a multiple of four. Where an image
contains the magic number at such a place, the writer leaves it out and goes on in another part. The bytes begin with a header (flag,
label, id, id2), then `flag` labels when there are several, then the image as it was encoded. All is little-endian.
"""

from __future__ import annotations

import os
import struct
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from headrace.errors import UsageError
from headrace.units import format_bytes

MAGIC = struct.pack("<I", 0xCED7230A)
MOST_RECORD_BYTES = 512 * 2**20
MOST_RECORDS = 50_000_000
MOST_PARTS = 10_000
"""Of one record. By chance the magic number is in one of 16 GiB."""
_HEAD = struct.Struct("<4sI")
_IMAGE_HEAD = struct.Struct("<IfQQ")
_WHOLE, _FIRST, _MIDDLE, _LAST = range(4)


class Damage(Exception):
    """What is wrong with a record, and at which byte."""


class Part(NamedTuple):
    """A piece of a record: where its bytes begin, how many there are, where the next part begins."""

    kind: int
    start: int
    size_bytes: int
    end: int


@dataclass(frozen=True, slots=True)
class RecordPack:
    """Knows where each record begins; images are read when they are asked for."""

    path: Path
    offsets: Sequence[int]
    damage: str | None
    """Why the records end before the file does; None when they do not."""

    @classmethod
    def open(cls, path: Path) -> RecordPack:
        """By the index beside it where there is a sound one, else by passing over all heads, up to the first that is cut or damaged.

        Raises UsageError when the file cannot be read or its first record is no record.
        """
        try:
            with path.open("rb") as file:
                size_bytes = os.fstat(file.fileno()).st_size
                indexed = _indexed(path.with_suffix(".idx"), file.fileno(), size_bytes)
                offsets, damage = (indexed, None) if indexed else _scanned(file.fileno(), size_bytes)
        except OSError as problem:
            raise UsageError(f"{path} cannot be read: {problem.strerror or problem}") from None
        if not offsets:
            raise UsageError(f"{path} is no record pack: {damage or 'it is empty'}")
        return cls(path, offsets, damage and f"{path}: {damage}; read up to there, {len(offsets)} records")

    def __len__(self) -> int:
        return len(self.offsets)

    def name(self, number: int) -> str:
        """As in `train.rec#17`."""
        return f"{self.path.name}#{number}"

    def read(self, number: int) -> bytes:
        """The encoded image of record `number`, from 0. Raises UsageError that names the byte where it is damaged."""
        try:
            with self.path.open("rb") as file:
                return _image(file.fileno(), self.offsets[number], os.fstat(file.fileno()).st_size)
        except OSError as problem:
            raise UsageError(f"{self.path} cannot be read: {problem.strerror or problem}") from None
        except Damage as problem:
            raise UsageError(f"{self.path}: record {number}: {problem}") from None


def _image(file: int, offset: int, size_bytes: int) -> bytes:
    parts = list(_record(file, offset, size_bytes))
    record = MAGIC.join(os.pread(file, part.size_bytes, part.start) for part in parts)
    if len(record) < _IMAGE_HEAD.size:
        raise Damage(f"it has {len(record)} bytes at byte {offset}, too few for an image")
    labels = _IMAGE_HEAD.unpack_from(record)[0]
    start = _IMAGE_HEAD.size + 4 * labels
    if start >= len(record):
        raise Damage(f"it has {labels} labels and no image at byte {offset}")
    return record[start:]


def _record(file: int, offset: int, size_bytes: int) -> Iterator[Part]:
    """The parts of one record. Raises Damage."""
    part = _part(file, offset, size_bytes)
    if part.kind not in (_WHOLE, _FIRST):
        raise Damage(f"a part without a beginning at byte {offset}")
    yield part
    parts, total, more = 1, part.size_bytes, part.kind == _FIRST
    while more:
        at = part.end
        part = _part(file, at, size_bytes)
        parts, total = parts + 1, total + part.size_bytes
        if part.kind not in (_MIDDLE, _LAST):
            raise Damage(f"a record begins inside another at byte {at}")
        if total > MOST_RECORD_BYTES or parts > MOST_PARTS:
            raise Damage(
                f"a record of {parts} parts and {format_bytes(total)} at byte {offset}, too large for an image"
            )
        yield part
        more = part.kind == _MIDDLE


def _part(file: int, offset: int, size_bytes: int) -> Part:
    head = os.pread(file, _HEAD.size, offset)
    if len(head) < _HEAD.size:
        raise Damage(f"the file ends within the head of a record at byte {offset}")
    magic, word = _HEAD.unpack(head)
    if magic != MAGIC:
        raise Damage(f"no record begins at byte {offset} (it has {magic.hex(' ')}, not {MAGIC.hex(' ')})")
    start, length = offset + _HEAD.size, word & (2**29 - 1)
    if start + length > size_bytes:
        raise Damage(
            f"a record at byte {offset} says it has {length} bytes, the file ends after {size_bytes - start}"
        )
    return Part(word >> 29, start, length, start + -(-length // 4) * 4)


def _scanned(file: int, size_bytes: int) -> tuple[Sequence[int], str | None]:
    offsets, at = array("Q"), 0
    while at < size_bytes:
        if len(offsets) == MOST_RECORDS:
            return offsets, f"more than {MOST_RECORDS} records"
        try:
            *_, last = _record(file, at, size_bytes)
        except Damage as problem:
            return offsets, str(problem)
        offsets.append(at)
        at = last.end
    return offsets, None


def _indexed(path: Path, file: int, size_bytes: int) -> Sequence[int] | None:
    """Offsets from an index: lines of a key and a byte. None when there is none or it does not fit the pack."""
    offsets = array("Q")
    try:
        with path.open("rb") as lines:
            for line in lines:
                offsets.append(int(line.split(b"\t")[1]))
                if offsets[-1] >= size_bytes or len(offsets) > MOST_RECORDS:
                    return None
        for offset in (offsets[0], offsets[-1]):
            list(_record(file, offset, size_bytes))
    except (OSError, ValueError, IndexError, OverflowError, Damage):
        return None
    return offsets

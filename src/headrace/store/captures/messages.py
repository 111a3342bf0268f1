"""What an Arrow message says of itself, looked at before a decoder believes it: a capture may come from anybody.

A message is a mark, the length of its metadata, the metadata as a FlatBuffer (Arrow's Message.fbs and Schema.fbs), then a body. The
decoder takes kinds, lengths and places as they are told, and ends this process where they are wrong.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Mapping
from typing import NamedTuple

BITS: Mapping[str, int | None] = {
    "int16": 16, "int32": 32, "int64": 64, "float32": 32, "float64": 64, "bool": 1, "text": None,
}  # fmt: skip
"""Of a value, by the kind of its column."""
MOST_ROWS = 1 << 20
"""Of one batch; the writer makes none of over 16,384."""
MOST_BYTES = 1 << 28
"""Of one column of a batch, unpacked."""
_MOST_LISTED = 1 << 12

_HEADER, _BODY_LENGTH = 2, 3
"""Fields of `Message`."""
_SCHEMA_FIELDS = 1
_NAME, _KIND, _KIND_TABLE = 0, 2, 3
"""Fields of `Field`."""
_INT, _FLOAT, _TEXT, _BOOL = 2, 3, 5, 6
_ROWS, _NODES, _BUFFERS, _COMPRESSION, _VARIADIC = range(5)
"""Fields of `RecordBatch`."""


def schema_of(head: bytes) -> dict[str, str]:
    """The columns of a table's file and their kinds, in order. Raises ValueError: it is no schema, or not one of headrace's kinds."""
    try:
        metadata, _ = _parts(head)
        fields = _Table.at(metadata, 0).table(_HEADER).tables(_SCHEMA_FIELDS)
        return {field.text(_NAME): _kind(field) for field in fields}
    except struct.error:
        raise ValueError("its schema is cut") from None


def rows_of(batch: bytes) -> int:
    """How many rows a batch says that it has. Raises ValueError: it is no batch, or has more than any of ours."""
    try:
        metadata, _ = _parts(batch)
        rows = _Table.at(metadata, 0).table(_HEADER).number("<q", _ROWS)
    except struct.error:
        raise ValueError("the metadata of a batch is cut") from None
    if not 0 <= rows <= MOST_ROWS:
        raise ValueError("a batch has too many rows")
    return rows


def check_batch(batch: bytes, kinds: Collection[str]) -> None:
    """Raises ValueError: a column does not lie inside the batch, is shorter than its rows, or would take more memory than any of ours."""
    try:
        _check_batch(batch, kinds)
    except struct.error:
        raise ValueError("its metadata is cut") from None


def _kind(field: _Table) -> str:
    number, kind = field.number("<B", _KIND), field.table(_KIND_TABLE)
    if number == _INT and kind.number("<?", 1):
        name = f"int{kind.number('<i', 0)}"
    else:
        precision = {1: "float32", 2: "float64"}.get(kind.number("<h", 0), "")
        name = {_FLOAT: precision, _TEXT: "text", _BOOL: "bool"}.get(number, "")
    if name not in BITS:
        raise ValueError(f"column {field.text(_NAME)} is of a kind that headrace does not write")
    return name


def _check_batch(batch: bytes, kinds: Collection[str]) -> None:
    metadata, body = _parts(batch)
    message = _Table.at(metadata, 0)
    if message.number("<q", _BODY_LENGTH) != len(body):
        raise ValueError("its body is not as long as it says")
    record = message.table(_HEADER)
    rows, nodes = rows_of(batch), record.pairs(_NODES)
    if len(nodes) != len(kinds) or record.field(_VARIADIC) is not None:
        raise ValueError("it has columns that the table has not")
    packed = record.field(_COMPRESSION) is not None
    lengths = iter([_unpacked_length(body, *place, packed) for place in record.pairs(_BUFFERS)])
    for (length, nulls), kind in zip(nodes, kinds, strict=True):
        if length != rows or not 0 <= nulls <= rows:
            raise ValueError("its columns are not of one length")
        bits = BITS[kind]
        values = [32 * (rows + 1) if rows else 0, 0] if bits is None else [bits * rows]
        if any(8 * next(lengths, -1) < least for least in [rows if nulls else 0, *values]):
            raise ValueError("a column is shorter than its rows")


def _unpacked_length(body: bytes, offset: int, length: int, packed: bool) -> int:
    """Of one buffer. Packed ones begin with it; -1 there says that this one is not packed after all."""
    if not 0 <= offset <= offset + length <= len(body):
        raise ValueError("a column lies outside of it")
    told: int = struct.unpack_from("<q", body, offset)[0] if packed and length else length
    unpacked = length - 8 if told == -1 else told
    if not 0 <= unpacked <= MOST_BYTES:
        raise ValueError(f"a column takes more than {MOST_BYTES >> 20} MiB")
    return unpacked


def _parts(message: bytes) -> tuple[bytes, bytes]:
    """Metadata and body."""
    mark, size = struct.unpack_from("<Ii", message)
    if mark != 0xFFFFFFFF or not 0 < size <= len(message) - 8:
        raise ValueError("it is no message")
    return message[8 : 8 + size], message[8 + size :]


class _Table(NamedTuple):
    """A table of a FlatBuffer: fields by number, each at a place of its own or left out. Raises ValueError, struct.error."""

    data: bytes
    start: int
    fields: int
    """Where the list of the fields' places begins."""
    size: int
    """How many fields the list has places for."""

    @classmethod
    def at(cls, data: bytes, place: int) -> _Table:
        """The one that the reference at `place` leads to."""
        start = place + struct.unpack_from("<I", data, place)[0]
        fields = start - struct.unpack_from("<i", data, start)[0]
        if not 0 <= fields < len(data):
            raise ValueError("its metadata leads nowhere")
        (size,) = struct.unpack_from("<H", data, fields)
        return cls(data, start, fields + 4, max(0, size - 4) // 2)

    def field(self, number: int) -> int | None:
        """Where its value lies; None: left out, it has its default."""
        if number >= self.size:
            return None
        (offset,) = struct.unpack_from("<H", self.data, self.fields + 2 * number)
        return self.start + offset if offset else None

    def number(self, form: str, number: int) -> int:
        place = self.field(number)
        value: int = 0 if place is None else struct.unpack_from(form, self.data, place)[0]
        return value

    def table(self, number: int) -> _Table:
        place = self.field(number)
        if place is None:
            raise ValueError("its metadata lacks a part")
        return _Table.at(self.data, place)

    def tables(self, number: int) -> list[_Table]:
        start, count = self._listed(number, 4)
        return [_Table.at(self.data, start + 4 * place) for place in range(count)]

    def pairs(self, number: int) -> list[tuple[int, int]]:
        """A list of structs of two 64-bit numbers."""
        start, count = self._listed(number, 16)
        return list(struct.iter_unpack("<qq", self.data[start : start + 16 * count]))

    def text(self, number: int) -> str:
        """A name. Raises ValueError for anything else."""
        start, count = self._listed(number, 1)
        found = self.data[start : start + count].decode("ascii", "replace")
        if not found.isidentifier():
            raise ValueError(f"{found!r} is no name of a column")
        return found

    def _listed(self, number: int, size_bytes: int) -> tuple[int, int]:
        """Where a list begins and how many it has."""
        place = self.field(number)
        if place is None:
            return 0, 0
        start = place + struct.unpack_from("<I", self.data, place)[0]
        (count,) = struct.unpack_from("<I", self.data, start)
        if count > _MOST_LISTED or start + 4 + count * size_bytes > len(self.data):
            raise ValueError("a list in its metadata is longer than it")
        return start + 4, count

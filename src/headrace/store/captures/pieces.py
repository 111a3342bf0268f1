"""Rows to bytes and back: the pieces of an Arrow IPC stream.

A stream is a schema message, then batches, then an end mark (Arrow columnar format, "IPC streaming format"). Each batch is made as a
stream of its own, of which only the batch is kept: so a table can be appended to for hours, and every piece is whole by itself.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from functools import lru_cache
from io import BytesIO
from typing import Any

import numpy as np
from arro3.core import Array, DataType, Field, RecordBatch, Schema
from arro3.io import read_ipc_stream, write_ipc_stream
from numpy.typing import NDArray

from headrace.records.rows.column import Column
from headrace.store.captures.messages import check_batch, schema_of

END_MARK = b"\xff\xff\xff\xff\x00\x00\x00\x00"
_ARROW = {
    "int16": DataType.int16(),
    "int32": DataType.int32(),
    "int64": DataType.int64(),
    "float32": DataType.float32(),
    "float64": DataType.float64(),
    "bool": DataType.bool(),
    "text": DataType.utf8(),
}


def head_of(columns: Mapping[str, Column]) -> bytes:
    """The schema message: the first bytes of a table's file."""
    return _head({name: column.kind for name, column in columns.items()})


def _head(kinds: Mapping[str, str]) -> bytes:
    return _split(_stream(kinds, []))[0]


def batch_of(columns: Mapping[str, Column], rows: Sequence[tuple[Any, ...]]) -> bytes:
    """One batch message. A value that does not fit its column is stored as missing."""
    return _split(_stream({name: column.kind for name, column in columns.items()}, rows))[1]


def columns_of(head: bytes, batch: bytes, wanted: Mapping[str, Column]) -> dict[str, NDArray[Any]]:
    """The wanted columns of a batch; one that the file does not have is missing in every row. Raises ValueError when it cannot be read."""
    try:
        names, own_head = _schema(head)
        check_batch(batch, names.values())
        (found,) = read_ipc_stream(BytesIO(own_head + batch + END_MARK))
        return {
            name: _numpy(found.column(name), column) if name in names else _missing(found.num_rows, column)
            for name, column in wanted.items()
        }
    except Exception as problem:
        raise ValueError(f"no Arrow batch: {problem}") from None


@lru_cache(64)
def _schema(head: bytes) -> tuple[Mapping[str, str], bytes]:
    """The file's columns, and a schema message of our own making for them: the file's may say more than a decoder stands."""
    kinds = schema_of(head)
    return kinds, _head(kinds)


def _stream(kinds: Mapping[str, str], rows: Sequence[tuple[Any, ...]]) -> bytes:
    schema = Schema([Field(name, _ARROW[kind], nullable=True) for name, kind in kinds.items()])
    values = zip(*rows, strict=True) if rows else ([] for _ in kinds)
    arrays = [_array(kind, cells) for kind, cells in zip(kinds.values(), values, strict=True)]
    stream = BytesIO()
    write_ipc_stream(RecordBatch(arrays, schema=schema), stream, compression="zstd")
    return stream.getvalue()


def _split(stream: bytes) -> tuple[bytes, bytes]:
    """A message is a mark of four bytes, the length of its metadata in four, the metadata; a schema has no body."""
    head = 8 + struct.unpack_from("<i", stream, 4)[0]
    return stream[:head], stream[head : -len(END_MARK)]


def _array(kind: str, cells: Sequence[Any]) -> Array:
    try:
        return Array(cells, type=_ARROW[kind])
    except Exception:
        return Array([_fitting(kind, cell) for cell in cells], type=_ARROW[kind])


def _fitting(kind: str, cell: Any) -> Any:
    if isinstance(cell, str):
        return cell.encode("utf-8", "replace").decode()
    try:
        Array([cell], type=_ARROW[kind])
    except Exception:
        return None
    return cell


def _numpy(array: Any, column: Column) -> NDArray[Any]:
    """Raises ValueError where the file has text for numbers or numbers for text."""
    if (array.type == _ARROW["text"]) != (column.kind == "text"):
        raise ValueError(f"it has {array.type} where {column.kind} belongs")
    if column.kind == "text":
        return np.array(array.to_pylist(), dtype=object)
    if array.null_count:
        return np.array(array.to_pylist(), dtype=np.float64)
    return np.asarray(array.to_numpy())


def _missing(rows: int, column: Column) -> NDArray[Any]:
    return np.full(rows, None, dtype=object) if column.kind == "text" else np.full(rows, np.nan)

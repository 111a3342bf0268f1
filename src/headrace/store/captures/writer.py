"""Writing a capture: append only, so that whatever stops it leaves all that was written before."""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO

import orjson

from headrace.errors import StorageError, UsageError
from headrace.records.capture import End, Manifest, Note
from headrace.records.tables import NAME_OF, columns
from headrace.store.captures.pieces import END_MARK, batch_of, head_of

MOST_ROWS = 16_384
"""Rows of one piece: a few hundred kilobytes in memory, and what a reader has in memory at a time."""


class CaptureWriter:
    """Not synchronised: one thread at a time. Raises StorageError when the disk will not take more; what is there stays readable."""

    def __init__(self, folder: Path, manifest: Manifest) -> None:
        self.folder = folder
        self._tables: dict[type[Any], _Table] = {}
        self._index = _Lines(folder / "index.jsonl")
        self._notes = _Lines(folder / "notes.jsonl")
        self._ended = False
        _write_whole(folder / "manifest.json", asdict(manifest))

    @classmethod
    def create(cls, folder: Path, manifest: Manifest) -> CaptureWriter:
        """A new capture in a folder that is not there yet or empty. Raises UsageError, StorageError."""
        try:
            folder.mkdir(parents=True, exist_ok=True)
            if any(folder.iterdir()):
                raise UsageError(f"{folder} is not empty; name a new folder for the capture")
            return cls(folder, manifest)
        except OSError as problem:
            raise StorageError(
                f"{folder}: {problem.strerror or problem}; name a folder that can be written"
            ) from None

    def add(self, rows: Iterable[tuple[Any, ...]]) -> None:
        """Rows of any tables, kept in memory until there are enough or `flush` is called."""
        for row in rows:
            table = self._tables.get(type(row))
            if table is None:
                table = self._tables[type(row)] = _Table(self.folder, type(row), self._index)
            table.rows.append(row)
            if len(table.rows) >= MOST_ROWS:
                table.flush()

    def note(self, note: Note) -> None:
        """Written at once."""
        self._notes.append(asdict(note))

    def flush(self) -> None:
        """Everything to the file system. Each table with rows grows by a piece, so not more often than every few seconds.

        Raises StorageError also when the folder was deleted: open files would take rows that nobody can ever read.
        """
        if os.fstat(self._index.file.fileno()).st_nlink == 0:
            raise StorageError(
                f"{self.folder} was deleted while it was written to; what was recorded is lost"
            )
        for table in self._tables.values():
            table.flush()

    def finish(self, end: End) -> None:
        """Flushes, closes, and says that the capture is whole. Nothing happens the second time."""
        if self._ended:
            return
        self.flush()
        self._ended = True
        for table in self._tables.values():
            table.close()
        self._close_lines()
        _write_whole(self.folder / "end.json", asdict(end))

    def __enter__(self) -> CaptureWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Leaving by an error leaves a capture without an end; what was added is kept if the disk takes it."""
        if self._ended:
            return
        with suppress(StorageError):
            self.flush()
        for table in self._tables.values():
            table.file.close()
        self._close_lines()

    def _close_lines(self) -> None:
        self._index.file.close()
        self._notes.file.close()


class _Table:
    """One growing file."""

    def __init__(self, folder: Path, row: type[Any], index: _Lines) -> None:
        self.rows: list[tuple[Any, ...]] = []
        self._name = NAME_OF[row]
        self._columns = columns(row)
        self._index = index
        self._size = 0
        self.file: BinaryIO = _open(folder / f"{self._name}.arrows")
        self._append(head_of(self._columns), 0)

    def flush(self) -> None:
        if self.rows:
            rows, self.rows = self.rows, []
            self._append(batch_of(self._columns, rows), len(rows))

    def close(self) -> None:
        _append(self.file, END_MARK, self._size)
        self.file.close()

    def _append(self, piece: bytes, rows: int) -> None:
        _append(self.file, piece, self._size)
        self._index.append(
            {
                "table": self._name,
                "offset": self._size,
                "bytes": len(piece),
                "rows": rows,
                "crc32": zlib.crc32(piece),
            }
        )
        self._size += len(piece)


class _Lines:
    """A file of JSON lines."""

    def __init__(self, path: Path) -> None:
        self.file: BinaryIO = _open(path)
        self._size = 0

    def append(self, value: dict[str, Any]) -> None:
        line = _json(value) + b"\n"
        _append(self.file, line, self._size)
        self._size += len(line)


def _open(path: Path) -> BinaryIO:
    try:
        return path.open("xb", buffering=0)
    except OSError as problem:
        raise StorageError(f"{path}: {problem.strerror or problem}") from None


def _append(file: BinaryIO, data: bytes, offset: int) -> None:
    """All of it or nothing: half a piece is cut off again, so that a later one is not lost behind it."""
    try:
        written = 0
        while written < len(data):
            written += file.write(data[written:])
    except OSError as problem:
        os.ftruncate(file.fileno(), offset)
        file.seek(offset)
        raise StorageError(
            f"{file.name}: {problem.strerror or problem}; the capture reads up to here, free some room or name another place"
        ) from None


def _write_whole(path: Path, value: dict[str, Any]) -> None:
    """Under another name first: the file is there whole or not at all."""
    part = path.with_suffix(".part")
    try:
        part.write_bytes(_json(value, orjson.OPT_INDENT_2) + b"\n")
        part.replace(path)
    except OSError as problem:
        raise StorageError(f"{path}: {problem.strerror or problem}") from None


def _json(value: dict[str, Any], option: int = 0) -> bytes:
    """Names of files may hold bytes that are no text: these become `?`."""
    option |= orjson.OPT_SERIALIZE_NUMPY
    try:
        return orjson.dumps(value, option=option, default=str)
    except TypeError:
        return orjson.dumps(_encodable(value), option=option, default=str)


def _encodable(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, dict):
        return {_encodable(key): _encodable(part) for key, part in value.items()}
    return [_encodable(part) for part in value] if isinstance(value, list | tuple) else value

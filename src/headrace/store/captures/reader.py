"""Reading a capture, also one that was cut or damaged: up to the damage, and saying so."""

from __future__ import annotations

import errno
import os
import stat
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from types import NoneType
from typing import Any, BinaryIO, NamedTuple, TypeVar

import numpy as np
import orjson
from numpy.typing import NDArray

from headrace.errors import CaptureError
from headrace.records.capture import FORMAT, End, Manifest, Note
from headrace.records.tables import NAME_OF, columns
from headrace.store.captures.messages import rows_of
from headrace.store.captures.pieces import END_MARK, columns_of

T = TypeVar("T", Manifest, Note, End)


class Piece(NamedTuple):
    """Where a batch lies."""

    offset: int
    size_bytes: int
    rows: int


@dataclass(frozen=True, slots=True)
class Capture:
    """What is on disk, checked. Batches are read when they are asked for."""

    folder: Path
    manifest: Manifest
    end: End | None
    """None: still being written, or cut."""
    damage: tuple[str, ...]
    """What cannot be read, a sentence each; empty for a whole capture."""
    pieces: Mapping[str, tuple[Piece, ...]]
    """By table: the schema, then the batches."""

    @classmethod
    def open(cls, folder: Path) -> Capture:
        """Raises CaptureError when there is no capture here, or one of a format this version does not know."""
        manifest = _manifest(folder)
        end, damage = _end(folder)
        lines, cut = _lines(folder / "index.jsonl")
        damage += cut + _lines(folder / "notes.jsonl")[1]
        pieces: dict[str, tuple[Piece, ...]] = {}
        for name, entries in _by_table(lines).items():
            if entries or (folder / f"{name}.arrows").exists():
                pieces[name], trouble = _whole_pieces(folder / f"{name}.arrows", entries)
                damage += trouble
        return cls(folder, manifest, end, tuple(damage), pieces)

    def rows(self, row: type[Any]) -> int:
        """How many rows of this kind can be read."""
        return sum(piece.rows for piece in self.pieces.get(NAME_OF[row], ()))

    def batches(self, row: type[Any]) -> Iterator[dict[str, NDArray[Any]]]:
        """The table piece by piece, in the order of writing: text is an array of objects, None where it is missing; numbers are NaN there.

        Raises CaptureError when the file changed since `open`, and for what no writer of captures makes.
        """
        name, wanted = NAME_OF[row], columns(row)
        schema, *batches = self.pieces.get(name) or (None,)
        if schema is None:
            return
        try:
            with (self.folder / f"{name}.arrows").open("rb") as file:
                head = file.read(schema.size_bytes)
                for piece in batches:
                    file.seek(piece.offset)
                    yield columns_of(head, file.read(piece.size_bytes), wanted)
        except (OSError, ValueError) as problem:
            raise CaptureError(f"{self.folder / name}.arrows cannot be read: {problem}") from None

    def columns(self, row: type[Any]) -> dict[str, NDArray[Any]]:
        """The whole table in memory; arrays of length 0 when it has no rows."""
        parts = list(self.batches(row))
        return {
            name: np.concatenate([part[name] for part in parts]) if parts else np.empty(0)
            for name in columns(row)
        }

    def notes(self) -> list[Note]:
        """What happened, as far as it can be read."""
        lines, _ = _lines(self.folder / "notes.jsonl")
        return [note for line in lines if (note := _record(Note, line)) is not None]


def _manifest(folder: Path) -> Manifest:
    path = folder / "manifest.json"
    try:
        value = orjson.loads(_read(path))
    except OSError as problem:
        raise CaptureError(f"{folder} is no capture: {path.name}: {problem.strerror or problem}") from None
    except orjson.JSONDecodeError as problem:
        raise CaptureError(f"{path} is damaged: {problem}") from None
    version = value.get("format") if isinstance(value, dict) else None
    if not isinstance(version, int) or version < 1:
        raise CaptureError(f"{path} names no format; it is no manifest of a capture")
    if version > FORMAT:
        raise CaptureError(
            f"{folder} has format {version}, this headrace reads up to {FORMAT}; read it with a newer one"
        )
    manifest = _record(Manifest, value)
    if manifest is None:
        raise CaptureError(f"{path} lacks fields of a manifest; it was not written by headrace")
    return manifest


def _end(folder: Path) -> tuple[End | None, list[str]]:
    path = folder / "end.json"
    try:
        end = _record(End, orjson.loads(_read(path)))
    except FileNotFoundError:
        return None, ["it has no end: it is still being written, or the writing was cut"]
    except (OSError, orjson.JSONDecodeError):
        end = None
    return end, [] if end is not None else [f"{path.name} is damaged"]


def _record(kind: type[T], value: Any) -> T | None:
    """Fields of a later version are left out; None when one is lacking."""
    if not isinstance(value, dict):
        return None
    known = {field.name: value[field.name] for field in fields(kind) if field.name in value}
    if not all(
        isinstance(known[field.name], _KINDS[field.type]) for field in fields(kind) if field.name in known
    ):
        return None
    try:
        return kind(**known)
    except TypeError:
        return None


_KINDS: Mapping[Any, Any] = {
    "float": (int, float),
    "int": int,
    "int | None": (int, NoneType),
    "str": str,
    "str | None": (str, NoneType),
    "bool": bool,
    "Mapping[str, Any]": dict,
}
"""What JSON gives for a field's annotation."""


def _read(path: Path) -> bytes:
    """A whole small file. Raises OSError."""
    with _open(path) as file:
        if os.fstat(file.fileno()).st_size > MOST_BYTES:
            raise OSError(errno.EFBIG, f"it is larger than {MOST_BYTES >> 20} MiB")
        return file.read()


def _open(path: Path) -> BinaryIO:
    """Raises OSError; also for what is no regular file, which might block or never end."""
    file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    if stat.S_ISREG(os.fstat(file).st_mode):
        return os.fdopen(file, "rb")
    os.close(file)
    raise OSError(errno.EINVAL, "it is no file of a capture")


def _lines(path: Path) -> tuple[list[dict[str, Any]], list[str]]:
    """Every whole line up to the first that is none."""
    found: list[dict[str, Any]] = []
    try:
        text = _read(path)
    except OSError as problem:
        return found, [f"{path.name}: {problem.strerror or problem}"]
    for number, line in enumerate(text.splitlines(keepends=True), 1):
        try:
            value = orjson.loads(line)
        except orjson.JSONDecodeError:
            value = None
        if not line.endswith(b"\n") or not isinstance(value, dict):
            return found, [f"{path.name} is cut or damaged in line {number}; what follows is left out"]
        found.append(value)
    return found, []


def _by_table(lines: list[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """What the index tells of each table known here."""
    return {name: [line for line in lines if line.get("table") == name] for name in NAME_OF.values()}


def _whole_pieces(path: Path, entries: list[dict[str, Any]]) -> tuple[tuple[Piece, ...], list[str]]:
    """The pieces up to the first whose bytes are not as the index says."""
    pieces: list[Piece] = []
    position = 0
    try:
        with _open(path) as file:
            for entry in entries:
                piece = _piece(entry, position)
                data = file.read(piece.size_bytes) if piece else b""
                if piece is None or len(data) < piece.size_bytes or zlib.crc32(data) != entry.get("crc32"):
                    return tuple(pieces), [_lost(path, entries, pieces)]
                pieces.append(piece._replace(rows=rows_of(data) if pieces else 0))
                position += piece.size_bytes
            rest = file.read(len(END_MARK) + 1)
    except OSError as problem:
        return (), [f"{path.name}: {problem.strerror or problem}"]
    except ValueError as problem:
        return tuple(pieces), [f"{path.name} is damaged: {problem}"]
    return tuple(pieces), [] if rest in (b"", END_MARK) else [
        f"{path.name} goes on after its last whole piece: the writing was cut, or the index is damaged"
    ]


def _piece(entry: dict[str, Any], position: int) -> Piece | None:
    offset, size, rows = (entry.get(name) for name in ("offset", "bytes", "rows"))
    if not (
        isinstance(size, int) and isinstance(rows, int) and offset == position and 0 < size <= MOST_BYTES
    ):
        return None
    return Piece(position, size, rows)


MOST_BYTES = 1 << 30
"""No piece is nearly as large; a damaged index must not make us read more."""


def _lost(path: Path, entries: list[dict[str, Any]], pieces: list[Piece]) -> str:
    rows = sum(piece.rows for piece in pieces)
    return f"{path.name} is cut or damaged after {rows} rows; {len(entries) - max(1, len(pieces))} pieces are left out"

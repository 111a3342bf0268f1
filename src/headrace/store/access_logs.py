"""Access logs from disk, plain or gzip, line by line: what cannot be read is counted and told, and never ends the reading."""

from __future__ import annotations

import gzip
import heapq
import sys
import zlib
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, nullcontext
from dataclasses import dataclass, field
from io import BufferedReader
from itertools import chain
from pathlib import Path
from typing import BinaryIO, cast

from headrace.core.census.log_lines import NAMES, Format, LogEntry, recognise
from headrace.errors import UsageError

__all__ = ["LogEntry", "LogNotes", "is_access_log", "parse_fields", "read_access_log", "read_access_logs"]

LONGEST_LINE = 1 << 16
"""Bytes. Servers refuse request heads long before that."""
_LINES_TRIED = 100
"""Before a file counts as no access log: lines of the server's start may come first."""
_EXAMPLES = 5
_GZIP = b"\x1f\x8b"
STANDARD_INPUT = Path("-")
Lines = Generator[tuple[int, str | None], None, None]


@dataclass(slots=True)
class LogNotes:
    """How the logs that it was given to were read, and what of them was not."""

    formats: list[str] = field(default_factory=list)
    """Each that was met, and for JSON and CSV the fields that were chosen."""
    skipped: int = 0
    """Lines that were no entries."""
    examples: list[str] = field(default_factory=list)
    """The first few of them: file, line number and reason."""
    damage: list[str] = field(default_factory=list)
    """Files that could be read up to a place only, and why."""

    def skip(self, path: Path, number: int, reason: str) -> None:
        self.skipped += 1
        if len(self.examples) < _EXAMPLES:
            self.examples.append(f"{path}, line {number}: {reason}")


def parse_fields(text: str) -> dict[str, str]:
    """`time=ts,url=request.uri` -> what a field holds and its name in the log. Raises UsageError."""
    fields = {}
    for part in text.split(","):
        what, equals, name = part.partition("=")
        if not equals or what.strip() not in NAMES or not name.strip():
            raise UsageError(
                f"--fields {part!r} is not WHAT=NAME with WHAT one of {', '.join(NAMES)}, as in --fields time=ts,url=uri"
            )
        fields[what.strip()] = name.strip()
    return fields


def is_access_log(path: Path) -> bool:
    """Whether the first lines of `path` are of a format read here. Raises UsageError when it cannot be read."""
    with closing(_lines(path, LogNotes())) as lines:
        return _recognised(lines, {}, path, LogNotes()) is not None


def read_access_logs(
    paths: Sequence[Path],
    *,
    fields: Mapping[str, str] | None = None,
    strip_query: bool = False,
    notes: LogNotes | None = None,
) -> Iterator[LogEntry]:
    """The entries of several logs, rotated or of several servers, merged by time. As `read_access_log`."""
    logs = [read_access_log(path, fields=fields, strip_query=strip_query, notes=notes) for path in paths]
    return logs[0] if len(logs) == 1 else heapq.merge(*logs, key=lambda entry: entry.t_s)


def read_access_log(
    path: Path,
    *,
    fields: Mapping[str, str] | None = None,
    strip_query: bool = False,
    notes: LogNotes | None = None,
) -> Iterator[LogEntry]:
    """The requests of a log in its order, in bounded memory. `-` is standard input.

    Formats: common and combined, W3C extended, JSON lines, CSV with a header; plain or gzip, told by content. `fields` names the fields
    of JSON and CSV by what they hold (`headrace.core.census.log_lines.NAMES`); without it the usual names are looked for. `strip_query`
    takes `?...` off the keys. Lines that cannot be read are noted in `notes`; a file that is cut or damaged is read up to there, which is
    noted, too. Raises UsageError, at once, when the file cannot be opened or its first lines are of no format known here.
    """
    notes = notes if notes is not None else LogNotes()
    lines = _lines(path, notes)
    skipped, damaged = notes.skipped, len(notes.damage)
    log = _recognised(lines, fields or {}, path, notes)
    if log is None:
        lines.close()
        raise _no_log(path, fields or {}, notes.damage[damaged:], notes.skipped == skipped)
    return _entries(path, log, lines, strip_query, notes)


@dataclass(frozen=True, slots=True)
class _Recognised:
    format: Format
    number: int
    line: str


def _recognised(lines: Lines, fields: Mapping[str, str], path: Path, notes: LogNotes) -> _Recognised | None:
    """By the first line of a known format; those before it are noted. A header of CSV can only be the very first, the remark that names
    the fields of W3C extended logs can come later."""
    for number, line in lines:
        found = None if line is None else recognise(line, fields)
        if found is not None and line is not None and (number == 1 or not found.header or line[0] == "#"):
            if found.name not in notes.formats:
                notes.formats.append(found.name)
            return _Recognised(found, number, line)
        notes.skip(path, number, "it is of no format known here")
        if line is None or number >= _LINES_TRIED:
            return None
    return None


def _no_log(path: Path, fields: Mapping[str, str], damage: Sequence[str], empty: bool) -> UsageError:
    if damage:
        return UsageError(damage[0])
    if empty:
        return UsageError(f"{path} holds no line")
    named = " and ".join(f"{what}={name}" for what, name in fields.items())
    return UsageError(
        f"{path} is no access log: none of its first lines is in the common, combined or W3C log format, JSON, or a header of CSV, with an "
        f"address in it{f' ({named})' if named else ''}; say which fields of JSON or CSV to read: --fields time=NAME,url=NAME"
    )


def _entries(
    path: Path, log: _Recognised, lines: Lines, strip_query: bool, notes: LogNotes
) -> Iterator[LogEntry]:
    first = [] if log.format.header else [(log.number, log.line)]
    for number, line in chain(first, lines):
        if line is None:
            notes.skip(path, number, f"it is longer than {LONGEST_LINE} bytes")
            continue
        try:
            entry = log.format.parse(line)
        except ValueError as problem:
            notes.skip(path, number, str(problem))
            continue
        yield entry._replace(key=entry.key.partition("?")[0]) if strip_query else entry


def _lines(path: Path, notes: LogNotes) -> Lines:
    """(number from 1, text without its end), None for a line too long to be one; empty ones are left out. Raises UsageError."""
    number = 0
    try:
        with _opened(path) as file:
            while raw := file.readline(LONGEST_LINE + 1):
                number += 1
                if len(raw) > LONGEST_LINE:
                    yield number, None
                    while len(raw) > LONGEST_LINE and not raw.endswith(b"\n"):
                        raw = file.readline(LONGEST_LINE + 1)
                elif text := _text(raw, number):
                    yield number, text
    except (EOFError, zlib.error, gzip.BadGzipFile) as problem:
        notes.damage.append(f"{path} is cut or damaged {_after(number)}: {problem}")
    except OSError as problem:
        if not number:
            raise UsageError(f"{path} cannot be read: {problem.strerror or problem}") from None
        notes.damage.append(f"{path} cannot be read {_after(number)}: {problem.strerror or problem}")


def _after(number: int) -> str:
    return f"after line {number}" if number else "from its first line on"


def _text(raw: bytes, number: int) -> str:
    text = raw.decode("utf-8", "backslashreplace")
    return (text.removeprefix("\ufeff") if number == 1 else text).rstrip("\r\n")


@contextmanager
def _opened(path: Path) -> Iterator[BinaryIO]:
    with nullcontext(sys.stdin.buffer) if path == STANDARD_INPUT else path.open("rb") as file:
        if cast(BufferedReader, file).peek(2)[:2] == _GZIP:
            with gzip.GzipFile(fileobj=file) as unpacked:
                yield cast(BinaryIO, unpacked)
        else:
            yield file

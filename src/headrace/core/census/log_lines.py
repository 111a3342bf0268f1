"""One line of an access log: common and combined format, W3C extended, JSON, CSV. Pure: lines are given, entries come back."""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import lru_cache
from math import isfinite, nan
from typing import Any, NamedTuple

import orjson

NAMES: Mapping[str, tuple[str, ...]] = {
    "time": (
        "time", "timestamp", "@timestamp", "ts", "t", "t_s", "msec", "time_iso8601", "time_local", "datetime", "date", "start_time",
        "StartUTC",
    ),
    "url": (
        "image", "image_url", "image_id", "key", "url", "uri", "request_uri", "path", "request_url", "request.uri", "request.url",
        "httpRequest.requestUrl", "RequestPath", "request",
    ),
    "bytes": (
        "bytes", "size_bytes", "body_bytes_sent", "bytes_sent", "response_size", "httpRequest.responseSize", "size", "content_length",
        "DownstreamContentSize",
    ),
    "status": ("status", "status_code", "response_code", "httpRequest.status", "DownstreamStatus", "code"),
    "method": ("method", "request_method", "request.method", "httpRequest.requestMethod", "RequestMethod", "verb"),
}  # fmt: skip
"""What the usual servers call a field, looked for in this order; a dot leads into an object within an object."""

_NAMES_IMAGES = frozenset({"image", "image_url", "image_id", "key"})
"""Fields that name the image wherever its bytes travelled."""
_WITH_BODY = frozenset({"POST", "PUT", "PATCH"})
_COMMON = re.compile(
    r'(?:[^"\[]*+\[){1,4}?([^\]"]{19,40})\] (?:[^"\[\]]{1,400} )?"([^"\\]*+(?:\\.[^"\\]*+)*+)" (\d{3}|-) (\d{1,18}|-)',
    re.ASCII,
)
"""Anything, [time], perhaps something, "request", status, bytes."""
_TIMELESS = re.compile(r'[^"\[]*"([A-Z]{3,16} [^"\\]+ HTTP/[\d.]{1,3})" (\d{3})\b', re.ASCII)
_W3C = "#Fields:"
_METHOD = re.compile(r"[A-Z]{3,16}")
_COMMON_TIME = re.compile(
    r"(\d{1,2}/[A-Za-z]{3}/\d{4}:\d\d:\d\d:\d\d)(\.\d{1,6})?\d*(?: ([+-]\d{4}))?", re.ASCII
)
_NUMBER = re.compile(r"-?\d{1,20}(?:\.\d{0,20})?", re.ASCII)
_EPOCH_UNITS = ((1e17, 1e9), (1e14, 1e6), (1e11, 1e3))
"""From so large a number on, a time is in ns, us or ms: as seconds 1e11 is the year 5138, as milliseconds it is 1973."""
_LARGEST = 1 << 62
_LONGEST_TIME = 64


class LogEntry(NamedTuple):
    """One request."""

    t_s: float
    """Seconds, usually since 1970; NaN where the log has no time. Apache writes when a request began, nginx when it ended."""
    key: str
    """What was asked for: path and query, URL, or the image's name."""
    size_bytes: int | None = None
    """As the server wrote it: usually the bytes of its answer."""
    status: int | None = None
    """HTTP status."""
    posted: bool = False
    """The image was in the request's body, and `key` is only the address that it was sent to."""


Parse = Callable[[str], LogEntry]
"""A line to its entry. Raises ValueError that says what is wrong with it."""


class Format(NamedTuple):
    """How the lines of a log are read."""

    name: str
    """For people, with the fields chosen."""
    parse: Parse
    header: bool = False
    """The line it was told by is a header, no entry."""


def recognise(line: str, fields: Mapping[str, str]) -> Format | None:
    """The format of the log that `line` can be the first of; None when it is none known here.

    `fields` names the fields of JSON lines or CSV by what they hold: time, url, bytes, status, method.
    """
    if not fields and _COMMON.match(line):
        return Format("common log format", common)
    if not fields and _TIMELESS.match(line):
        return Format("request lines without a time", timeless)
    if line.startswith(_W3C):
        return _w3c(line)
    return _json_lines(line, fields) if line.lstrip().startswith("{") else _csv(line, fields)


def common(line: str) -> LogEntry:
    """Common or combined log format, of nginx, Apache and many others; what follows is not looked at."""
    found = _COMMON.match(line)
    if found is None:
        raise ValueError("it is not in the common log format")
    time, text, status, size = found.groups()
    request = _request(text)
    if request is None:
        raise ValueError(f"{text[:40]!r} is no HTTP request")
    method, url = request
    size_bytes, answer = (None if text == "-" else int(text) for text in (size, status))
    return LogEntry(_seconds_of(time), url, size_bytes, answer, _posted(method, url))


def timeless(line: str) -> LogEntry:
    """What uvicorn writes by itself: the request and its status."""
    found = _TIMELESS.match(line)
    request = _request(found[1]) if found else None
    if found is None or request is None:
        raise ValueError("it has no request with a status")
    return LogEntry(nan, request[1], None, int(found[2]), _posted(*request))


def _w3c(line: str) -> Format | None:
    """W3C extended log format, of IIS, CloudFront and others: a remark names the fields, which tabs or spaces part."""
    header = line.removeprefix(_W3C).split()

    def parse(line: str) -> LogEntry:
        if line.startswith("#"):
            raise ValueError("it is a remark")
        cells = line.split("\t" if "\t" in line else " ")
        if len(cells) != len(header):
            raise ValueError(f"it has {len(cells)} fields, the header {len(header)}")
        told = {name: cell for name, cell in zip(header, cells, strict=True) if cell != "-"}
        if "cs-uri-stem" not in told:
            raise ValueError("its cs-uri-stem is missing")
        url = "?".join(told[name] for name in ("cs-uri-stem", "cs-uri-query") if name in told)
        time_s = _seconds_of(f"{told['date']} {told['time']}") if {"date", "time"} <= told.keys() else nan
        status, sent = whole(told.get("sc-status")), whole(told.get("sc-bytes"))
        return LogEntry(time_s, url, sent, status, _posted(told.get("cs-method"), url))

    return Format("W3C extended log format", parse, header=True) if "cs-uri-stem" in header else None


def _request(text: str) -> tuple[str, str] | None:
    """`GET /a?b HTTP/1.1` -> method, URL; None when it is no such thing. The version may be missing, the URL may have spaces in it."""
    method, _, rest = text.partition(" ")
    url, _, version = rest.rpartition(" ")
    url = url if version.startswith("HTTP/") else rest
    return (method, url) if url and _METHOD.fullmatch(method) else None


def _posted(method: str | None, url: str) -> bool:
    return method in _WITH_BODY and "?" not in url


def _json_lines(line: str, fields: Mapping[str, str]) -> Format | None:
    try:
        first = _object(line)
    except ValueError:
        return None
    names = _names(fields, lambda name: _inside(first, name) is not _MISSING)

    def parse(line: str) -> LogEntry:
        value = _object(line)
        return _entry({what: _inside(value, name) for what, name in names.items()}, names["url"], fields)

    return Format(f"JSON lines with {_told(names)}", parse) if "url" in names else None


_MISSING = object()


def _object(line: str) -> dict[str, Any]:
    try:
        value = orjson.loads(line)
    except orjson.JSONDecodeError as problem:
        raise ValueError(f"it is no JSON: {problem}") from None
    if not isinstance(value, dict):
        raise ValueError("it is no JSON object")
    return value


def _inside(value: Any, name: str) -> Any:
    """A field, by its name or by the way to it; `_MISSING` where there is none."""
    if isinstance(value, dict) and name in value:
        return value[name]
    for step in name.split("."):
        value = value.get(step, _MISSING) if isinstance(value, dict) else _MISSING
    return value


def _csv(line: str, fields: Mapping[str, str]) -> Format | None:
    for delimiter in (",", "\t", ";"):
        try:
            header = [name.strip() for name in _cells(line, delimiter)]
        except ValueError:
            continue
        names = _names(fields, header.__contains__)
        if "url" in names:
            rows = _csv_rows(header, delimiter, names, fields)
            return Format(f"CSV with {_told(names)}", rows, header=True)
    return None


def _csv_rows(
    header: list[str], delimiter: str, names: Mapping[str, str], fields: Mapping[str, str]
) -> Parse:
    columns = {what: header.index(name) for what, name in names.items()}

    def parse(line: str) -> LogEntry:
        cells = _cells(line, delimiter)
        if len(cells) != len(header):
            raise ValueError(f"it has {len(cells)} columns, the header {len(header)}")
        return _entry({what: cells[column] for what, column in columns.items()}, names["url"], fields)

    return parse


def _cells(line: str, delimiter: str) -> list[str]:
    try:
        return next(csv.reader([line], delimiter=delimiter, strict=True), [])
    except csv.Error as problem:
        raise ValueError(f"it is no CSV: {problem}") from None


def _names(fields: Mapping[str, str], there: Callable[[str], bool]) -> dict[str, str]:
    """What a field holds -> its name: the one given, or the first of the usual ones that is there. Empty when one given is not there."""
    if not all(there(name) for name in fields.values()):
        return {}
    found = {}
    for what, usual in NAMES.items():
        name = fields.get(what) or next((name for name in usual if there(name)), None)
        if name is not None:
            found[what] = name
    return found


def _told(names: Mapping[str, str]) -> str:
    return ", ".join(what if what == name else f"{what} in {name!r}" for what, name in names.items())


def _entry(values: Mapping[str, Any], url_field: str, fields: Mapping[str, str]) -> LogEntry:
    url, method = values.get("url"), values.get("method")
    if not isinstance(url, str | int) or isinstance(url, bool) or url == "":
        raise ValueError(f"its {url_field!r} is missing or no text")
    url = str(url)
    method, url = _request(url) or (method, url)
    names_image = "url" in fields or url_field in _NAMES_IMAGES
    return LogEntry(
        t_s=seconds(values["time"]) if "time" in values else nan,
        key=url,
        size_bytes=whole(values.get("bytes")),
        status=whole(values.get("status")),
        posted=not names_image and isinstance(method, str) and _posted(method.upper(), url),
    )


def whole(value: Any) -> int | None:
    """A count from 0 up, as a number or as text; None for anything else, as `-` or null."""
    if isinstance(value, str) and value.isascii() and value.isdecimal() and len(value) <= 18:
        return int(value)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < _LARGEST else None


def seconds(value: Any) -> float:
    """Seconds since 1970 from a number (s, ms, us or ns by its size), ISO 8601 or the common log format (UTC where there is no zone).

    Raises ValueError when it is none of these.
    """
    if isinstance(value, str):
        return _seconds_of(value)
    if isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value):
        return _scaled(float(value))
    raise ValueError(f"its time is {value!r:.40}, which is no time")


@lru_cache(maxsize=1024)
def _seconds_of(text: str) -> float:
    """Remembered, because the requests of a second share its text."""
    if len(text) > _LONGEST_TIME:
        raise ValueError(f"its time is {text[:40]!r}..., which is no time")
    try:
        if found := _COMMON_TIME.fullmatch(text):
            moment = datetime.strptime(f"{found[1]} {found[3] or '+0000'}", "%d/%b/%Y:%H:%M:%S %z")
            return moment.timestamp() + float(found[2] or 0)
        if _NUMBER.fullmatch(text):
            return _scaled(float(text))
        moment = datetime.fromisoformat(text.strip())
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        raise ValueError(f"its time is {text[:40]!r}, which is no time") from None


def _scaled(number: float) -> float:
    for least, per_s in _EPOCH_UNITS:
        if abs(number) >= least:
            return number / per_s
    return number

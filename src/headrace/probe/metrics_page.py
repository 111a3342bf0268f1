"""A service's metrics in Prometheus' text format: fetched by a thread of its own, so that a slow page delays no other probe."""

from __future__ import annotations

import http.client
import io
import re
import socket
import threading
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple, cast
from urllib.parse import urlsplit

from headrace.clock import monotonic_s
from headrace.errors import UsageError

TIMEOUT_S = 2.0
"""For a whole page, however it trickles in."""
MOST_BYTES = 8 * 2**20
MOST_LINE = 8192
_PIECE = 65536

_LABEL = re.compile(r'\s*([a-zA-Z_][a-zA-Z0-9_]*)\s*=\s*"([^"\\]*(?:\\.[^"\\]*)*)"\s*,?')
_ESCAPED = re.compile(r"\\(.)")


class Sample(NamedTuple):
    """One line of a page."""

    name: str
    labels: Mapping[str, str]
    value: float


@dataclass(frozen=True, slots=True)
class Page:
    """What a page said of the metrics that were asked for."""

    at_s: float
    """When its first byte was asked for, on the monotonic clock."""
    samples: tuple[Sample, ...]


class PageError(Exception):
    """A page could not be had; the text says why."""


def parse_url(url: str) -> tuple[str, int, str]:
    """`http://host:port/path?query` -> host, port, path with query. Raises UsageError."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port or 80
    except ValueError as error:
        raise UsageError(f"{url!r} is not an address: {error}") from None
    if parts.scheme != "http" or not host or parts.username is not None or re.search(r"[\x00-\x20\x7f]", url):
        raise UsageError(f"{url!r} is not an address of a metrics page: write http://HOST:PORT/metrics")
    return host, port, (parts.path or "/") + (f"?{parts.query}" if parts.query else "")


def fetch(url: str, timeout_s: float = TIMEOUT_S, most_bytes: int = MOST_BYTES) -> str:
    """The page's text, by one GET on a connection of its own. Raises PageError, and UsageError for a bad `url`."""
    host, port, path = parse_url(url)
    deadline_s = monotonic_s() + timeout_s
    try:
        with socket.create_connection((host, port), timeout_s) as connection:
            head = f"GET {path} HTTP/1.1\r\nHost: {_host_header(host, port)}\r\nAccept: text/plain;version=0.0.4\r\n"
            connection.sendall(f"{head}User-Agent: headrace\r\nConnection: close\r\n\r\n".encode())
            return _body(_Bounded(connection, deadline_s, most_bytes)).decode("utf-8", "replace")
    except TimeoutError:
        raise PageError(f"no answer within {timeout_s:g} s") from None
    except (OSError, UnicodeError) as error:
        raise PageError(f"the connection failed: {getattr(error, 'strerror', None) or error}") from None
    except (http.client.HTTPException, ValueError) as error:
        raise PageError(f"its answer is no HTTP, or broke off ({type(error).__name__})") from None


def _body(connection: _Bounded) -> bytes:
    """Read in pieces: the length that an answer announces must not decide how much is allocated."""
    with http.client.HTTPResponse(cast(socket.socket, connection)) as response:
        response.begin()
        if response.status != 200:
            raise PageError(f"it answers {response.status}, not 200")
        packed = response.getheader("Content-Encoding", "identity")
        if packed.lower() != "identity":
            raise PageError(f"it is packed ({packed[:20]!r}), though nobody asked for that")
        pieces = list(iter(lambda: response.read(_PIECE), b""))
        if response.length:
            raise PageError("its answer broke off")
        return b"".join(pieces)


def _host_header(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


class _Bounded(io.RawIOBase):
    """A socket to read from until a deadline and up to a number of bytes, whatever the other side does."""

    def __init__(self, connection: socket.socket, deadline_s: float, most_bytes: int) -> None:
        self._connection = connection
        self._deadline_s = deadline_s
        self._left = most_bytes
        self._most = most_bytes

    def makefile(self, mode: str) -> io.BufferedReader:
        return io.BufferedReader(self)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        left_s = self._deadline_s - monotonic_s()
        if left_s <= 0:
            raise TimeoutError
        self._connection.settimeout(left_s)
        count = self._connection.recv_into(buffer)
        self._left -= count
        if self._left < 0:
            raise PageError(f"it is larger than {self._most >> 20} MiB")
        return count


def parse(text: str, names: Iterable[str]) -> Iterator[Sample]:
    """The samples of these names. Lines that are not in the format are left out: a foreign page need not be perfect.

    Takes only the lines of `names` apart: a page of headrace costs 0.3 ms so, and 7 ms with the reader of prometheus_client.
    """
    wanted = frozenset(names)
    for line in text.split("\n"):
        if line.partition("{")[0].partition(" ")[0] in wanted and len(line) <= MOST_LINE:
            sample = parse_line(line)
            if sample is not None:
                yield sample


def parse_line(line: str) -> Sample | None:
    """`name{label="value"} 1.5 [time]`; None where it is not of this form."""
    name, brace, rest = line.partition("{")
    labels: dict[str, str] = {}
    if brace and " " not in name:
        read = read_labels(rest)
        if read is None:
            return None
        labels, rest = read
    else:
        name, _, rest = line.partition(" ")
    words = rest.split(None, 1)
    try:
        return Sample(name, labels, float(words[0]))
    except (IndexError, ValueError):
        return None


def read_labels(text: str) -> tuple[dict[str, str], str] | None:
    """`a="1",b="2"} rest` -> the labels and ` rest`; None where it is not of this form."""
    labels: dict[str, str] = {}
    place = 0
    while (label := _LABEL.match(text, place)) is not None:
        labels[label[1]] = _unescaped(label[2])
        place = label.end()
    return (labels, text[place + 1 :]) if text[place : place + 1] == "}" else None


def _unescaped(value: str) -> str:
    if "\\" not in value:
        return value
    return _ESCAPED.sub(lambda escape: "\n" if escape[1] == "n" else escape[1], value)


class PageWatch:
    """Fetches a page every `period_s` until it is closed, and keeps what it said of `names`. Raises UsageError for a bad `url`."""

    def __init__(self, url: str, names: Iterable[str], period_s: float, timeout_s: float = TIMEOUT_S) -> None:
        parse_url(url)
        self.url = url
        self._names = tuple(names)
        self._period_s = period_s
        self._timeout_s = timeout_s
        self._newest: deque[Page | str] = deque(maxlen=1)
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="headrace-page", daemon=True)
        self._thread.start()

    def take(self) -> Page | str | None:
        """The newest page, or why there is none; None: nothing came since it was last taken."""
        return self._newest.pop() if self._newest else None

    def close(self) -> None:
        """Does not wait for a page that is under way: its thread ends by itself, within the time-out."""
        self._closed.set()

    def _run(self) -> None:
        while not self._closed.is_set():
            begun_s = monotonic_s()
            self._newest.append(self._page(begun_s))
            self._closed.wait(max(0.05, begun_s + self._period_s - monotonic_s()))

    def _page(self, begun_s: float) -> Page | str:
        try:
            return Page(begun_s, tuple(parse(fetch(self.url, self._timeout_s), self._names)))
        except PageError as error:
            return str(error)

"""Work a foreign service has done, by its access log or one of its metrics: it tells working from spinning."""

from __future__ import annotations

import math
import os
import re
import stat
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from headrace.clock import monotonic_s
from headrace.errors import UsageError
from headrace.probe.metrics_page import Page, PageWatch, parse_url, read_labels
from headrace.probe.probe import Row
from headrace.probe.unseen import UnseenOnce
from headrace.records.capture import Unseen
from headrace.records.rows.service import ProgressRow

MOST_BYTES_A_READING = 8 * 2**20
"""Of a log: some 80,000 lines. A longer piece is caught up with at the next readings."""
_PIECE = 2**18
_MOST_GROWTH = 2.0**53
"""Beyond, a float no longer counts by ones; nothing does as much between two readings."""

_NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
_UNITS = ("bytes", "seconds", "images", "tokens", "frames", "batches")


@dataclass(frozen=True, slots=True)
class LogSource:
    """Each new line of this file is a request."""

    path: Path


@dataclass(frozen=True, slots=True)
class MetricSource:
    """The sum of the samples of `name` that have these labels, on the page at `url`."""

    url: str
    name: str
    labels: Mapping[str, str]

    @property
    def unit(self) -> str:
        """By the habit of putting it into the name; `requests` where it tells none."""
        return next((unit for unit in _UNITS if unit in self.name.split("_")), "requests")

    @property
    def told_as(self) -> str:
        """Tells it from the same metric of another process, or with other labels; without the address's query, which may hold a token."""
        host, port, _ = parse_url(self.url)
        labels = ",".join(f'{name}="{value}"' for name, value in self.labels.items())
        return f"metric:{host}:{port}#{self.name}" + (f"{{{labels}}}" if labels else "")


def parse_progress(text: str) -> LogSource | MetricSource:
    """`log:/var/log/nginx/access.log` or `metric:http://127.0.0.1:9090/metrics#requests_total{code="200"}`.

    Raises UsageError that names what is wrong.
    """
    kind, _, rest = text.partition(":")
    if kind == "log":
        if not rest or "\0" in rest:
            raise UsageError(f"--progress {text!r} names no file: write log:/path/of/the/access.log")
        return LogSource(Path(rest))
    if kind == "metric":
        return _metric(text, rest)
    raise UsageError(
        f'--progress {text!r} is neither log:/path nor metric:http://HOST:PORT/metrics#NAME{{label="value"}}'
    )


def _metric(text: str, rest: str) -> MetricSource:
    url, hash_sign, selector = rest.partition("#")
    parse_url(url)
    name = _NAME.match(selector)
    if not hash_sign or name is None:
        raise UsageError(f"--progress {text!r} does not name a metric: write #NAME after the address")
    labels_text = selector[name.end() :]
    if not labels_text:
        return MetricSource(url, name[0], {})
    read = read_labels(labels_text[1:]) if labels_text[0] == "{" else None
    if read is None or read[1]:
        raise UsageError(f'--progress {text!r}: {labels_text!r} is not of the form {{label="value"}}')
    return MetricSource(url, name[0], read[0])


class LogProgress:
    """One `ProgressRow` a reading: the lines that were appended to a log. Follows rotation and truncation.

    What a log lost between two readings (written, then truncated away) is not counted.
    """

    name = "progress"

    def __init__(self, source: LogSource, *, period_s: float = 1.0) -> None:
        self.period_s = period_s
        self._path = source.path
        self._told_as = os.fsencode(source.path).decode(errors="replace")
        self._log: _OpenLog | None = None
        self._was_missing = False
        self._read_s: float | None = None
        self._unseen = UnseenOnce(self.name)

    def read(self, now_s: float) -> Iterable[Row]:
        lines = self._lines()
        before_s, self._read_s = self._read_s, now_s
        if lines is None or before_s is None:
            return ()
        return (ProgressRow(now_s, now_s - before_s, f"log:{self._told_as}", "requests", float(lines)),)

    def unseen(self) -> Sequence[Unseen]:
        return self._unseen.all()

    def close(self) -> None:
        if self._log is not None:
            self._log.close()
            self._log = None

    def _lines(self) -> int | None:
        """Lines since the last reading, of the file that was open and of one that took its place; None: not known."""
        try:
            if self._log is None:
                return self._open_first()
            lines = self._log.new_lines()
            if self._log.is_read_up() and self._log.replaced(self._path):
                successor = _OpenLog(self._path, at_end=False)
                self._log.close()
                self._log = successor
                lines += successor.new_lines()
            return lines
        except OSError as error:
            self._unseen.add(f"lines of {self._told_as}", error.strerror or str(error))
            return None

    def _open_first(self) -> int | None:
        """What is in the log already is not of this capture, unless the log came into being meanwhile."""
        try:
            self._log = _OpenLog(self._path, at_end=not self._was_missing)
        except FileNotFoundError:
            self._was_missing = True
            raise
        return self._log.new_lines() if self._was_missing else None


class _OpenLog:
    """A regular file that grows."""

    def __init__(self, path: Path, at_end: bool) -> None:
        """Raises OSError; also for what is no regular file, which might block or never end."""
        self._file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        status = os.fstat(self._file)
        if not stat.S_ISREG(status.st_mode):
            os.close(self._file)
            raise OSError(0, "it is no regular file")
        self._place = status.st_size if at_end else 0
        self._identity = (status.st_dev, status.st_ino)

    def replaced(self, path: Path) -> bool:
        """Whether the path now leads to another file. A log that was moved and has no successor yet is still the log."""
        try:
            status = path.stat()
        except FileNotFoundError:
            return False
        return (status.st_dev, status.st_ino) != self._identity

    def new_lines(self) -> int:
        """Line ends since the last call, up to `MOST_BYTES_A_READING`. A file that shrank is read from its beginning."""
        if os.fstat(self._file).st_size < self._place:
            self._place = 0
        lines, stop = 0, self._place + MOST_BYTES_A_READING
        while self._place < stop and (piece := os.pread(self._file, _PIECE, self._place)):
            lines += piece.count(b"\n")
            self._place += len(piece)
        return lines

    def is_read_up(self) -> bool:
        return self._place >= os.fstat(self._file).st_size

    def close(self) -> None:
        os.close(self._file)


class MetricProgress:
    """One `ProgressRow` between two pages: what a metric grew by. A service that restarted gives none for that time."""

    name = "progress"

    def __init__(self, source: MetricSource, *, period_s: float = 1.0) -> None:
        self.period_s = period_s
        self._source = source
        self._pages = PageWatch(source.url, (source.name,), period_s)
        self._before: tuple[float, float] | None = None
        self._unseen = UnseenOnce(self.name)

    def read(self, now_s: float) -> Iterable[Row]:
        page = self._pages.take()
        if isinstance(page, str):
            self._unseen.add(self._source.name, f"{self._source.url}: {page}")
        total = self._total(page) if isinstance(page, Page) else None
        if total is None or not isinstance(page, Page):
            return ()
        before, self._before = self._before, (page.at_s, total)
        if before is None:
            return ()
        if not 0 <= total - before[1] < _MOST_GROWTH:
            self._unseen.add(
                f"growth of {self._source.name}",
                "it went down, or grew beyond belief, at times: the service began anew, or it is no counter",
            )
            return ()
        t_s = page.at_s + now_s - monotonic_s()
        source, unit = self._source.told_as, self._source.unit
        return (ProgressRow(t_s, page.at_s - before[0], source, unit, total - before[1]),)

    def unseen(self) -> Sequence[Unseen]:
        return self._unseen.all()

    def close(self) -> None:
        self._pages.close()

    def _total(self, page: Page) -> float | None:
        wanted = self._source.labels.items()
        found = [sample.value for sample in page.samples if wanted <= sample.labels.items()]
        values = list(filter(math.isfinite, found))
        if not values:
            what = "this metric, but no number for it" if found else "no such metric with these labels"
            self._unseen.add(self._source.name, f"{self._source.url} has {what}")
            return None
        return sum(values)

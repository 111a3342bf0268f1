"""What probes of /proc have in common: files kept open, the window between readings, why something could not be read."""

from __future__ import annotations

import errno
import os
import resource
from collections.abc import Sequence
from pathlib import Path

LONGEST_WINDOW_S = 600.0
"""After a longer break (a stopped recorder, a machine asleep) amounts say nothing, and could outgrow their columns."""

_MOST_FILES = 1 << 16
_SPARE_FILES = 256
"""Left for everything else in this process."""


class Descriptors:
    """How many more files may be kept open. Beyond, files are opened for each reading."""

    def __init__(self, left: int) -> None:
        self.left = left

    @classmethod
    def raised(cls) -> Descriptors:
        """As many as this process may have once its soft limit is raised to the hard one."""
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        wanted = _MOST_FILES if hard == resource.RLIM_INFINITY else min(hard, _MOST_FILES)
        if soft != resource.RLIM_INFINITY and soft < wanted:
            try:
                resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
                soft = wanted
            except (OSError, ValueError):
                pass
        most = _MOST_FILES if soft == resource.RLIM_INFINITY else min(soft, _MOST_FILES)
        return cls(max(0, most - _SPARE_FILES))


class KeptFile:
    """A file of /proc or /sys that is read again and again. Kept open: opening takes several times as long as reading."""

    __slots__ = ("_descriptors", "_folder", "_path", "_size_bytes", "fd")

    def __init__(
        self,
        path: str | Path,
        size_bytes: int = 4096,
        descriptors: Descriptors | None = None,
        folder: int | None = None,
    ) -> None:
        """`size_bytes` bounds what is read. `folder` is an open folder that `path` counts from."""
        self._path, self._size_bytes, self._folder, self._descriptors = path, size_bytes, folder, descriptors
        self.fd = -1
        """-1 while it is not open."""

    def read(self) -> bytes:
        """The beginning of the file, as much as one system call gives.

        Raises:
            OSError: the file is gone, hidden or refused; the next reading opens it anew.
        """
        if self.fd < 0:
            fd = os.open(self._path, os.O_RDONLY, dir_fd=self._folder)
            if not self._may_keep():
                try:
                    return os.read(fd, self._size_bytes)
                finally:
                    os.close(fd)
            self.fd = fd
        try:
            return os.pread(self.fd, self._size_bytes, 0)
        except OSError:
            self.close()
            raise

    def read_all(self) -> bytes:
        """The whole file up to `size_bytes`: the kernel hands long tables out in pieces. Raises OSError like `read`."""
        parts = [self.read()]
        length = len(parts[0])
        while parts[-1] and self.fd >= 0 and length < self._size_bytes:
            parts.append(os.pread(self.fd, self._size_bytes - length, length))
            length += len(parts[-1])
        return b"".join(parts)

    def close(self) -> None:
        if self.fd >= 0:
            fd, self.fd = self.fd, -1
            if self._descriptors is not None:
                self._descriptors.left += 1
            os.close(fd)

    def _may_keep(self) -> bool:
        if self._descriptors is None:
            return True
        if self._descriptors.left <= 0:
            return False
        self._descriptors.left -= 1
        return True


class Window:
    """The time from reading to reading."""

    def __init__(self) -> None:
        self._last_s: float | None = None

    def step(self, now_s: float) -> float | None:
        """Seconds since the last call; None at the first, after a break of over `LONGEST_WINDOW_S`, and if no time has passed."""
        last_s, self._last_s = self._last_s, now_s
        window_s = None if last_s is None else now_s - last_s
        return window_s if window_s is not None and 0.0 < window_s <= LONGEST_WINDOW_S else None


def reason(error: OSError) -> str:
    """Why something of /proc or /sys could not be read."""
    if error.errno in (errno.EACCES, errno.EPERM):
        return "it belongs to another user; run headrace as that user or with sudo"
    if error.errno == errno.ENOENT:
        return "this kernel does not have it, or it is hidden in this container"
    if error.errno == errno.EOPNOTSUPP:
        return "it is switched off in this kernel"
    if error.errno in (errno.EMFILE, errno.ENFILE):
        return "too many files are open; raise the limit of open files (ulimit -n)"
    return f"reading it failed: {error.strerror or error}"


def gone(error: OSError) -> bool:
    """The process or thread has ended; nothing is amiss."""
    return error.errno in (errno.ENOENT, errno.ESRCH)


def names_in(folder: str | Path | int) -> list[str]:
    """The names in a folder, or in one that is open. Raises OSError."""
    return os.listdir(folder)  # noqa: PTH208 - a Path for each name takes longer than the kernel does


def amounts(now: Sequence[int], last: Sequence[int] | None) -> tuple[int, ...] | None:
    """How much each running total grew; None without a last reading, and when one went backwards and so began anew."""
    if last is None or len(now) != len(last):
        return None
    grown = [b - a for b, a in zip(now, last, strict=True)]
    return tuple(grown) if grown and min(grown) >= 0 else None

"""Where assets live, and the few ways files are written there.

Everything is written beside its final name and renamed into place, so that an interrupted run leaves either the whole
file or none.
"""

from __future__ import annotations

import hashlib
import os
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import platformdirs

ENVIRONMENT = "HEADRACE_ASSETS"
CHUNK = 1 << 20


def cache_root() -> Path:
    """The user's cache folder, never the repository; the environment variable HEADRACE_ASSETS overrides it."""
    chosen = os.environ.get(ENVIRONMENT)
    if chosen:
        return Path(chosen).expanduser().resolve()
    return platformdirs.user_cache_path("headrace", appauthor=False) / "assets"


def sha256_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_atomically(path: Path, chunks: Iterable[bytes]) -> None:
    """Write beside the final name, then rename: readers see the old file or the new one, never a part."""
    with replacing(path) as temporary, temporary.open("wb") as file:
        for chunk in chunks:
            file.write(chunk)


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary name for a library that insists on writing by name; renamed on success, removed on failure."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}-{threading.get_ident()}.part")
    try:
        yield temporary
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def sweep(folder: Path) -> None:
    """Remove temporary files that a killed run left below `folder`."""
    for leftover in folder.rglob(".*.part"):
        leftover.unlink(missing_ok=True)


@contextmanager
def only_one(root: Path, waiting: Callable[[], None]) -> Iterator[None]:
    """One run at a time per cache; a second one waits, and says so through `waiting`.

    The lock belongs to the process, so a killed run cannot leave it behind. Windows has no such lock; there, do not run
    two at once.
    """
    root.mkdir(parents=True, exist_ok=True)
    if sys.platform == "win32":
        yield
        return
    import fcntl

    with (root / ".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            waiting()
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield

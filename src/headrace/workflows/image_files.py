"""Images on disk, as the command line names them: files and folders."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from headrace.errors import UsageError

SUFFIXES = frozenset(
    {".jpg", ".jpeg", ".png", ".webp", ".avif", ".gif", ".tif", ".tiff", ".bmp", ".heic", ".heif"}
)


def find_images(places: Iterable[Path], most: int | None = None) -> tuple[Path, ...]:
    """Files as given, and every image below the folders, sorted. Raises UsageError that names what is missing or empty."""
    found: list[Path] = []
    for place in places:
        try:
            found.extend(_images_at(place))
        except OSError as problem:
            raise UsageError(f"{place} cannot be read: {problem.strerror or problem}") from None
    return tuple(found[:most])


def _images_at(place: Path) -> list[Path]:
    if place.is_file():
        return [place]
    if not place.is_dir():
        raise UsageError(
            f"{place} does not exist" if not place.exists() else f"{place} is neither a file nor a folder"
        )
    inside = sorted(path for path in place.rglob("*") if path.suffix.lower() in SUFFIXES and path.is_file())
    if not inside:
        raise UsageError(f"{place} holds no image ({', '.join(sorted(SUFFIXES))})")
    return inside

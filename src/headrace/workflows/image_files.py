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
        if place.is_dir():
            inside = sorted(
                path for path in place.rglob("*") if path.suffix.lower() in SUFFIXES and path.is_file()
            )
            if not inside:
                raise UsageError(f"{place} holds no image ({', '.join(sorted(SUFFIXES))})")
            found.extend(inside)
        elif place.is_file():
            found.append(place)
        else:
            raise UsageError(f"{place} does not exist")
    return tuple(found[:most])

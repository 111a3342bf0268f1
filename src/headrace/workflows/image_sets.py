"""Images from wherever they lie: files, folders, lists of paths or URLs, record packs. Names now, bytes when they are asked for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from headrace.errors import UsageError
from headrace.store.record_packs import RecordPack
from headrace.units import format_bytes
from headrace.workflows.image_files import find_images

LISTS = frozenset({".txt", ".lst"})
PACKS = frozenset({".rec"})
MOST_IMAGE_BYTES = 512 * 2**20
MOST_LIST_BYTES = 1 << 30


@dataclass(frozen=True, slots=True)
class ImageSet:
    """Images by number, from 0 to `count` - 1."""

    count: int
    name: Callable[[int], str]
    """A path, a URL, or a place in a pack as in `train.rec#17`."""
    read: Callable[[int], bytes]
    """The encoded bytes, read anew at each call. Raises UsageError that says which image cannot be had, and why."""
    remarks: tuple[str, ...] = ()
    """What could not be read, a sentence each."""

    def __len__(self) -> int:
        return self.count


def open_images(*places: Path, most: int | None = None) -> ImageSet:
    """The images at `places`, in order; with `most`, the first so many.

    A place is an image file; a folder, with every image below it; a list (`.txt`, `.lst`: one path or URL a line, paths relative to the
    list, `#` begins a remark); or a pack of im2rec (`.rec`). Raises UsageError that names what is missing, empty or unreadable.
    """
    parts = [_open(place) for place in places]
    joined = parts[0] if len(parts) == 1 else _joined(parts)
    if not joined.count:
        raise UsageError(f"there is no image at {', '.join(map(str, places)) or 'no place'}")
    if most is not None and most < joined.count:
        return ImageSet(most, joined.name, joined.read, joined.remarks)
    return joined


def spelled(text: str) -> str:
    """A name of a file, or text with one in it, as UTF-8 can hold it: names may have any bytes."""
    return text.encode("utf-8", "backslashreplace").decode()


def is_url(name: str) -> bool:
    """Whether the name of an image is where it lies on the network."""
    return name.startswith(("http://", "https://"))


def _open(place: Path) -> ImageSet:
    kind = place.suffix.lower()
    if kind in PACKS and place.is_file():
        pack = RecordPack.open(place)
        return ImageSet(len(pack), pack.name, pack.read, (pack.damage,) if pack.damage else ())
    entries = _listed(place) if kind in LISTS and place.is_file() else list(map(str, find_images([place])))
    return ImageSet(len(entries), entries.__getitem__, lambda number: _bytes_of(entries[number]))


def _joined(parts: Sequence[ImageSet]) -> ImageSet:
    """Parts one after the other."""
    ends: list[int] = []
    for part in parts:
        ends.append((ends[-1] if ends else 0) + part.count)

    def at(number: int) -> tuple[ImageSet, int]:
        which = next(index for index, end in enumerate(ends) if number < end)
        return parts[which], number - (ends[which] - parts[which].count)

    def name(number: int) -> str:
        part, inside = at(number)
        return part.name(inside)

    def read(number: int) -> bytes:
        part, inside = at(number)
        return part.read(inside)

    return ImageSet(ends[-1] if ends else 0, name, read, sum((part.remarks for part in parts), ()))


def _listed(path: Path) -> list[str]:
    """The entries of a list."""
    try:
        if path.stat().st_size > MOST_LIST_BYTES:
            raise UsageError(
                f"{path} is larger than {format_bytes(MOST_LIST_BYTES)}, too large for a list of images"
            )
        lines = path.read_text("utf-8-sig").splitlines()
    except OSError as problem:
        raise UsageError(f"{path} cannot be read: {problem.strerror or problem}") from None
    except UnicodeDecodeError:
        raise UsageError(f"{path} is no list of images: it is not UTF-8 text") from None
    entries = [line.strip() for line in lines]
    return [
        entry if is_url(entry) else str(path.parent / entry)
        for entry in entries
        if entry and not entry.startswith("#")
    ]


def _bytes_of(entry: str) -> bytes:
    if is_url(entry):
        raise UsageError(f"{entry} lies on the network and is not fetched; name a file")
    try:
        with Path(entry).open("rb") as file:
            data = file.read(MOST_IMAGE_BYTES + 1)
    except (OSError, ValueError) as problem:
        raise UsageError(f"{entry} cannot be read: {getattr(problem, 'strerror', None) or problem}") from None
    if len(data) > MOST_IMAGE_BYTES:
        raise UsageError(f"{entry} is larger than {format_bytes(MOST_IMAGE_BYTES)}, too large for an image")
    return data

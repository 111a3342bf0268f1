"""What a census can be taken of: images, access logs, captures of load runs."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from math import isnan
from pathlib import Path

from headrace.core.census.facts import ImageFacts, Makeup, MakeupCounter, facts_of
from headrace.core.census.log_lines import LogEntry
from headrace.core.census.traffic import Traffic, TrafficCounter
from headrace.errors import HeadraceError, ImageError, RequestError, UnsupportedMedia, UsageError
from headrace.records.rows.load import ImageRow, OutcomeRow
from headrace.store.access_logs import STANDARD_INPUT, LogNotes, is_access_log, read_access_logs
from headrace.store.captures.reader import Capture
from headrace.workflows.image_files import SUFFIXES
from headrace.workflows.image_sets import LISTS, PACKS, ImageSet, open_images, spelled

_HEAD_BYTES = 1 << 18
"""Read of each file at first: nearly every header ends before."""
_MOST_HEAD_BYTES = 1 << 26
"""Of a file whose header goes on: metadata, or a TIFF that begins at its end."""
_EXAMPLES = 10


@dataclass(frozen=True, slots=True)
class Reading:
    """How logs are read, and how much of a set."""

    fields: Mapping[str, str] = field(default_factory=dict)
    """As of `read_access_log`."""
    strip_query: bool = False
    only: str = ""
    """Requests whose key this regular expression finds; empty: all."""
    most: int | None = None
    """Images or requests, the first so many."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Counted:
    """One side of a census."""

    place: str
    makeup: Makeup | None
    """None where the source says nothing of images."""
    traffic: Traffic | None = None
    """None where it says nothing of requests."""
    sizes_of_answers: bool = False
    """The bytes are those of a server's answers, whatever they were."""
    largest: str | None = None
    """The image with the most pixels."""
    repeated: int = 0
    """Images whose bytes are those of an earlier one."""
    unreadable: Mapping[str, int] = field(default_factory=dict)
    """Images or lines that could not be read, by reason."""
    examples: tuple[str, ...] = ()
    """A few of them."""
    remarks: tuple[str, ...] = ()
    """Damage, and how a log was read."""


def count(places: Sequence[Path], reading: Reading) -> Counted:
    """All `places` together; they must be of one kind. Raises UsageError or CaptureError."""
    if not places:
        raise UsageError("name images, an access log or a capture to count")
    kinds = {_kind(place) for place in places}
    if len(kinds) > 1:
        raise UsageError(
            f"{', '.join(map(str, places))}: images, access logs and captures cannot be counted together"
        )
    return kinds.pop()(places, reading)


def _kind(place: Path) -> Callable[[Sequence[Path], Reading], Counted]:
    if place.is_dir():
        return _captures if (place / "index.jsonl").exists() or any(place.glob("*.arrows")) else _images
    suffix = place.suffix.lower()
    if suffix in SUFFIXES | PACKS or not (place.exists() or place == STANDARD_INPUT):
        return _images
    if suffix in LISTS:
        return _logs if is_access_log(place) else _images
    return _images if _starts_like_an_image(place) else _logs


def _starts_like_an_image(place: Path) -> bool:
    if not place.is_file():
        return False
    try:
        with place.open("rb") as file:
            facts_of("", file.read(_HEAD_BYTES), 0)
    except (UnsupportedMedia, OSError):
        return False
    except ImageError:
        return True
    return True


# --- images ------------------------------------------------------------------------------------------------------------------


def _images(places: Sequence[Path], reading: Reading) -> Counted:
    images = open_images(*places, most=reading.most)
    counter, reasons = MakeupCounter(), Counter[str]()
    examples: list[str] = []
    of_size: dict[int, list[int]] = defaultdict(list)
    largest: tuple[int, str] = (0, "")
    for number in range(len(images)):
        try:
            facts = _facts(images, number)
        except (HeadraceError, OSError) as problem:
            reasons[problem.code if isinstance(problem, RequestError) else "unreadable"] += 1
            if len(examples) < _EXAMPLES:
                examples.append(spelled(f"{images.name(number)}: {problem}"))
            continue
        counter.add(facts)
        of_size[facts.size_bytes or 0].append(number)
        largest = max(largest, (facts.pixels or 0, facts.name))
    return Counted(
        place=_named(places),
        makeup=counter.makeup(),
        largest=spelled(largest[1]) or None,
        repeated=sum(_repeated(images, alike) for alike in of_size.values() if len(alike) > 1),
        unreadable=dict(reasons.most_common()),
        examples=tuple(examples),
        remarks=tuple(map(spelled, images.remarks)),
    )


def _facts(images: ImageSet, number: int) -> ImageFacts:
    """From as few bytes as will do. Raises HeadraceError or OSError."""
    name = images.name(number)
    path = Path(name)
    if not path.is_file():
        data = images.read(number)
        return facts_of(name, data, len(data))
    with path.open("rb") as file:
        head = file.read(_HEAD_BYTES)
        size_bytes = path.stat().st_size
        try:
            return facts_of(name, head, size_bytes)
        except ImageError:
            if size_bytes <= len(head):
                raise
        return facts_of(name, head + file.read(_MOST_HEAD_BYTES), size_bytes)


def _repeated(images: ImageSet, alike: Iterable[int]) -> int:
    """Of images of one size in bytes: those whose content came before. Only they are read whole."""
    seen: set[bytes] = set()
    repeated = 0
    for number in alike:
        try:
            digest = blake2b(images.read(number), digest_size=16).digest()
        except HeadraceError:
            continue
        repeated += digest in seen
        seen.add(digest)
    return repeated


# --- requests ----------------------------------------------------------------------------------------------------------------


def _logs(places: Sequence[Path], reading: Reading) -> Counted:
    notes, counter, wanted = LogNotes(), TrafficCounter(), _pattern(reading.only)
    taken = 0
    for entry in read_access_logs(
        places, fields=reading.fields, strip_query=reading.strip_query, notes=notes
    ):
        if wanted.search(entry.key):
            counter.add(entry)
            taken += 1
            if taken == reading.most:
                break
    if not taken:
        why = (
            f"; {notes.skipped:,} lines were no entries, the first: {notes.examples[0]}"
            if notes.skipped
            else ""
        )
        raise UsageError(
            f"{_named(places)} has no request"
            + (f" with {reading.only!r} in it" if reading.only else "")
            + "".join(f"; {damage}" for damage in notes.damage)
            + why
        )
    traffic = counter.traffic()
    return Counted(
        place=_named(places),
        makeup=traffic.makeup(),
        traffic=traffic,
        sizes_of_answers=traffic.makeup() is not None,
        unreadable={"no entry": notes.skipped} if notes.skipped else {},
        examples=tuple(map(spelled, notes.examples)),
        remarks=(*map(spelled, notes.damage), *(f"read as {name}" for name in notes.formats)),
    )


def _pattern(text: str) -> re.Pattern[str]:
    try:
        return re.compile(text)
    except re.error as problem:
        raise UsageError(f"--only {text!r} is no regular expression: {problem}") from None


def _captures(places: Sequence[Path], reading: Reading) -> Counted:
    if len(places) > 1:
        raise UsageError("captures are counted one at a time; compare two with --against")
    capture = Capture.open(places[0])
    images = _told_images(capture)
    counter, times = TrafficCounter(), Counter[int]()
    for batch in capture.batches(OutcomeRow):
        for source, time_s, status in zip(batch["source"], batch["intended_s"], batch["status"], strict=True):
            if isnan(source):
                continue
            number = int(source)
            times[number] += 1
            name = images[number].name if number in images else f"image {number}"
            counter.add(LogEntry(float(time_s), name, None, _known(status)))
    if not times:
        damage = "".join(f"; {damage}" for damage in capture.damage)
        raise UsageError(f"{places[0]} has no requests; a census needs the capture of a load run{damage}")
    makeup = MakeupCounter()
    for number, image in images.items():
        makeup.add(image, times[number])
    return Counted(
        place=_named(places), makeup=makeup.makeup(), traffic=counter.traffic(), remarks=capture.damage
    )


def _told_images(capture: Capture) -> dict[int, ImageFacts]:
    images = {}
    for batch in capture.batches(ImageRow):
        for cells in zip(*batch.values(), strict=True):
            row = ImageRow(*cells)
            width, height, size_bytes = (_known(row.width), _known(row.height), _known(row.size_bytes))
            if not isnan(row.source):
                images[int(row.source)] = ImageFacts(row.name or "", row.format, width, height, size_bytes)
    return images


def _known(value: float | None) -> int | None:
    return None if value is None or isnan(value) else int(value)


def _named(places: Sequence[Path]) -> str:
    return spelled(str(places[0])) + (f" and {len(places) - 1} more" if len(places) > 1 else "")

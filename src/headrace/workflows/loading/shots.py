"""What a load run sends: requests made of images, kept in memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from headrace.core.image.header import read_header
from headrace.errors import HeadraceError, UsageError
from headrace.host.machine import machine_facts
from headrace.load.shot import Shot
from headrace.load.wire import Item, Maker
from headrace.records.rows.load import ImageRow
from headrace.units import format_bytes
from headrace.workflows.image_sets import ImageSet, is_url, spelled

MOST_BYTES = 2 * 2**30
"""Of requests in memory, and at most a quarter of the machine's: a disk read during the run would be measured as the service's latency."""


@dataclass(frozen=True, slots=True)
class Magazine:
    """Requests ready to be sent, and the images they were made of."""

    shots: tuple[Shot, ...]
    images: tuple[ImageRow, ...]
    remarks: tuple[str, ...]


def fill(
    images: ImageSet, maker: Maker, random: np.random.Generator, room_bytes: int | None = None
) -> Magazine:
    """A request for each image that can be used; where they do not all fit into `room_bytes`, for a sample drawn by lot.

    Raises UsageError when not a single one can be.
    """
    room_bytes = _room_bytes() if room_bytes is None else room_bytes
    made: list[tuple[ImageRow, Shot]] = []
    refused: list[str] = []
    size_bytes, fits = 0, True
    for number in random.permutation(images.count).tolist():
        try:
            row, shot = _made(images, number, maker)
        except HeadraceError as problem:
            refused.append(str(problem))
            continue
        size_bytes += len(shot.wire) + len(shot.body)
        fits = size_bytes <= room_bytes or not made
        if not fits:
            break
        made.append((row, shot))
    if not made:
        raise UsageError(f"none of the {images.count} images can be sent: {refused[0]}")
    made.sort(key=lambda pair: pair[0].source)
    return Magazine(
        tuple(shot for _, shot in made),
        tuple(row for row, _ in made),
        (*images.remarks, *_remarks(images, len(made), refused, fits, room_bytes)),
    )


def _remarks(images: ImageSet, made: int, refused: list[str], fits: bool, room_bytes: int) -> Iterator[str]:
    if refused:
        yield f"{len(refused)} images are left out, the first as {spelled(refused[0])}"
    if not fits:
        yield (
            f"{made} of {images.count} images are sent, drawn by lot: more do not fit into {format_bytes(room_bytes)} of memory"
        )


def _made(images: ImageSet, number: int, maker: Maker) -> tuple[ImageRow, Shot]:
    name = images.name(number)
    if maker.wants == "url" and not is_url(name):
        raise UsageError(f"{name} is no URL; give a list of URLs as --images LIST.txt")
    if maker.wants == "bytes" and is_url(name):
        raise UsageError(f"{name} is not fetched; send URLs with --as url or a template, or name files")
    data = images.read(number) if maker.wants == "bytes" else b""
    return _row(number, spelled(name), data), maker.make(Item(number, spelled(name), data))


def _row(number: int, name: str, data: bytes) -> ImageRow:
    if not data:
        return ImageRow(number, name, None, None, None, None)
    try:
        header = read_header(data)
    except HeadraceError:
        return ImageRow(number, name, None, len(data), None, None)
    return ImageRow(number, name, header.format, len(data), header.width, header.height)


def _room_bytes() -> int:
    memory_bytes = machine_facts()["memory_bytes"]
    return MOST_BYTES if memory_bytes is None else min(MOST_BYTES, memory_bytes // 4)

"""Requests that differ in one thing: the same picture at several sizes, the same bytes or new ones, and bodies that are no picture."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from io import BytesIO
from itertools import count, cycle
from typing import Any

import numpy as np
from PIL import Image

from headrace.core.image import reference
from headrace.core.image.header import read_header
from headrace.core.isolation.foreign import FULL, GARBAGE, LARGE_GARBAGE, OWN, SAME, TINY
from headrace.errors import RequestError, UsageError
from headrace.load.shot import Shot
from headrace.load.wire import Item, Maker
from headrace.records.image import Encoded
from headrace.records.recipe import Recipe
from headrace.workflows.image_sets import ImageSet

AT_MODEL_SIZE = "model's size"
SMALL_SIDE = 32
"""Pixels of the tiny picture's longer side."""
MODEL_SIDE = 224
"""What most models take, where no recipe says."""
QUALITY = 90
MOST_OWN = 32
MOST_OWN_BYTES = 128 * 2**20
MARK = b"\xe7number\xe7"
"""In the comment of a JPEG, and like nothing else in a request; replaced by a number, so that no two have the same bytes."""


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of request."""

    name: str
    megapixels: float
    """0 for what is no picture; the mean of several."""
    bodies: tuple[bytes, ...]
    size: tuple[int, int] | None = None
    """Width and height, where all bodies have the same."""
    anew: bool = True
    """Every request has bytes of its own, where they can be changed."""

    @property
    def picture(self) -> bool:
        return self.megapixels > 0.0


def kinds_of(images: ImageSet, recipe: Recipe | None) -> tuple[Kind, ...]:
    """From a picture of middle size. Raises UsageError when none of the images can be read."""
    pictures = _own(images)
    middle = sorted(pictures, key=lambda found: found[1])[len(pictures) // 2][0]
    whole = _upright(middle)
    model = (recipe.width, recipe.height) if recipe else (MODEL_SIDE, MODEL_SIDE)
    full = _kind(FULL, whole, whole.size)
    own = Kind(
        OWN,
        sum(pixels for _, pixels in pictures) / len(pictures) / 1e6,
        tuple(_marked(bytes(picture.data)) for picture, _ in pictures),
    )
    sizes = [_kind(name, whole, _scaled(whole.size, part)) for name, part in (("half", 2), ("quarter", 4))]
    tiny = _scaled(whole.size, max(whole.size) / SMALL_SIDE)
    return (
        Kind(GARBAGE, 0.0, (b"no image",), anew=False),
        Kind(LARGE_GARBAGE, 0.0, (_noise(len(full.bodies[0])),), anew=False),
        _kind(TINY, whole, tiny),
        _kind(AT_MODEL_SIZE, whole, model),
        *reversed(sizes),
        full,
        Kind(SAME, full.megapixels, full.bodies, whole.size, anew=False),
        own,
    )


def shots(kind: Kind, source: int, maker: Maker) -> Iterator[Shot]:
    """Requests without end."""
    made = cycle([_numbered(kind, source, body, maker) for body in kind.bodies])
    for number, make in zip(count(), made):
        yield make(number)


def _numbered(kind: Kind, source: int, body: bytes, maker: Maker) -> Callable[[int], Shot]:
    """A function of the request's number. The request is built once, and its mark replaced; built anew where it hides the mark."""
    shot = maker.make(Item(source, f"{kind.name}.jpg", body))
    if not kind.anew or MARK not in body:
        return lambda number: shot
    whole = bytes(shot.body)
    before, mark, after = whole.partition(MARK)
    if not mark:
        return lambda number: maker.make(
            Item(source, f"{kind.name}.jpg", body.replace(MARK, b"%08d" % number, 1))
        )
    return lambda number: shot._replace(body=b"".join((before, b"%08d" % (number % 10**8), after)))


def _own(images: ImageSet) -> list[tuple[Encoded, int]]:
    """Images of the set, evenly from the whole of it, with their pixels."""
    found: list[tuple[Encoded, int]] = []
    total, problems = 0, []
    step = max(1.0, images.count / MOST_OWN)
    for at in range(min(images.count, MOST_OWN)):
        try:
            encoded = Encoded(images.read(int(at * step)), images.name(int(at * step)))
            pixels = read_header(encoded.data).pixels
        except (RequestError, UsageError) as problem:
            problems.append(f"{images.name(int(at * step))}: {problem}")
            continue
        total += len(encoded.data)
        if found and total > MOST_OWN_BYTES:
            break
        found.append((encoded, pixels))
    if not found:
        raise UsageError("none of the images can be read: " + "; ".join(problems[:3]))
    return found


def _upright(encoded: Encoded) -> Any:
    try:
        return reference.decode_full(encoded, read_header(encoded.data), Recipe(width=1, height=1)).convert(
            "RGB"
        )
    except RequestError as problem:
        raise UsageError(f"{encoded.name} cannot be decoded: {problem}") from None


def _kind(name: str, whole: Any, size: tuple[int, int]) -> Kind:
    small = whole if size == whole.size else whole.resize(size, Image.Resampling.LANCZOS)
    out = BytesIO()
    small.save(out, "JPEG", quality=QUALITY)
    return Kind(name, size[0] * size[1] / 1e6, (_marked(out.getvalue()),), size)


def _scaled(size: tuple[int, int], part: float) -> tuple[int, int]:
    return max(8, round(size[0] / part)), max(8, round(size[1] / part))


def _marked(data: bytes) -> bytes:
    """A JPEG with the mark in a comment after its first marker; others as they are."""
    if data[:2] != b"\xff\xd8":
        return data
    comment = b"\xff\xfe" + (2 + len(MARK)).to_bytes(2, "big") + MARK
    return data[:2] + comment + data[2:]


def _noise(size: int) -> bytes:
    """Bytes that no decoder takes for a picture, as long as one."""
    return b"no image" + np.random.default_rng(1).bytes(max(0, size - 8))

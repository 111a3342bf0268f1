"""Pixels that know the size of the whole picture: a reduced decode rounds up, and the last column is then partly outside."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.records.image import Pixels


@dataclass(frozen=True, slots=True)
class Reduced(Pixels):
    """Pixels of a decode at a reduced scale."""

    stored: tuple[int, int] = (0, 0)
    """(width, height) of the file, before the reduction and before orientation."""


def stored_size(pixels: Pixels) -> tuple[int, int]:
    """(width, height) of the picture that `pixels` shows, in pixels of the file."""
    if isinstance(pixels, Reduced):
        return pixels.stored
    return round(pixels.image.width / pixels.shrink), round(pixels.image.height / pixels.shrink)

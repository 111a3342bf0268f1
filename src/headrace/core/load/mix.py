"""Which image each request carries."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, NamedTuple

import numpy as np

from headrace.errors import UsageError

_CHUNK = 1024


class Mix(NamedTuple):
    """`uniform`: each image as often as any other. `zipf`: the image of rank r in proportion to 1 / r^exponent, with ranks drawn by lot.
    `in-order`: one after the other, again and again."""

    kind: Literal["uniform", "zipf", "in-order"]
    exponent: float = 0.0

    def __str__(self) -> str:
        return f"zipf:{self.exponent:g}" if self.kind == "zipf" else self.kind


def parse_mix(text: str) -> Mix:
    """`uniform`, `in-order`, `zipf` (which is `zipf:1`) or `zipf:EXPONENT`. Raises UsageError."""
    if text == "uniform":
        return Mix("uniform")
    if text == "in-order":
        return Mix("in-order")
    kind, _, exponent = text.partition(":")
    try:
        value = float(exponent or "1")
    except ValueError:
        value = -1.0
    if kind != "zipf" or not 0 < value <= 10:
        raise UsageError(
            f"the mix {text!r} is none of uniform, in-order and zipf:EXPONENT with an exponent above 0, at most 10"
        )
    return Mix("zipf", value)


def picks(mix: Mix, images: int, random: np.random.Generator) -> Iterator[int]:
    """Numbers of images (0 to `images` - 1) without end."""
    if mix.kind == "in-order":
        while True:
            yield from range(images)
    if mix.kind == "uniform":
        while True:
            yield from random.integers(0, images, _CHUNK).tolist()
    of_rank = random.permutation(images)
    upto = np.cumsum(np.arange(1, images + 1, dtype=np.float64) ** -mix.exponent)
    while True:
        ranks = np.searchsorted(upto, random.random(_CHUNK) * upto[-1], side="right")
        yield from of_rank[np.minimum(ranks, images - 1)].tolist()

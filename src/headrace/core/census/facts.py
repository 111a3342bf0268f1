"""What is counted of images: what their headers say, how large they are, which of them are the same."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from headrace.core.image.header import read_header
from headrace.records.image import Data, Header

Numbers = npt.NDArray[np.float64]

_SUBSAMPLING = {(1, 1): "4:4:4", (2, 1): "4:2:2", (2, 2): "4:2:0", (4, 1): "4:1:1", (1, 2): "4:4:0"}
"""By how many luma samples there are to a chroma sample, across and down."""


@dataclass(frozen=True, slots=True)
class ImageFacts:
    """One image. What is not known is None."""

    name: str
    format: str | None
    width: int | None
    height: int | None
    size_bytes: int | None
    subsampling: str | None = None
    """JPEG: `4:2:0` and so on, `grey`, or `other`."""
    scans: str | None = None
    """JPEG: `baseline` or `progressive`."""
    orientation: str | None = None
    """`upright` or `turned` by its EXIF tag."""
    frames: str | None = None
    """`still` or `animated`."""
    colour: str | None = None
    """`rgb`, `ycc`, `grey`, `cmyk` or `palette`, with ` + alpha` where there is some."""

    @property
    def pixels(self) -> int | None:
        return None if self.width is None or self.height is None else self.width * self.height


def facts_of(name: str, data: Data, size_bytes: int) -> ImageFacts:
    """From the first bytes of an image, as many as its header needs. Raises UnsupportedMedia or ImageError (of `read_header`)."""
    header = read_header(data)
    jpeg = header.format == "jpeg"
    return ImageFacts(
        name=name,
        format=header.format,
        width=header.width,
        height=header.height,
        size_bytes=size_bytes,
        subsampling=subsampling(header) if jpeg else None,
        scans=("progressive" if header.progressive else "baseline") if jpeg else None,
        orientation="upright" if header.orientation == 1 else "turned",
        frames="still" if header.frames == 1 else "animated",
        colour=header.colour + (" + alpha" if header.alpha else ""),
    )


def subsampling(header: Header) -> str:
    """The usual name of a JPEG's sampling factors."""
    factors = header.sampling
    if len(factors) == 1:
        return "grey"
    (luma_across, luma_down), *rest = factors
    chroma = set(rest[:2])
    if len(chroma) != 1 or any(factor != factors[0] for factor in rest[2:]):
        return "other"
    ((across, down),) = chroma
    if luma_across % across or luma_down % down:
        return "other"
    return _SUBSAMPLING.get((luma_across // across, luma_down // down), "other")


@dataclass(frozen=True, slots=True)
class Sizes:
    """How large things are: different values, and how many things have each."""

    values: Numbers
    """float64[k], rising."""
    counts: Numbers
    """float64[k], each above 0."""

    @classmethod
    def of(cls, counts: Mapping[int, int]) -> Sizes:
        """From how many things have each value; there must be some."""
        rising = sorted(counts)
        return cls(np.array(rising, np.float64), np.array([counts[value] for value in rising], np.float64))

    @property
    def total(self) -> float:
        return float(self.counts.sum())

    def quantile(self, share: float) -> float:
        """The smallest value that at least `share` (0..1) of the things do not exceed."""
        place = np.searchsorted(np.cumsum(self.counts), share * self.total * (1 - 1e-12), side="left")
        return float(self.values[min(int(place), len(self.values) - 1)])


@dataclass(frozen=True, slots=True)
class Makeup:
    """What a set of images, or traffic, is made of. Traffic counts an image as often as it was asked for."""

    images: int
    """Different ones."""
    worth: float
    """How many images asked for equally often would tell as much: the square of the sum of the times each counts, by the sum of their
    squares (Kish's effective sample size)."""
    sizes: Mapping[str, Sizes]
    """`pixels` and `bytes`, as far as known."""
    kinds: Mapping[str, Mapping[str, int]]
    """Property -> label -> images or requests, most first; properties that nothing has are left out."""


_SIZES: Mapping[str, Callable[[ImageFacts], int | None]] = {
    "pixels": lambda image: image.pixels,
    "bytes": lambda image: image.size_bytes,
}
_KINDS: Mapping[str, Callable[[ImageFacts], str | None]] = {
    "format": lambda image: image.format,
    "subsampling": lambda image: image.subsampling,
    "scans": lambda image: image.scans,
    "colour": lambda image: image.colour,
    "orientation": lambda image: image.orientation,
    "frames": lambda image: image.frames,
}


class MakeupCounter:
    """Told of every image, and how often it counts."""

    def __init__(self) -> None:
        self._images = self._times = self._squares = 0
        self._sizes: dict[str, Counter[int]] = {name: Counter() for name in _SIZES}
        self._kinds: dict[str, Counter[str]] = {name: Counter() for name in _KINDS}

    def add(self, image: ImageFacts, times: int = 1) -> None:
        """What is asked for 0 times does not count."""
        self._images += times > 0
        self._times += times
        self._squares += times * times
        for name, size_of in _SIZES.items():
            size = size_of(image)
            if size is not None and times > 0:
                self._sizes[name][size] += times
        for name, kind_of in _KINDS.items():
            kind = kind_of(image)
            if kind is not None and times > 0:
                self._kinds[name][kind] += times

    def makeup(self) -> Makeup:
        return Makeup(
            images=self._images,
            worth=self._times**2 / max(1, self._squares),
            sizes={name: Sizes.of(counts) for name, counts in self._sizes.items() if counts},
            kinds={name: dict(counts.most_common()) for name, counts in self._kinds.items() if counts},
        )

"""The user's images at every state on their way, as many as fit."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from headrace.core.image import reference
from headrace.core.image.canvas import FreshCanvas
from headrace.core.image.decode import decode
from headrace.core.image.decode_plan import Limits, plan_decode
from headrace.core.image.header import read_header
from headrace.core.image.resize import Resizer
from headrace.errors import RequestError, UsageError
from headrace.records.image import AnyArray, Encoded, Header, Pixels, Uint8Array
from headrace.records.recipe import Recipe
from headrace.records.settings import Settings
from headrace.workflows.image_sets import ImageSet

MOST_IMAGES = 32
MOST_BYTES = 256 * 2**20
"""Of encoded images, and of decoded ones, kept in memory."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One image."""

    number: int
    """In its set."""
    encoded: Encoded
    header: Header
    pixels: Pixels | None
    """None when there is no room for it decoded."""
    prepared: Uint8Array
    """uint8[H, W, C] at the recipe's size."""


@dataclass(frozen=True, slots=True)
class Samples:
    """At least one."""

    images: tuple[Sample, ...]
    refused: tuple[str, ...]
    """Images that cannot be served, and why."""
    of: int
    """Images in the set."""

    @property
    def decoded(self) -> list[Pixels]:
        return [sample.pixels for sample in self.images if sample.pixels is not None]


def take_samples(images: ImageSet, recipe: Recipe, settings: Settings) -> Samples:
    """Evenly from the whole set. Raises UsageError when no image can be served."""
    taken: list[Sample] = []
    refused: list[str] = []
    encoded_bytes = decoded_bytes = 0
    for number in _spread(images.count):
        if encoded_bytes > MOST_BYTES:
            break
        try:
            sample = _sample(number, images, recipe, settings)
        except (RequestError, UsageError) as problem:
            refused.append(f"{images.name(number)}: {problem}")
            continue
        encoded_bytes += len(sample.encoded.data)
        pixels = sample.pixels
        decoded_bytes += pixels.image.width * pixels.image.height * 4 if pixels is not None else 0
        room = not taken or decoded_bytes <= MOST_BYTES
        taken.append(sample if room else replace(sample, pixels=None))
    if not taken:
        raise UsageError("none of the images can be served: " + "; ".join(refused[:3]))
    return Samples(tuple(taken), tuple(refused), images.count)


def _spread(count: int) -> list[int]:
    step = max(1.0, count / MOST_IMAGES)
    return [int(at * step) for at in range(min(count, MOST_IMAGES))]


def _sample(number: int, images: ImageSet, recipe: Recipe, settings: Settings) -> Sample:
    encoded = Encoded(images.read(number), images.name(number))
    header = read_header(encoded.data)
    limits = Limits(settings.limits_max_pixels, settings.limits_max_decode_bytes)
    plan = plan_decode(header, recipe, settings.decode_fidelity, settings.decode_skip_scans, limits)
    pixels = decode(encoded, header, plan, recipe, FreshCanvas)
    prepared = np.zeros((recipe.height, recipe.width, recipe.channels), np.uint8)
    Resizer(recipe).write(pixels, prepared)
    return Sample(number, encoded, header, pixels, prepared)


def batch_of(samples: Samples, size: int) -> Uint8Array:
    """uint8[size, H, W, C], the samples in turn."""
    return np.stack([samples.images[at % len(samples.images)].prepared for at in range(size)])


def normalised(batch: Uint8Array, recipe: Recipe) -> AnyArray:
    """`batch` as a model without the normalising front takes it."""
    return np.stack([reference.layout(reference.normalise(image, recipe), recipe) for image in batch])

"""A first run before the doors open: does the model run at all, alone and in company?"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from headrace.errors import InferenceFailed, ModelError
from headrace.models.front import folded
from headrace.models.runner import Runner
from headrace.records.image import AnyArray
from headrace.records.recipe import Recipe

APART = 0.02
"""Answers differ when they are further apart than this share of the largest value."""


@dataclass(frozen=True, slots=True)
class Trial:
    """What the first runs showed."""

    max_batch: int | None
    """The runner's, or 1 when the model turned out to take only one image at a time."""
    notes: tuple[str, ...]


def try_out(runner: Runner, recipe: Recipe) -> Trial:
    """Runs one image, then the same with a second beside it. Raises ModelError when one alone does not run."""
    pair = _two_images(runner, recipe)
    try:
        alone = runner.run(pair[:1])
    except InferenceFailed as error:
        raise ModelError(
            f"the model loads and does not run at {recipe.width}x{recipe.height}: {error}"
        ) from error
    if runner.max_batch == 1:
        return Trial(1, ())
    try:
        together = runner.run(pair)
    except InferenceFailed as error:
        note = (
            "The model runs one image and not two at once, so batches are run one by one; export it with a batch "
            f"dimension that is really free ({error})."
        )
        return Trial(1, (note,))
    return Trial(runner.max_batch, _company(alone, together))


def _two_images(runner: Runner, recipe: Recipe) -> AnyArray:
    """Seeded noise, a dark image and a bright one, as the runner wants it."""
    noise = np.random.default_rng(7).integers(0, 256, (2, recipe.height, recipe.width, recipe.channels))
    noise[0] //= 4
    if runner.input_dtype == np.uint8:
        values = noise.astype(np.float32)
    else:
        factor, offset = folded(recipe)
        values = noise.astype(np.float32) * factor + offset
    if runner.image_shape != values.shape[1:]:
        values = values.transpose(0, 3, 1, 2)
    pair = runner.allocate(values.shape)
    pair[...] = values
    return pair


def _company(alone: dict[str, AnyArray], together: dict[str, AnyArray]) -> tuple[str, ...]:
    notes = []
    for name, both in together.items():
        single, beside = alone[name][0], both[0]
        if single.shape != beside.shape or not np.issubdtype(both.dtype, np.floating):
            continue
        size = float(np.max(np.abs(single), initial=0.0))
        apart = float(np.max(np.abs(single - beside), initial=0.0))
        if apart > APART * size:
            notes.append(
                f"The output '{name}' of an image changes with the other images in its batch (by {apart:.3g} of {size:.3g} "
                "in a trial): the graph mixes the batch, as dynamic quantisation and layers left in training mode do."
            )
    return tuple(notes)

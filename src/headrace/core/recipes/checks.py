"""Bounds that every recipe keeps, wherever it came from. Pure."""

from __future__ import annotations

import math
import re

from headrace.errors import RecipeError
from headrace.records.recipe import Recipe

LARGEST_SIDE = 16_384
_COLOUR = re.compile(r"#[0-9a-fA-F]{6}")


def checked(recipe: Recipe) -> Recipe:
    """The recipe itself. Raises RecipeError that names the first field out of bounds, its value and what fits."""
    _number("width", recipe.width, 1, LARGEST_SIDE)
    _number("height", recipe.height, 1, LARGEST_SIDE)
    _number("pad_value", recipe.pad_value, 0, 255)
    _number("oversampling", recipe.oversampling, 1.0, 8.0)
    if not 0.0 < recipe.crop_fraction <= 1.0:
        raise RecipeError(f"crop_fraction = {recipe.crop_fraction:g} is not above 0 and at most 1")
    if recipe.crop_fraction < 1.0 and recipe.fit != "center_crop":
        raise RecipeError(
            f'crop_fraction = {recipe.crop_fraction:g} needs fit = "center_crop", not "{recipe.fit}"'
        )
    if recipe.alpha != "drop" and not _COLOUR.fullmatch(recipe.alpha):
        raise RecipeError(f'alpha = "{recipe.alpha}" is neither drop nor a background colour like #ffffff')
    _values(recipe)
    return recipe


def _values(recipe: Recipe) -> None:
    if not (math.isfinite(recipe.scale) and recipe.scale != 0.0):
        raise RecipeError(f"scale = {recipe.scale:g} is not a finite number other than 0")
    for name, values in (("mean", recipe.mean), ("std", recipe.std)):
        if len(values) != recipe.channels:
            raise RecipeError(
                f'{name} has {len(values)} values and colour = "{recipe.colour}" has {recipe.channels}: give one for each channel'
            )
        for value in values:
            if not math.isfinite(value):
                raise RecipeError(f"{name} holds {value:g}, which is not a finite number")
    if 0.0 in recipe.std:
        raise RecipeError("std holds 0, and values are divided by it; give 1 for no division")


def _number(name: str, value: float, low: float, high: float) -> None:
    if not low <= value <= high:
        raise RecipeError(f"{name} = {value:g} is outside {low:g} to {high:g}")

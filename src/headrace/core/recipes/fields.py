"""Typed reads from a foreign JSON configuration. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from headrace.errors import RecipeError

Config = Mapping[str, Any]


def flag(config: Config, key: str, default: bool) -> bool:
    """Raises RecipeError when the value is neither true, false nor absent."""
    value = config.get(key)
    if value is None:
        return default
    if not isinstance(value, bool):
        raise RecipeError(f"{key} = {value!r} is neither true nor false")
    return value


def number(config: Config, key: str, default: float) -> float:
    """Raises RecipeError when the value is no finite number and not absent."""
    value = config.get(key)
    if value is None:
        return default
    if not _is_number(value):
        raise RecipeError(f"{key} = {value!r} is not a finite number")
    return float(value)


def side(value: Any, key: str) -> int:
    """A length in pixels. Raises RecipeError for anything but a whole number of 1 or more."""
    if type(value) is float and value.is_integer():
        value = int(value)
    if type(value) is not int or value < 1:
        raise RecipeError(f"{key} = {value!r} is not a length in pixels")
    return value


def channels(config: Config, key: str) -> tuple[float, ...]:
    """One number for each channel; a single number stays one. Raises RecipeError when absent or of another kind."""
    value = config.get(key)
    values: Sequence[Any] = value if isinstance(value, list | tuple) else [value]
    if not values or not all(_is_number(entry) for entry in values):
        raise RecipeError(f"{key} = {value!r} is not a list with a number for each channel")
    return tuple(float(entry) for entry in values)


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and abs(value) < 1e300 and math.isfinite(value)

"""Recipes from timm's `config.json`. Pure.

What a recipe cannot say raises RecipeError, with the sentence that says what and what to do.
"""

from __future__ import annotations

import math
from typing import Any, get_args

from headrace.core.recipes.checks import checked
from headrace.core.recipes.fields import Config, channels, number, side
from headrace.core.recipes.geometry import Geometry, cut_from
from headrace.errors import RecipeError
from headrace.records.recipe import Filter, ModelCard, Recipe, RecipeFile

_FILTERS: dict[str, Filter] = {name: name for name in get_args(Filter)}
_MEAN, _STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
"""timm's defaults, for configurations that leave them out."""
_CROP_PCT = 0.875


def from_timm(config: Config) -> RecipeFile:
    """`config` is timm's `config.json`, with `pretrained_cfg` or in the older flat form. Raises RecipeError naming the key."""
    nested = config.get("pretrained_cfg")
    inner: Config = {**config, **nested} if isinstance(nested, dict) else config
    count, height, width = _input_size(inner)
    mean, std = (
        _per_channel(inner, key, default, count) for key, default in (("mean", _MEAN), ("std", _STD))
    )
    fitted, pad_value = _geometry(inner, width, height, mean)
    recipe = Recipe(
        width=fitted.width,
        height=fitted.height,
        fit=fitted.fit,
        crop_fraction=fitted.crop_fraction,
        pad_value=pad_value,
        filter=_filter(inner),
        colour="grey" if count == 1 else "rgb",
        mean=mean,
        std=std,
    )
    return RecipeFile(recipe=checked(recipe), model=_card(inner))


def _input_size(config: Config) -> tuple[int, int, int]:
    value = config.get("input_size")
    if not isinstance(value, list | tuple) or len(value) != 3:
        raise RecipeError(f"input_size = {value!r} is not [channels, height, width]")
    count, height, width = (side(entry, "input_size") for entry in value)
    if count not in (1, 3):
        raise RecipeError(
            f"input_size = {list(value)!r} has {count} channels; recipes make 1 (grey) or 3 (rgb)"
        )
    return count, height, width


def _per_channel(config: Config, key: str, default: tuple[float, ...], count: int) -> tuple[float, ...]:
    values = channels(config, key) if config.get(key) is not None else default
    if len(values) != count:
        raise RecipeError(
            f"{key} has {len(values)} values and input_size {count} channels: give one for each channel"
        )
    return values


def _geometry(config: Config, width: int, height: int, mean: tuple[float, ...]) -> tuple[Geometry, int]:
    """The geometry and the level of the bars."""
    share = number(config, "crop_pct", _CROP_PCT)
    if not 0.0 < share <= 1.0:
        raise RecipeError(f"crop_pct = {share:g} is not above 0 and at most 1")
    mode = config.get("crop_mode") or "center"
    if mode == "center":
        return _centred(width, height, share), 114
    if mode not in ("squash", "border"):
        raise RecipeError(f"crop_mode = {mode!r} is not center, squash or border")
    if share < 1.0:
        raise RecipeError(
            f"crop_mode = {mode!r} with crop_pct = {share:g} cuts after it {'stretches' if mode == 'squash' else 'pads'}, "
            "which no recipe says: write a recipe.toml with the fit you want"
        )
    if mode == "squash":
        return Geometry(width, height, "stretch"), 114
    levels = {round(255 * value) for value in mean}
    if len(levels) > 1:
        raise RecipeError(
            'crop_mode = "border" fills the bars with the mean colour and a recipe has one level for all channels: write a '
            'recipe.toml with fit = "letterbox" and the pad_value you accept'
        )
    return Geometry(width, height, "letterbox"), levels.pop()


def _centred(width: int, height: int, share: float) -> Geometry:
    """timm rounds the short side down; the fraction is that of the rounded side, so that the very same one comes out."""
    if width != height:
        raise RecipeError(
            f"input_size {width}x{height} is not square, and center_crop is only defined for squares here: write a "
            'recipe.toml with fit = "stretch" or "letterbox"'
        )
    return cut_from(math.floor(width / share), width)


def _filter(config: Config) -> Filter:
    value = config.get("interpolation") or "bicubic"
    if not isinstance(value, str) or value not in _FILTERS:
        raise RecipeError(f"interpolation = {value!r} is not one of {', '.join(_FILTERS)}")
    return _FILTERS[value]


def _card(config: Config) -> ModelCard:
    """timm's models are classifiers with raw scores, unless they have no classes."""
    classes: Any = config.get("num_classes", 1000)
    if classes == 0:
        return ModelCard()
    names = config.get("label_names")
    labels = tuple(str(name) for name in names) if isinstance(names, list) else ()
    descriptions = config.get("label_descriptions")
    if isinstance(descriptions, dict):
        labels = tuple(str(descriptions.get(name, name)) for name in labels)
    return ModelCard(task="classify", activation="softmax", labels=labels)

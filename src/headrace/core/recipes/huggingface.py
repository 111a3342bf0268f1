"""Recipes from Hugging Face's `preprocessor_config.json`, and model cards from `config.json`. Pure.

What a recipe cannot say raises RecipeError, with the sentence that says what and what to do.
"""

from __future__ import annotations

from collections.abc import Mapping

from headrace.core.recipes.checks import checked
from headrace.core.recipes.fields import Config, channels, flag, number
from headrace.core.recipes.huggingface_geometry import geometry, processor_kind
from headrace.errors import RecipeError
from headrace.records.recipe import Activation, Filter, ModelCard, Recipe, RecipeFile, Task

_FILTERS: Mapping[int, Filter] = {0: "nearest", 1: "lanczos", 2: "bilinear", 3: "bicubic", 4: "box"}
"""By Pillow's number. 5, hamming, is in no recipe."""
_TASKS: Mapping[str, tuple[Task, Activation]] = {
    "ForImageClassification": ("classify", "softmax"),
    "ForDepthEstimation": ("map", "none"),
    "ForSemanticSegmentation": ("raw", "none"),
}


def from_huggingface(config: Config, model_config: Config | None = None) -> RecipeFile:
    """`config` is `preprocessor_config.json`; `model_config` the model's `config.json`, for labels and task.

    Raises RecipeError that names the key.
    """
    nested = config.get("image_processor")
    if isinstance(nested, dict):
        config = nested
    fitted = geometry(config)
    scale, mean, std = _values(config)
    recipe = Recipe(
        width=fitted.width,
        height=fitted.height,
        fit=fitted.fit,
        crop_fraction=fitted.crop_fraction,
        filter=_filter(config),
        colour="bgr" if flag(config, "do_flip_channel_order", False) else "rgb",
        scale=scale,
        mean=mean,
        std=std,
    )
    return RecipeFile(recipe=checked(recipe), model=card_from_config(model_config or {}))


def card_from_config(config: Config) -> ModelCard:
    """Task, activation and labels from a model's `config.json`, as far as it says them. Raises RecipeError."""
    labels = labels_from_config(config)
    architectures = config.get("architectures")
    name = str(architectures[0]) if isinstance(architectures, list) and architectures else ""
    task, activation = next(
        (found for ending, found in _TASKS.items() if name.endswith(ending)), ("raw", "none")
    )
    if task == "classify" and config.get("problem_type") == "multi_label_classification":
        activation = "sigmoid"
    return ModelCard(task=task, activation=activation, labels=labels if task == "classify" else ())


def labels_from_config(config: Config) -> tuple[str, ...]:
    """`id2label` in the order of its numbers; empty when absent. Raises RecipeError when a number is missing or no number."""
    named = config.get("id2label")
    if named is None:
        return ()
    if not isinstance(named, dict):
        raise RecipeError(f"id2label is a {type(named).__name__} and not a table of numbers and labels")
    try:
        by_number = {int(key): str(label) for key, label in named.items()}
    except ValueError:
        raise RecipeError(
            "id2label has a key that is no number; list the labels in [model] labels instead"
        ) from None
    for wanted in range(len(named)):
        if wanted not in by_number:
            raise RecipeError(
                f"id2label has {len(named)} labels and none for {wanted}; list them in [model] labels instead"
            )
    return tuple(by_number[index] for index in range(len(named)))


def _filter(config: Config) -> Filter:
    value = config.get("resample")
    if value is None:
        raise RecipeError(
            'resample is missing, and its default differs from model to model: add "resample": 2 for bilinear or 3 for bicubic'
        )
    if type(value) is not int or value not in _FILTERS:
        known = ", ".join(f"{index} {name}" for index, name in _FILTERS.items())
        name = "hamming" if value == 5 else repr(value)
        raise RecipeError(
            f"resample = {name} is none of a recipe's filters ({known}): take the nearest kin in a recipe.toml"
        )
    return _FILTERS[value]


def _values(config: Config) -> tuple[float, tuple[float, ...], tuple[float, ...]]:
    """(scale, mean, std) with value = (pixel * scale - mean) / std."""
    factor = number(config, "rescale_factor", 1.0 / 255.0)
    scale = factor if flag(config, "do_rescale", True) else 1.0
    mean, std = _normalisation(config)
    if flag(config, "rescale_offset", False) and flag(config, "do_rescale", True):
        if abs(factor * 127.5 - 1.0) > 1e-6:
            raise RecipeError(
                f"rescale_offset with rescale_factor = {factor:g} has meant different things over time; only 1/127.5 is "
                "unambiguous: write scale, mean and std into a recipe.toml yourself"
            )
        mean = tuple(value + 1.0 for value in mean)
    if flag(config, "include_top", "EfficientNet" in processor_kind(config)):
        # The processor of EfficientNet divides by std once more.
        again = _three(channels(config, "image_std"), "image_std")
        std = tuple(value * more for value, more in zip(std, again, strict=True))
    return scale, mean, std


def _normalisation(config: Config) -> tuple[tuple[float, ...], tuple[float, ...]]:
    stated = config.get("do_normalize") is not None or config.get("image_mean") is not None
    if not stated and "MobileViT" not in processor_kind(config):
        raise RecipeError(
            "neither do_normalize nor image_mean is there: add image_mean and image_std, or do_normalize = false"
        )
    if not flag(config, "do_normalize", stated):
        return (0.0, 0.0, 0.0), (1.0, 1.0, 1.0)
    for key in ("image_mean", "image_std"):
        if config.get(key) is None:
            raise RecipeError(
                f"do_normalize is true and {key} is missing: add it, or write a recipe.toml yourself"
            )
    mean, std = channels(config, "image_mean"), channels(config, "image_std")
    return _three(mean, "image_mean"), _three(std, "image_std")


def _three(values: tuple[float, ...], key: str) -> tuple[float, ...]:
    if len(values) == 1:
        return values * 3
    if len(values) != 3:
        raise RecipeError(f"{key} has {len(values)} values; models for rgb images have 3")
    return values

"""Reads a recipe from disk, whatever form it has."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from headrace.core.recipes.huggingface import from_huggingface
from headrace.core.recipes.timm import from_timm
from headrace.core.recipes.toml import parse_recipe_toml
from headrace.errors import RecipeError
from headrace.records.recipe import RecipeFile
from headrace.units import format_bytes

LARGEST_FILE = 4 * 2**20
_HUGGINGFACE = (
    "image_processor_type",
    "feature_extractor_type",
    "image_processor",
    "do_resize",
    "do_normalize",
    "image_mean",
)


def load_recipe(path: Path) -> RecipeFile:
    """The recipe at `path`: TOML, Hugging Face's `preprocessor_config.json` or timm's `config.json`, told by content.

    A `labels` file name is relative to the recipe. Beside a Hugging Face file, the model's `config.json` gives labels and
    task. Raises RecipeError that names the path.
    """
    text = _read(path)
    try:
        if text.lstrip().startswith("{"):
            return _from_json(text, path)
        return parse_recipe_toml(text, read_labels=lambda name: read_labels(path.parent / name))
    except RecipeError as error:
        raise RecipeError(f"{path}: {error}") from error
    except RecursionError:
        raise RecipeError(f"{path}: it is nested too deeply to be a recipe") from None


def read_labels(path: Path) -> tuple[str, ...]:
    """Labels from a JSON list, or one a line with nothing stripped but line ends. Raises RecipeError that names the path."""
    text = _read(path)
    if text.lstrip().startswith("["):
        labels = _json(text, path)
        if not all(isinstance(label, str) for label in labels):
            raise RecipeError(f"{path} is not a list of texts")
        return tuple(labels)
    return tuple(text.removesuffix("\n").splitlines())


def _from_json(text: str, path: Path) -> RecipeFile:
    config = _json(text, path)
    if isinstance(config.get("pretrained_cfg"), dict) or "input_size" in config:
        return from_timm(config)
    if any(key in config for key in _HUGGINGFACE):
        return from_huggingface(config, _model_config(path))
    if "architectures" in config or "model_type" in config:
        raise RecipeError(
            "this describes the model and not its input: give preprocessor_config.json, which lies beside it"
        )
    raise RecipeError(
        "the JSON is neither Hugging Face's preprocessor_config.json (no do_resize, no image_mean) nor timm's config.json (no "
        "input_size, no pretrained_cfg)"
    )


def _model_config(path: Path) -> dict[str, Any] | None:
    beside = path.with_name("config.json")
    if path.name == "config.json" or not beside.is_file():
        return None
    config = _json(_read(beside), beside)
    if not isinstance(config, dict):
        raise RecipeError(f"{beside} is not a JSON table")
    return config


def _json(text: str, path: Path) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise RecipeError(f"{path} is not valid JSON: {error}") from None


def _read(path: Path) -> str:
    try:
        with path.open("rb") as file:
            data = file.read(LARGEST_FILE + 1)
    except OSError as error:
        raise RecipeError(f"{path} cannot be read: {error.strerror or error}") from error
    if len(data) > LARGEST_FILE:
        raise RecipeError(
            f"{path} is larger than {format_bytes(LARGEST_FILE)}, too large for a recipe or labels"
        )
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise RecipeError(f"{path} is not UTF-8 text") from None

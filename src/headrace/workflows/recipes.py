"""Which recipe goes with a model."""

from __future__ import annotations

from pathlib import Path

from headrace.errors import ModelError, UsageError
from headrace.records.recipe import RecipeFile
from headrace.store.recipe_files import load_recipe


def find_recipe(model: Path | None, recipe: Path | None) -> RecipeFile:
    """The recipe at `recipe_path`. Raises RecipeError or UsageError."""
    return load_recipe(recipe_path(model, recipe))


def recipe_path(model: Path | None, recipe: Path | None) -> Path:
    """The recipe given, or the one that lies beside the model as MODEL.recipe.toml. Raises UsageError or ModelError."""
    if recipe is not None:
        return recipe
    if model is None:
        raise UsageError("without a model a recipe is needed: --recipe FILE")
    if not model.exists():
        raise ModelError(f"the model {model} does not exist")
    beside = model.with_suffix(".recipe.toml")
    if not beside.is_file():
        kinds = "TOML, preprocessor_config.json or a timm config.json"
        raise UsageError(f"no recipe: give --recipe FILE ({kinds}), or put it at {beside}")
    return beside

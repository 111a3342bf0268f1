"""Recipe files in TOML: `[recipe]` and `[model]`, read and written. Pure."""

from __future__ import annotations

import difflib
import json
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, fields
from typing import Any, get_args

from headrace.core.recipes.checks import checked
from headrace.errors import RecipeError
from headrace.records import recipe as words
from headrace.records.recipe import ModelCard, Recipe, RecipeFile

ReadLabels = Callable[[str], tuple[str, ...]]

_CHOICES: Mapping[str, tuple[str, ...]] = {
    "fit": get_args(words.Fit),
    "filter": get_args(words.Filter),
    "colour": get_args(words.Colour),
    "layout": get_args(words.Layout),
    "dtype": get_args(words.DType),
    "orientation": ("apply", "ignore"),
    "icc": ("ignore", "srgb"),
    "task": get_args(words.Task),
    "activation": get_args(words.Activation),
}
_WHOLE = ("width", "height", "pad_value")
_NUMBERS = ("crop_fraction", "scale", "oversampling")
_PER_CHANNEL = ("mean", "std")
_TEXTS = ("alpha", "input")
_NAMES = ("outputs", "labels")
_PER_LINE = 8
"""A list of more names than this is written one name a line."""


def parse_recipe_toml(text: str, *, read_labels: ReadLabels) -> RecipeFile:
    """A recipe file from its text; `read_labels` turns the file name that `labels` may be into the labels.

    `scale` may be a fraction in quotes, like "1/255". Raises RecipeError that names the key, its value and what fits.
    """
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise RecipeError(f"the recipe is not valid TOML: {error}") from None
    _known(document, ("recipe", "model"), "the file")
    if "recipe" not in document:
        raise RecipeError("the file has no [recipe] table; it needs at least width and height there")
    tables = {name: _table(document, name) for name in ("recipe", "model")}
    recipe = checked(Recipe(**_recipe_values(tables["recipe"])))
    labels = tables["model"].get("labels")
    if isinstance(labels, str):
        tables["model"] = {**tables["model"], "labels": list(read_labels(labels))}
    return RecipeFile(
        recipe=recipe, model=ModelCard(**_values(tables["model"], fields(ModelCard), "[model]"))
    )


def to_toml(file: RecipeFile) -> str:
    """Text that `parse_recipe_toml` reads back as an equal file. Values that are the default are left out."""
    tables = []
    for title, part in (("recipe", file.recipe), ("model", file.model)):
        rows = [
            f"{row.name} = {_written(row.name, getattr(part, row.name))}"
            for row in fields(part)
            if not _is_default(row, file, getattr(part, row.name))
        ]
        if rows:
            tables.append("\n".join([f"[{title}]", *rows]))
    return "\n\n".join(tables) + "\n"


def _recipe_values(table: Mapping[str, Any]) -> dict[str, Any]:
    values = _values(table, fields(Recipe), "[recipe]")
    for name in ("width", "height"):
        if name not in values:
            raise RecipeError(f"[recipe] lacks {name}, the model's input {name} in pixels")
    if values.get("colour") == "grey":
        values.setdefault("mean", (0.0,))
        values.setdefault("std", (1.0,))
    return values


def _values(table: Mapping[str, Any], rows: tuple[Field[Any], ...], where: str) -> dict[str, Any]:
    _known(table, tuple(row.name for row in rows), where)
    return {name: _value(name, value) for name, value in table.items()}


def _value(name: str, value: Any) -> Any:
    """`value` as the field's type, or RecipeError."""
    if name in _CHOICES:
        return _choice(name, value)
    if name in _WHOLE:
        return _checked_type(name, value, type(value) is int, "a whole number")
    if name in _NUMBERS:
        return _number(name, value)
    if name in _PER_CHANNEL:
        _checked_type(name, value, isinstance(value, list), "a list with a number for each channel")
        return tuple(_number(name, entry) for entry in value)
    if name in _TEXTS:
        return _checked_type(name, value, isinstance(value, str), "text")
    if name in _NAMES:
        good = isinstance(value, list) and all(isinstance(entry, str) for entry in value)
        return tuple(_checked_type(name, value, good, "a list of texts"))
    return _checked_type(name, value, isinstance(value, bool), "true or false")


def _choice(name: str, value: Any) -> str:
    choices = _CHOICES[name]
    if not isinstance(value, str) or value not in choices:
        near = difflib.get_close_matches(str(value), choices, n=1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise RecipeError(f"{name} = {_shown(value)} is not one of {', '.join(choices)}{hint}")
    return value


def _number(name: str, value: Any) -> float:
    if name == "scale" and isinstance(value, str):
        return _fraction(value)
    _checked_type(name, value, type(value) in (int, float), "a number")
    try:
        return float(value)
    except OverflowError:
        raise RecipeError(f"{name} = {_shown(value)} is too large") from None


def _fraction(text: str) -> float:
    above, _, below = text.partition("/")
    try:
        return float(above) / float(below)
    except (ValueError, ZeroDivisionError):
        raise RecipeError(f'scale = "{text}" is neither a number nor a fraction like "1/255"') from None


def _checked_type(name: str, value: Any, good: bool, wanted: str) -> Any:
    if not good:
        raise RecipeError(f"{name} = {_shown(value)} is not {wanted}")
    return value


def _known(table: Mapping[str, Any], names: tuple[str, ...], where: str) -> None:
    for key in table:
        if key not in names:
            near = difflib.get_close_matches(key, names, n=1, cutoff=0.5)
            hint = f"did you mean {near[0]}?" if near else f"it takes {', '.join(names)}"
            raise RecipeError(f"{where} has no key {_shown(key)}; {hint}")


def _table(document: Mapping[str, Any], name: str) -> dict[str, Any]:
    table = document.get(name, {})
    if not isinstance(table, dict):
        raise RecipeError(f"{name} = {_shown(table)} is not a table; begin it with [{name}]")
    return table


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _is_default(row: Field[Any], file: RecipeFile, value: Any) -> bool:
    """mean and std are always written for grey, whose default has another length than the record's."""
    if row.default is MISSING or (file.recipe.colour == "grey" and row.name in _PER_CHANNEL):
        return False
    return bool(value == row.default)


def _written(name: str, value: Any) -> str:
    if name == "scale" and value == 1.0 / 255.0:
        return '"1/255"'
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple) and len(value) > _PER_LINE:
        return "[\n" + "".join(f"  {_written(name, entry)},\n" for entry in value) + "]"
    if isinstance(value, tuple):
        return "[" + ", ".join(_written(name, entry) for entry in value) + "]"
    return _text(value) if isinstance(value, str) else repr(value)


def _text(value: str) -> str:
    """A TOML basic string: JSON's escapes are TOML's too, once DEL is escaped and pairs of surrogates are not needed."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")

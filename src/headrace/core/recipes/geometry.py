"""The part of a recipe that says where pixels go, as importers build it. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.errors import RecipeError
from headrace.records.recipe import Fit


@dataclass(frozen=True, slots=True)
class Geometry:
    """The part of a recipe that says where pixels go."""

    width: int
    height: int
    fit: Fit
    crop_fraction: float = 1.0


def cut_from(short: int, side_length: int) -> Geometry:
    """The short side becomes `short`, then the centre of `side_length` squared is cut out."""
    if short < side_length:
        raise RecipeError(
            f"the short side becomes {short} and {side_length} are cut out of it, which leaves black bars, and no recipe "
            "makes those: check size and crop_size"
        )
    return Geometry(side_length, side_length, "center_crop", side_length / short)

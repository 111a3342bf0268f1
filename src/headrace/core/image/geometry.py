"""Where pixels go: which part of the source lands where in the model's input, and how orientation turns it."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.records.image import Uint8Array
from headrace.records.recipe import Recipe


@dataclass(frozen=True, slots=True)
class Box:
    """A rectangle in source pixels, edges may lie between pixels."""

    left: float
    top: float
    width: float
    height: float

    def scaled(self, factor: float) -> Box:
        return Box(self.left * factor, self.top * factor, self.width * factor, self.height * factor)


@dataclass(frozen=True, slots=True)
class Placement:
    """`box` of the source, as a person sees it, is resampled onto columns x..x+width and rows y..y+height of the input."""

    box: Box
    x: int
    y: int
    width: int
    height: int

    @property
    def reduction(self) -> float:
        """Source pixels per target pixel, on the axis that is reduced least."""
        return min(self.box.width / self.width, self.box.height / self.height)


def place(width: int, height: int, recipe: Recipe) -> Placement:
    """The placement of an upright source of `width` x `height` pixels under the recipe's fit."""
    if recipe.fit == "center_crop":
        return _center_crop(width, height, recipe)
    if recipe.fit == "letterbox":
        return _letterbox(width, height, recipe)
    return Placement(Box(0.0, 0.0, width, height), 0, 0, recipe.width, recipe.height)


def _center_crop(width: int, height: int, recipe: Recipe) -> Placement:
    """Resize so that (target / crop_fraction) is covered, then cut the centre out, folded into one box.

    Sizes and offsets are rounded as torchvision's Resize and CenterCrop do (truncate; round half to even), so that the
    sampling points are the ones the model was trained with.
    """
    cover_width = int(recipe.width / recipe.crop_fraction + 1e-6)
    cover_height = int(recipe.height / recipe.crop_fraction + 1e-6)
    if cover_width * height >= cover_height * width:
        resized_width, resized_height = cover_width, max(recipe.height, cover_width * height // width)
    else:
        resized_width, resized_height = max(recipe.width, cover_height * width // height), cover_height
    left, top = round((resized_width - recipe.width) / 2), round((resized_height - recipe.height) / 2)
    x_step, y_step = width / resized_width, height / resized_height
    box = Box(left * x_step, top * y_step, recipe.width * x_step, recipe.height * y_step)
    return Placement(box, 0, 0, recipe.width, recipe.height)


def _letterbox(width: int, height: int, recipe: Recipe) -> Placement:
    step = max(width / recipe.width, height / recipe.height)
    inner_width = min(recipe.width, max(1, round(width / step)))
    inner_height = min(recipe.height, max(1, round(height / step)))
    x, y = (recipe.width - inner_width) // 2, (recipe.height - inner_height) // 2
    return Placement(Box(0.0, 0.0, width, height), x, y, inner_width, inner_height)


_TURNS = {
    1: (False, False, False),
    2: (True, False, False),
    3: (True, True, False),
    4: (False, True, False),
    5: (False, False, True),
    6: (False, True, True),
    7: (True, True, True),
    8: (True, False, True),
}
"""EXIF orientation -> (mirror stored columns, mirror stored rows, then transpose) to see the picture upright (EXIF 2.32, 4.6.4 A)."""


def stored_box(box: Box, orientation: int, stored_width: float, stored_height: float) -> Box:
    """The upright `box` in the coordinates of the stored picture."""
    mirror_x, mirror_y, transpose = _TURNS[orientation]
    left, top, width, height = box.left, box.top, box.width, box.height
    if transpose:
        left, top, width, height = top, left, height, width
    if mirror_x:
        left = stored_width - left - width
    if mirror_y:
        top = stored_height - top - height
    return Box(max(0.0, left), max(0.0, top), width, height)


def as_stored(upright: Uint8Array, orientation: int) -> Uint8Array:
    """A view of `upright` [h, w, ...] in which writing the stored picture row by row paints it upright. No copy."""
    mirror_x, mirror_y, transpose = _TURNS[orientation]
    view = upright.swapaxes(0, 1) if transpose else upright
    return view[:: -1 if mirror_y else 1, :: -1 if mirror_x else 1]

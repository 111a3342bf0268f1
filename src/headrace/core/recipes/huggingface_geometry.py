"""Where the pixels go, by Hugging Face's `preprocessor_config.json`. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from headrace.core.recipes.fields import Config, flag, number, side
from headrace.core.recipes.geometry import Geometry, cut_from
from headrace.errors import RecipeError

_VARIABLE = {
    "do_pad": "pads every image to a size of its own",
    "pad_size": "pads every image",
    "do_thumbnail": "keeps the aspect ratio and pads",
    "do_align_long_axis": "turns images by their shape",
    "do_affine_transform": "cuts boxes out of the image",
    "do_image_splitting": "cuts one image into several",
    "do_split_image": "cuts one image into several",
    "do_pan_and_scan": "cuts one image into several",
    "image_grid_pinpoints": "cuts one image into several",
    "size_divisor": "sizes every image to a multiple of its own",
    "min_pixels": "sizes every image by its number of pixels",
    "max_pixels": "sizes every image by its number of pixels",
}
_FIXED_SIZE = (
    "and a recipe has one fixed size: write a recipe.toml with width, height and fit (stretch, center_crop or letterbox) "
    "as the model was trained"
)
_SHORT_EDGE_KINDS = (
    "CLIP",
    "ConvNext",
    "Levit",
    "PoolFormer",
    "MobileNet",
    "MobileViT",
    "Bit",
    "EfficientFormer",
)
"""Processors for which a bare number is the length of the short side; for others it is both sides."""
CONVNEXT_STRETCHES_FROM = 384


@dataclass(frozen=True, slots=True)
class _Size:
    """Either both sides or the short one."""

    short: int | None = None
    height: int = 0
    width: int = 0


def geometry(config: Config) -> Geometry:
    """Raises RecipeError for whatever does not end in one fixed size through one resize and at most one centred cut."""
    _check_fixed(config)
    kind = processor_kind(config)
    size = _size(config, kind)
    if "ConvNext" in kind:
        return _convnext(size, config)
    if config.get("crop_pct") is not None and "PoolFormer" not in kind:
        raise RecipeError(
            "crop_pct means different things to different processors: add image_processor_type, or write a recipe.toml"
        )
    if not flag(config, "do_center_crop", "crop_size" in config and size.short is not None):
        return _without_crop(size, config)
    crop = _crop(config, size)
    return _with_crop(_enlarged(size, config, kind), crop)


def processor_kind(config: Config) -> str:
    """The processor's class name, empty when the file does not say."""
    return str(config.get("image_processor_type") or config.get("feature_extractor_type") or "")


def _check_fixed(config: Config) -> None:
    for key, does in _VARIABLE.items():
        if config.get(key) not in (None, False):
            raise RecipeError(f"{key} {does}, {_FIXED_SIZE}")
    if flag(config, "keep_aspect_ratio", False):
        raise RecipeError(f"keep_aspect_ratio gives every image a size of its own, {_FIXED_SIZE}")
    if not flag(config, "do_resize", True):
        raise RecipeError(f"do_resize is false, so every image keeps its size, {_FIXED_SIZE}")


def _size(config: Config, kind: str) -> _Size:
    value = config.get("size")
    if isinstance(value, dict):
        return _size_from_table(value)
    if value is None:
        raise RecipeError("size is missing: give width and height in a recipe.toml")
    if isinstance(value, list) and len(value) == 2:
        return _Size(height=side(value[0], "size"), width=side(value[1], "size"))
    length = side(value, "size")
    if any(name in kind for name in _SHORT_EDGE_KINDS):
        return _Size(short=length)
    return _Size(height=length, width=length)


def _size_from_table(table: dict[str, Any]) -> _Size:
    keys = {key for key, value in table.items() if value is not None}
    if keys == {"height", "width"}:
        return _Size(height=side(table["height"], "size.height"), width=side(table["width"], "size.width"))
    if keys == {"shortest_edge"}:
        return _Size(short=side(table["shortest_edge"], "size.shortest_edge"))
    raise RecipeError(f"size = {table!r} gives every image a size of its own, {_FIXED_SIZE}")


def _convnext(size: _Size, config: Config) -> Geometry:
    """Small sizes are cut out of the centre, large ones stretched."""
    if size.short is None:
        raise RecipeError("this processor needs size.shortest_edge, and size has height and width")
    if size.short >= CONVNEXT_STRETCHES_FROM:
        return Geometry(size.short, size.short, "stretch")
    return cut_from(int(size.short / _crop_pct(config, 224 / 256)), size.short)


def _crop_pct(config: Config, default: float) -> float:
    share = number(config, "crop_pct", default)
    if not 0.0 < share <= 1.0:
        raise RecipeError(f"crop_pct = {share:g} is not above 0 and at most 1")
    return share


def _enlarged(size: _Size, config: Config, kind: str) -> _Size:
    """Two processors resize to more than `size` says and leave the rest to the cut."""
    if "PoolFormer" in kind and config.get("crop_pct", 0.9) is not None:
        if size.short is None and size.height != size.width:
            raise RecipeError(
                f"crop_pct with size {size.height}x{size.width} is not square, and no recipe says that"
            )
        return _Size(short=int((size.short or size.height) / _crop_pct(config, 0.9)))
    if "Levit" in kind and size.short is not None:
        return _Size(short=int(256 / 224 * size.short))
    return size


def _without_crop(size: _Size, config: Config) -> Geometry:
    if size.short is not None:
        raise RecipeError(
            f"size.shortest_edge = {size.short} without do_center_crop gives every image a size of its own, {_FIXED_SIZE}"
        )
    multiple = side(config.get("ensure_multiple_of", 1), "ensure_multiple_of")
    height, width = (max(1, round(length / multiple)) * multiple for length in (size.height, size.width))
    return Geometry(width, height, "stretch")


def _crop(config: Config, size: _Size) -> _Size:
    value = config.get("crop_size")
    if value is None and size.short is None:
        return size
    if value is None:
        raise RecipeError("do_center_crop is true and crop_size is missing: add it, or write a recipe.toml")
    if isinstance(value, dict):
        if {"height", "width"} <= value.keys():
            return _Size(
                height=side(value["height"], "crop_size.height"),
                width=side(value["width"], "crop_size.width"),
            )
        raise RecipeError(f"crop_size = {value!r} lacks height and width")
    length = side(value, "crop_size")
    return _Size(height=length, width=length)


def _with_crop(size: _Size, crop: _Size) -> Geometry:
    if size.short is None:
        if (size.height, size.width) == (crop.height, crop.width):
            return Geometry(size.width, size.height, "stretch")
        raise RecipeError(
            f"size stretches to {size.width}x{size.height} and crop_size then cuts out {crop.width}x{crop.height}, which no "
            f'recipe says: if the short side was meant, write size as {{"shortest_edge": {min(size.height, size.width)}}}'
        )
    if crop.height != crop.width:
        raise RecipeError(
            f"crop_size {crop.width}x{crop.height} is not square, and center_crop is only defined for squares here"
        )
    return cut_from(size.short, crop.width)

"""The reference: what training code does. Full decode, orientation, one antialiased Pillow resize, float normalise, layout.

It is the yardstick of fidelity (`headrace parity`) and the work of the `legacy` path. Written plainly, never tuned.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from PIL import Image

from headrace.core.image import codec_pillow
from headrace.core.image.decode_plan import DecodePlan
from headrace.core.image.geometry import as_stored, place
from headrace.core.image.resize import to_srgb
from headrace.records.image import AnyArray, Encoded, Header, Uint8Array
from headrace.records.recipe import Recipe

_FILTERS = {
    "nearest": Image.Resampling.NEAREST,
    "box": Image.Resampling.BOX,
    "bilinear": Image.Resampling.BILINEAR,
    "bicubic": Image.Resampling.BICUBIC,
    "lanczos": Image.Resampling.LANCZOS,
}


def decode_full(encoded: Encoded, header: Header, recipe: Recipe) -> Any:
    """Upright Pillow image, mode RGB or L, every pixel decoded. Raises ImageError."""
    pixels = codec_pillow.decode(encoded.data, header, DecodePlan(8, False, 0), recipe)
    image = pixels.image
    if pixels.icc_profile is not None:
        image = Image.fromarray(to_srgb(np.asarray(image.convert("RGBA")), pixels.icc_profile)[..., :3])
    if recipe.orientation == "ignore" or pixels.orientation == 1:
        return image
    stored = np.asarray(image)
    turned = (stored.shape[1], stored.shape[0]) if pixels.orientation >= 5 else stored.shape[:2]
    upright = np.empty((*turned, *stored.shape[2:]), np.uint8)
    as_stored(upright, pixels.orientation)[...] = stored
    return Image.fromarray(upright)


def resize(image: Any, recipe: Recipe) -> Any:
    """The recipe's fit of an upright image, as a Pillow image of the model's size."""
    placement = place(image.width, image.height, recipe)
    box = placement.box
    edges = (
        box.left,
        box.top,
        min(box.left + box.width, image.width),
        min(box.top + box.height, image.height),
    )
    small = image.resize((placement.width, placement.height), _FILTERS[recipe.filter], box=edges)
    if small.size == (recipe.width, recipe.height):
        return small
    canvas = Image.new(small.mode, (recipe.width, recipe.height), (recipe.pad_value,) * len(small.getbands()))
    canvas.paste(small, (placement.x, placement.y))
    return canvas


def colour(image: Any, recipe: Recipe) -> Uint8Array:
    """uint8[H, W, C] in the recipe's channel order."""
    if recipe.colour == "grey":
        return np.asarray(image.convert("L"))[..., None]
    array = np.asarray(image.convert("RGB"))
    return array[..., ::-1] if recipe.colour == "bgr" else array


def normalise(prepared: Uint8Array, recipe: Recipe) -> AnyArray:
    """(pixel * scale - mean) / std as the recipe's dtype, [H, W, C]."""
    scaled = prepared.astype(np.float32) * np.float32(recipe.scale)
    values = (scaled - np.asarray(recipe.mean, np.float32)) / np.asarray(recipe.std, np.float32)
    return values.astype(np.dtype(recipe.dtype))


def layout(values: AnyArray, recipe: Recipe) -> AnyArray:
    """[C, H, W] or [H, W, C], contiguous."""
    return (
        np.ascontiguousarray(values.transpose(2, 0, 1))
        if recipe.layout == "nchw"
        else np.ascontiguousarray(values)
    )


def prepare(encoded: Encoded, header: Header, recipe: Recipe) -> Uint8Array:
    """uint8[H, W, C]: the pixels every other way of preparing is held against."""
    return colour(resize(decode_full(encoded, header, recipe), recipe), recipe)

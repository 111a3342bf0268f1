"""Encoded bytes to pixels: which codec reads what."""

from __future__ import annotations

from headrace.core.image import codec_jpeg, codec_pillow
from headrace.core.image.canvas import Take
from headrace.core.image.decode_plan import DecodePlan
from headrace.records.image import Encoded, Header, Pixels
from headrace.records.recipe import Recipe


def decode(encoded: Encoded, header: Header, plan: DecodePlan, recipe: Recipe, take: Take) -> Pixels:
    """Pixels of the first frame, not yet upright. Raises ImageError, ImageTooLarge or UnsupportedMedia; nothing else.

    Colour profiles are read by the general codec only, so a recipe that wants them sends profiled JPEGs there.
    """
    general = header.icc and recipe.icc == "srgb"
    if header.format == "jpeg" and codec_jpeg.reads(header) and not general:
        try:
            return codec_jpeg.decode(encoded.data, header, plan, take)
        except ValueError:
            pass
    return codec_pillow.decode(encoded.data, header, plan, recipe)

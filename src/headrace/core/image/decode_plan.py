"""How much of an image has to be decoded, and what that costs in memory: decided from the header, before anything is allocated."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.core.image.geometry import place
from headrace.errors import ImageError, ImageTooLarge
from headrace.records.image import Header
from headrace.records.recipe import Recipe
from headrace.units import format_bytes

EIGHTHS = (1, 2, 4, 8)
"""DCT scales with a SIMD inverse transform in libjpeg-turbo; 3/8, 5/8 and 6/8 are slower than 4/8 (measured: 29 ms against 25 ms)."""

_MAX_SIDE = 100_000
_BYTES_PER_PIXEL = {"webp": 16, "avif": 12, "heic": 12}
"""Peak of a full decode, measured: the image, the codec's planes and the copy between them."""
_USUAL_BYTES_PER_PIXEL = 8
"""Of the other formats but JPEG: 4 bytes a pixel in the image and as much again in the codec or a conversion."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What one image may ask for."""

    max_pixels: int
    max_decode_bytes: int


@dataclass(frozen=True, slots=True)
class DecodePlan:
    """`eighths`/8 is the decoded share of each side."""

    eighths: int
    skip_scans: bool
    bytes_needed: int

    def size(self, header: Header) -> tuple[int, int]:
        """(width, height) decoded; libjpeg rounds up."""
        return -(-header.width * self.eighths // 8), -(-header.height * self.eighths // 8)


def plan_decode(
    header: Header, recipe: Recipe, fidelity: str, skip_scans: bool, limits: Limits
) -> DecodePlan:
    """The cheapest decode that the recipe's oversampling allows under `fidelity`, fast or exact.

    Raises ImageTooLarge or ImageError; nothing was allocated.
    """
    _check_size(header, limits)
    reducible = header.format == "jpeg" and fidelity == "fast"
    eighths = _eighths(header, recipe) if reducible else 8
    plan = DecodePlan(
        eighths,
        reducible and skip_scans and header.progressive and eighths < 8,
        _bytes_needed(header, recipe, eighths),
    )
    if plan.bytes_needed > limits.max_decode_bytes:
        raise ImageTooLarge(
            f"decoding this {header.width}x{header.height} {header.format} needs about {format_bytes(plan.bytes_needed)}; "
            f"limits.max_decode_bytes is {format_bytes(limits.max_decode_bytes)}"
        )
    return plan


def _check_size(header: Header, limits: Limits) -> None:
    if header.pixels > limits.max_pixels or max(header.width, header.height) > _MAX_SIDE:
        raise ImageTooLarge(
            f"the {header.format} header says {header.width}x{header.height} = {header.pixels / 1e6:.1f} megapixels; "
            f"limits.max_pixels is {limits.max_pixels / 1e6:g} megapixels"
        )
    if header.bits > 16:
        raise ImageError(f"the {header.format} has {header.bits} bits per channel; up to 16 are read")


def _eighths(header: Header, recipe: Recipe) -> int:
    turned = recipe.orientation == "apply"
    width, height = header.oriented_size if turned else (header.width, header.height)
    reduction = place(width, height, recipe).reduction
    return next((n for n in EIGHTHS if reduction * n / 8 >= recipe.oversampling), 8)


def _bytes_needed(header: Header, recipe: Recipe, eighths: int) -> int:
    if header.format != "jpeg":
        return header.pixels * _full_decode_bytes_per_pixel(header, recipe)
    conversion = 2 if header.colour == "cmyk" else 1
    decoded = header.pixels * 4 * conversion * eighths * eighths // 64
    if header.progressive:
        return decoded + header.pixels * 2 * _coefficients_per_pixel_percent(header) // 100
    return decoded


def _full_decode_bytes_per_pixel(header: Header, recipe: Recipe) -> int:
    needed = _BYTES_PER_PIXEL.get(header.format, _USUAL_BYTES_PER_PIXEL)
    if header.format in ("avif", "heic"):
        needed += 4 * header.alpha + 4 * (header.bits > 8)
    if recipe.alpha != "drop" and (header.alpha or header.channels == 4):
        needed += 8
    return needed


def _coefficients_per_pixel_percent(header: Header) -> int:
    """A decoder of several scans holds every coefficient of every component, two bytes each."""
    most = max(h for h, _ in header.sampling) * max(v for _, v in header.sampling)
    return sum(100 * h * v // most for h, v in header.sampling)

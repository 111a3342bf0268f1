"""The recipe: how an encoded image becomes the model's input, and what the model's output means. Data only."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, field
from typing import Literal

Fit = Literal["stretch", "center_crop", "letterbox"]
Filter = Literal["nearest", "box", "bilinear", "bicubic", "lanczos"]
Colour = Literal["rgb", "bgr", "grey"]
Layout = Literal["nchw", "nhwc"]
DType = Literal["float32", "float16", "uint8"]
Task = Literal["classify", "map", "raw"]
Activation = Literal["none", "softmax", "sigmoid"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """value = (pixel * scale - mean[channel]) / std[channel], pixel in 0..255, after the fit.

    The geometry of `center_crop` is that of the usual training code: the short side becomes int(target / crop_fraction), then the
    centre is cut out; both in one resampling.
    """

    width: int
    height: int
    fit: Fit = "stretch"
    crop_fraction: float = 1.0
    """center_crop only: the share of the resized short side that stays, 0 < f <= 1."""
    pad_value: int = 114
    """letterbox only: the level 0..255 of the bars."""
    filter: Filter = "bicubic"
    """Antialiased: its support grows with the reduction."""
    colour: Colour = "rgb"
    scale: float = 1.0 / 255.0
    mean: tuple[float, ...] = (0.0, 0.0, 0.0)
    std: tuple[float, ...] = (1.0, 1.0, 1.0)
    layout: Layout = "nchw"
    dtype: DType = "float32"
    orientation: Literal["apply", "ignore"] = "apply"
    """Whether the EXIF orientation is obeyed."""
    icc: Literal["ignore", "srgb"] = "ignore"
    """`ignore` leaves the stored numbers as training code does; `srgb` converts an embedded profile."""
    alpha: str = "drop"
    """`drop`, or the background colour to blend on, as `#rrggbb`."""
    oversampling: float = 1.9
    """Fast decoding stops at the smallest DCT scale whose size is still at least this many times the target.

    1.9 keeps a 3000-pixel side at 1/4 for a 384-pixel target, and the error of every photograph measured under the fidelity bound."""

    @property
    def channels(self) -> int:
        return 1 if self.colour == "grey" else 3

    @property
    def digest(self) -> str:
        """Names the recipe in cache keys and reports: equal recipes, equal digest."""
        return hashlib.sha256(json.dumps(asdict(self), sort_keys=True).encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCard:
    """What the model's graph does not say of itself."""

    task: Task = "raw"
    labels: tuple[str, ...] = ()
    activation: Activation = "none"
    outputs: tuple[str, ...] = ()
    """Names of the outputs to compute; empty means all. Others are not even copied."""
    input: str = ""
    """Name of the image input; empty means the only one."""
    unfreeze: bool = False
    """Replace batch, height and width sizes that were frozen into the graph by mistake with free dimensions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecipeFile:
    """A recipe file as a whole: `[recipe]` and `[model]`."""

    recipe: Recipe
    model: ModelCard = field(default_factory=ModelCard)

"""How far from the training pipeline's pixels, on photographs. A part of the set, so that it stays quick; `headrace parity` takes all."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from headrace.core.image.compare import Difference, compare, histogram, summarise
from headrace.core.image.header import read_header
from headrace.records.recipe import Recipe
from pictures import assets, prepared, reference_of

STRETCH = Recipe(width=384, height=384)
CROP = Recipe(width=224, height=224, fit="center_crop", crop_fraction=0.875)
RECIPES = pytest.mark.parametrize("recipe", [STRETCH, CROP], ids=["384 stretch", "224 crop"])


def over(paths: list[Path], recipe: Recipe, fidelity: str) -> Difference:
    """Pixels of all pictures pooled."""
    pooled = np.zeros(256, np.int64)
    for path in paths:
        data = path.read_bytes()
        pooled += histogram(prepared(data, recipe, fidelity), reference_of(data, recipe))
    return summarise(pooled)


def baseline() -> list[Path]:
    return [*assets().large_baseline[::3], *assets().small[::4], *natural(progressive=False)[::4]]


def progressive() -> list[Path]:
    return [*assets().large_progressive[1::4], *natural(progressive=True)[::3]]


def natural(*, progressive: bool) -> list[Path]:
    paths = [path for path in assets().photos if path.suffix == ".jpg" and path.parent.name == "natural"]
    headers = {path: read_header(path.read_bytes()) for path in paths if path.stat().st_size < 2_500_000}
    return [path for path, header in headers.items() if header.progressive == progressive]


@RECIPES
def test_fast_baseline(recipe: Recipe) -> None:
    difference = over(baseline(), recipe, "fast")
    assert difference.mean <= 0.6
    assert difference.p999 <= 8


@RECIPES
def test_fast_progressive(recipe: Recipe) -> None:
    difference = over(progressive(), recipe, "fast")
    assert difference.mean <= 0.9
    assert difference.p999 <= 10


@RECIPES
def test_exact(recipe: Recipe) -> None:
    difference = over([*baseline()[::2], *progressive()[::3]], recipe, "exact")
    assert difference.mean <= 0.15
    assert difference.maximum <= 8


def test_other_formats_are_exact_under_fast() -> None:
    paths = [path for path in assets().photos if path.suffix == ".png" and path.stat().st_size < 1_000_000]
    assert len(paths) >= 4
    assert over(paths, STRETCH, "fast").mean <= 0.2


def test_the_same_photograph_in_three_encodings() -> None:
    """Baseline, progressive and PNG were made from the same pixels: what differs is the encoding's own loss."""
    for name in ("pug.png",):
        png = next(path for path in assets().large_png if path.name == name)
        original = reference_of(png.read_bytes(), STRETCH)
        for folder in (assets().large_baseline, assets().large_progressive):
            data = next(path for path in folder if path.stem == png.stem).read_bytes()
            assert compare(prepared(data, STRETCH), original).mean <= 1.0


def test_more_oversampling_means_less_error() -> None:
    data = assets().large_baseline[3].read_bytes()
    expected = reference_of(data, STRETCH)
    means = [
        compare(prepared(data, Recipe(width=384, height=384, oversampling=wanted)), expected).mean
        for wanted in (0.9, 1.9, 3.8, 100.0)
    ]
    assert means == sorted(means, reverse=True)
    assert means[0] > 2 * means[1]

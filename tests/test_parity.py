"""`parity`: figures by hand on arrays, then on files, then with models."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tiny_models
from headrace.core.image.compare import compare, histogram, summarise
from headrace.core.image.decode_plan import Limits
from headrace.errors import RecipeError
from headrace.records.recipe import ModelCard, Recipe, RecipeFile
from headrace.workflows.parity import ParityReport, compare_images, default_limits, parity
from pictures import assets, encoded, picture

RECIPE = Recipe(width=32, height=24)


# --- figures -----------------------------------------------------------------------------------------------------------------


def test_known_difference() -> None:
    one = np.zeros(1000, np.uint8)
    other = one.copy()
    other[:5], other[5] = 10, 255
    difference = compare(one, other)
    assert difference.mean == pytest.approx((50 + 255) / 1000)
    assert (difference.p99, difference.p999, difference.maximum) == (0, 10, 255)
    assert compare(other, one) == difference


@given(st.binary(min_size=1, max_size=400), st.data())
def test_figures_are_those_of_the_sorted_values(first: bytes, data: st.DataObject) -> None:
    second = data.draw(st.binary(min_size=len(first), max_size=len(first)))
    one, other = np.frombuffer(first, np.uint8), np.frombuffer(second, np.uint8)
    apart = np.sort(np.abs(one.astype(int) - other.astype(int)))
    difference = compare(one, other)
    assert difference.mean == pytest.approx(apart.mean())
    assert difference.maximum == apart[-1]
    assert difference.p99 == apart[-(-99 * len(apart) // 100) - 1]
    assert difference.p999 == apart[-(-999 * len(apart) // 1000) - 1]


def test_histograms_pool() -> None:
    pictures = [np.asarray(picture(60, 40)), np.asarray(picture(60, 40).rotate(180))]
    flat = np.full((40, 60, 3), 128, np.uint8)
    pooled = sum(histogram(one, flat) for one in pictures)
    assert summarise(pooled) == compare(np.stack(pictures), np.stack([flat, flat]))


def test_shapes_must_agree() -> None:
    with pytest.raises(ValueError, match=r"\(2,\) and \(3,\)"):
        compare(np.zeros(2, np.uint8), np.zeros(3, np.uint8))
    with pytest.raises(ValueError, match="no values"):
        summarise(np.zeros(256, np.int64))


# --- on files ----------------------------------------------------------------------------------------------------------------


@pytest.fixture
def images(tmp_path: Path) -> list[Path]:
    large = picture(640, 480)
    files = {
        "large.jpg": encoded(large, "JPEG", quality=90),
        "small.png": encoded(picture(64, 48), "PNG"),
        "progressive.jpg": encoded(large, "JPEG", quality=90, progressive=True),
    }
    for name, data in files.items():
        (tmp_path / name).write_bytes(data)
    return [tmp_path / name for name in files]


def compared(images: list[Path], recipe: Recipe = RECIPE, limits: Limits | None = None) -> ParityReport:
    return compare_images(
        RecipeFile(recipe=recipe), images, None, skip_scans=True, limits=limits or default_limits()
    )


def test_pixels_only(images: list[Path]) -> None:
    report = compared(images)
    assert [Path(row.name).name for row in report.images] == ["large.jpg", "small.png", "progressive.jpg"]
    assert [row.eighths for row in report.images] == [1, 8, 1]
    assert report.fast is not None and report.exact is not None
    assert report.exact.pixels.mean <= 0.3
    assert report.fast.pixels.mean >= report.exact.pixels.mean
    assert report.images[1].fast == report.images[1].exact
    assert report.fast.worst_mean == max(row.fast.pixels.mean for row in report.images)
    assert report.fast.outputs == ()
    assert report.notes == ("no model was given: pixels only",)
    mean = np.mean([row.fast.pixels.mean for row in report.images])
    assert report.fast.pixels.mean == pytest.approx(mean)


def test_unreadable_images_are_listed_and_stop_nothing(images: list[Path], tmp_path: Path) -> None:
    (tmp_path / "cut.jpg").write_bytes(images[0].read_bytes()[:3000])
    (tmp_path / "text.txt").write_bytes(b"hello")
    paths = [tmp_path / "cut.jpg", tmp_path / "missing.jpg", *images, tmp_path / "text.txt", tmp_path]
    report = compared(paths)
    assert len(report.images) == 3
    assert [(Path(item.name).name, item.code) for item in report.unreadable[:3]] == [
        ("cut.jpg", "undecodable"),
        ("missing.jpg", "unreadable"),
        ("text.txt", "unsupported_media"),
    ]
    assert len(report.unreadable) == 4
    assert report.fast == compared(images).fast
    assert "not compared" in report.as_text() and "missing.jpg" in report.as_text()


def test_nothing_readable(tmp_path: Path) -> None:
    report = compared([tmp_path / "missing.jpg"])
    assert report.fast is None and report.exact is None
    assert json.loads(json.dumps(report.as_dict()))["fast"] is None
    assert report.as_text().startswith("0 images")


def test_limits_hold(images: list[Path]) -> None:
    report = compared(images, limits=Limits(100_000, 2**28))
    assert [item.code for item in report.unreadable] == ["image_too_large", "image_too_large"]


def test_text_and_json(images: list[Path]) -> None:
    report = compared(images)
    text = report.as_text()
    assert text.startswith("3 images as 32x24 stretch bicubic")
    assert all(path.name in text for path in images)
    data = json.loads(json.dumps(report.as_dict()))
    assert data["format"] == 1
    assert data["recipe_digest"] == RECIPE.digest
    assert data["images"][0]["fast"]["pixels"]["mean"] == report.images[0].fast.pixels.mean


# --- with a model ------------------------------------------------------------------------------------------------------------


class Fake:
    """Answers by rule: the mean level of each third of the picture is the score of a class."""

    name, device, emulated, notes = "fake", "cpu", False, ()

    def run(self, batch: np.ndarray) -> dict[str, np.ndarray]:
        thirds = np.stack([part.mean(axis=(1, 2, 3)) for part in np.array_split(batch, 3, axis=2)], 1)
        return {"scores": thirds.astype(np.float32), "constant": np.zeros((len(batch), 2), np.float32)}


def test_outputs_of_a_classifier(images: list[Path]) -> None:
    file = RecipeFile(recipe=RECIPE, model=ModelCard(task="classify"))
    report = compare_images(file, images, Fake(), skip_scans=True, limits=default_limits())
    assert report.fast is not None and report.exact is not None
    scores, constant = report.fast.outputs
    assert (scores.output, scores.top1_agreement) == ("scores", 1.0)
    assert 0 < scores.mean_relative_l2 < 0.02
    assert (constant.mean_relative_l2, constant.mean_abs) == (0.0, 0.0)
    assert report.exact.outputs[0].mean_relative_l2 <= scores.mean_relative_l2
    assert "same first answer for 3 of 3; scores changes by" in report.as_text()


def test_outputs_of_a_map(images: list[Path]) -> None:
    file = RecipeFile(recipe=RECIPE, model=ModelCard(task="map"))
    report = compare_images(file, images, Fake(), skip_scans=True, limits=default_limits())
    assert report.fast is not None
    assert [output.top1_agreement for output in report.fast.outputs] == [None, None]
    assert "first answer" not in report.as_text()


def test_changed_answers_are_counted(images: list[Path]) -> None:
    class Fickle(Fake):
        def run(self, batch: np.ndarray) -> dict[str, np.ndarray]:
            return {"scores": np.eye(len(batch), dtype=np.float32)}

    file = RecipeFile(recipe=RECIPE, model=ModelCard(task="classify"))
    report = compare_images(file, images, Fickle(), skip_scans=True, limits=default_limits())
    assert report.fast is not None and report.fast.outputs[0].top1_agreement == 0.0
    assert "same first answer for 0 of 3" in report.as_text()


def test_whole_way_with_a_small_model(images: list[Path], tmp_path: Path) -> None:
    model = tiny_models.saved(tiny_models.classifier(("n", 3, 24, 32)), tmp_path)
    recipe_file = tmp_path / "recipe.toml"
    recipe_file.write_text('[recipe]\nwidth = 32\nheight = 24\n[model]\ntask = "classify"\n')
    report = parity(model, recipe_file, images)
    assert report.model == "model"
    assert report.device == "cpu"
    assert report.fast is not None and report.fast.outputs[0].top1_agreement is not None
    without = parity(None, recipe_file, images)
    assert replace(without.fast, outputs=()) == replace(report.fast, outputs=())


def test_missing_recipe(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match=r"nowhere\.toml"):
        parity(None, tmp_path / "nowhere.toml", [])


def test_real_model_on_photographs() -> None:
    found = assets()
    images = [*found.small[::3], *found.large_baseline[:1], *found.large_progressive[1:2]]
    report = parity(found.model, found.recipe, images)
    assert not report.unreadable
    assert report.fast is not None and report.exact is not None
    assert report.exact.pixels.mean <= 0.15
    assert report.fast.pixels.mean <= 0.9
    assert report.exact.outputs[0].top1_agreement == 1.0
    assert report.fast.outputs[0].top1_agreement == 1.0
    assert report.fast.outputs[0].mean_relative_l2 < 0.1

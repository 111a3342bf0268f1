"""Recipes: TOML both ways, Hugging Face and timm as their own code means them, files of every kind."""

from __future__ import annotations

import json
import string
from pathlib import Path
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.recipes.toml import parse_recipe_toml, to_toml
from headrace.errors import RecipeError
from headrace.records import recipe as words
from headrace.records.recipe import ModelCard, Recipe, RecipeFile
from headrace.store.recipe_files import LARGEST_FILE, load_recipe, read_labels

BASE = "[recipe]\nwidth = 224\nheight = 224\n"


def no_labels(name: str) -> tuple[str, ...]:
    raise AssertionError(f"nobody asked for labels in {name}")


def parsed(text: str) -> RecipeFile:
    return parse_recipe_toml(text, read_labels=no_labels)


# --- TOML ---------------------------------------------------------------------------------------------------------------------


def test_the_least_recipe_is_the_records_default() -> None:
    assert parsed(BASE) == RecipeFile(recipe=Recipe(width=224, height=224))


def test_a_whole_recipe() -> None:
    file = parse_recipe_toml(
        """
        [recipe]
        width = 320
        height = 240
        fit = "letterbox"
        pad_value = 0
        filter = "lanczos"
        colour = "bgr"
        scale = "1/255"
        mean = [0, 0.5, 1]
        std = [1, 2, -3.5]
        layout = "nhwc"
        dtype = "float16"
        orientation = "ignore"
        icc = "srgb"
        alpha = "#00fF7f"
        oversampling = 2
        [model]
        task = "classify"
        labels = "names.txt"
        activation = "sigmoid"
        outputs = ["a", "b"]
        input = "x"
        unfreeze = true
        """,
        read_labels=lambda name: (name, "zebra"),
    )
    assert (
        file.recipe.scale == 1 / 255
        and file.recipe.mean == (0.0, 0.5, 1.0)
        and file.recipe.alpha == "#00fF7f"
    )
    assert file.model == ModelCard(
        task="classify",
        labels=("names.txt", "zebra"),
        activation="sigmoid",
        outputs=("a", "b"),
        input="x",
        unfreeze=True,
    )


def test_grey_has_one_channel_by_itself() -> None:
    recipe = parsed(BASE + 'colour = "grey"').recipe
    assert recipe.mean == (0.0,) and recipe.std == (1.0,)


@pytest.mark.parametrize(
    ("lines", "parts"),
    [
        ("widht = 3", ["[recipe] has no key 'widht'", "did you mean width?"]),
        ("normalization = 3", ["'normalization'"]),
        ("[model]\nlabel = []", ["[model] has no key 'label'", "did you mean labels?"]),
        ("[modle]", ["the file has no key 'modle'", "did you mean model?"]),
        ('fit = "centre_crop"', ["fit = 'centre_crop'", "did you mean center_crop?"]),
        ('fit = "crop"', ["stretch, center_crop, letterbox"]),
        ("fit = 3", ["fit = 3 is not one of"]),
        ('filter = "hamming"', ["filter = 'hamming'"]),
        ('colour = "RGB"', ["colour = 'RGB'"]),
        ('mean = [1.0]', ["mean has 1 values", '"rgb" has 3']),
        ('colour = "grey"\nmean = [0.0, 0.0, 0.0]', ["mean has 3 values", '"grey" has 1']),
        ("mean = 127.0", ["mean = 127.0 is not a list"]),
        ("mean = [true, 0, 0]", ["mean = True is not a number"]),
        ("mean = [nan, 0, 0]", ["mean holds nan"]),
        ("std = [1, 0, 1]", ["std holds 0"]),
        ("std = [1, -inf, 1]", ["std holds -inf"]),
        ("scale = 0", ["scale = 0"]),
        ("scale = inf", ["scale = inf"]),
        ('scale = "1/0"', ['"1/0"', '"1/255"']),
        ('scale = "one"', ['"one"']),
        (f"scale = 1{'0' * 400}", ["too large"]),
        ("pad_value = 256", ["pad_value = 256 is outside 0 to 255"]),
        ("pad_value = 1.5", ["pad_value = 1.5 is not a whole number"]),
        ("crop_fraction = 0.0", ["crop_fraction = 0 "]),
        ("crop_fraction = nan", ["crop_fraction = nan"]),
        ("crop_fraction = 0.9", ['needs fit = "center_crop"']),
        ("oversampling = 0.5", ["oversampling = 0.5 is outside 1 to 8"]),
        ("oversampling = 9", ["oversampling = 9 is outside"]),
        ('alpha = "white"', ['alpha = "white"', "#ffffff"]),
        ('alpha = "#12345"', ['alpha = "#12345"']),
        ('alpha = "#123456\\n"', ["alpha"]),
        ("orientation = true", ["orientation = True"]),
        ("[model]\nunfreeze = 1", ["unfreeze = 1 is not true or false"]),
        ("[model]\noutputs = \"y\"", ["outputs = 'y' is not a list of texts"]),
        ("[model]\nlabels = [1]", ["labels = [1] is not a list of texts"]),
        ("[model]\ninput = 3", ["input = 3 is not text"]),
        ("width = 3", ["not valid TOML"]),
        ("=", ["not valid TOML"]),
    ],
)  # fmt: skip
def test_refusals_name_key_value_and_what_fits(lines: str, parts: list[str]) -> None:
    with pytest.raises(RecipeError) as caught:
        parsed(BASE + lines)
    for part in parts:
        assert part in str(caught.value)
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("", "no [recipe] table"),
        ("width = 3", "the file has no key 'width'"),
        ("recipe = 3", "recipe = 3 is not a table"),
        ("[recipe]\nheight = 3", "lacks width"),
        ("[recipe]\nwidth = 3", "lacks height"),
        ("[recipe]\nwidth = 0\nheight = 3", "width = 0 is outside 1 to 16384"),
        ("[recipe]\nwidth = 3\nheight = 16385", "height = 16385 is outside"),
        ("[recipe]\nwidth = 3.0\nheight = 3", "width = 3.0 is not a whole number"),
        ("[recipe]\nwidth = true\nheight = 3", "width = True"),
        ("[[recipe]]\nwidth = 3", "is not a table"),
    ],
)
def test_refusals_of_the_whole(text: str, part: str) -> None:
    with pytest.raises(RecipeError) as caught:
        parsed(text)
    assert part in str(caught.value)


texts = st.text(st.sampled_from(string.printable + "é漢😀\u2028\x85\x7f\0\x1b"), max_size=12)
numbers = st.floats(-1e6, 1e6)
nonzero = numbers.filter(bool)


@st.composite
def files(draw: st.DrawFn) -> RecipeFile:
    fit = draw(st.sampled_from(get_args(words.Fit)))
    colour = draw(st.sampled_from(get_args(words.Colour)))
    count = 1 if colour == "grey" else 3
    share = st.floats(0, 1, exclude_min=True) if fit == "center_crop" else st.just(1.0)
    recipe = Recipe(
        width=draw(st.integers(1, 16_384)),
        height=draw(st.integers(1, 16_384)),
        fit=fit,
        crop_fraction=draw(share),
        pad_value=draw(st.integers(0, 255)),
        filter=draw(st.sampled_from(get_args(words.Filter))),
        colour=colour,
        scale=draw(st.one_of(nonzero, st.just(1 / 255))),
        mean=tuple(draw(st.lists(numbers, min_size=count, max_size=count))),
        std=tuple(draw(st.lists(nonzero, min_size=count, max_size=count))),
        layout=draw(st.sampled_from(get_args(words.Layout))),
        dtype=draw(st.sampled_from(get_args(words.DType))),
        orientation=draw(st.sampled_from(["apply", "ignore"])),
        icc=draw(st.sampled_from(["ignore", "srgb"])),
        alpha=draw(st.one_of(st.just("drop"), st.from_regex(r"#[0-9a-f]{6}", fullmatch=True))),
        oversampling=draw(st.floats(1, 8)),
    )
    card = ModelCard(
        task=draw(st.sampled_from(get_args(words.Task))),
        labels=tuple(draw(st.lists(texts, max_size=12))),
        activation=draw(st.sampled_from(get_args(words.Activation))),
        outputs=tuple(draw(st.lists(texts, max_size=3))),
        input=draw(texts),
        unfreeze=draw(st.booleans()),
    )
    return RecipeFile(recipe=recipe, model=card)


@given(files())
def test_what_is_written_is_read_back(file: RecipeFile) -> None:
    again = parsed(to_toml(file))
    assert again == file and again.recipe.digest == file.recipe.digest


@given(st.text(st.sampled_from(string.printable + "é\0\x7f"), max_size=60))
def test_any_text_is_read_or_refused(text: str) -> None:
    for whole in (text, BASE + text, BASE + "[model]\n" + text):
        try:
            parse_recipe_toml(whole, read_labels=lambda name: (name,))
        except RecipeError:
            continue


# --- files ---------------------------------------------------------------------------------------------------------------------


VIT = {"do_resize": True, "size": 224, "resample": 2, "image_mean": [0.5] * 3, "image_std": [0.5] * 3}
TIMM = {"architecture": "resnet50", "pretrained_cfg": {"input_size": [3, 224, 224], "crop_pct": 0.95}}


def test_files_are_told_by_content(tmp_path: Path) -> None:
    (tmp_path / "a").write_text(BASE)
    (tmp_path / "b").write_text(json.dumps(VIT))
    (tmp_path / "c").write_text("\ufeff" + json.dumps(TIMM))
    assert load_recipe(tmp_path / "a").recipe.fit == "stretch"
    assert load_recipe(tmp_path / "b").recipe.mean == (0.5, 0.5, 0.5)
    assert load_recipe(tmp_path / "c").model.task == "classify"


def test_labels_beside_the_recipe(tmp_path: Path) -> None:
    (tmp_path / "recipe.toml").write_text(BASE + '[model]\nlabels = "names/list.txt"')
    (tmp_path / "names").mkdir()
    (tmp_path / "names/list.txt").write_text("cat \ndog\r\nécole\n", encoding="utf-8")
    assert load_recipe(tmp_path / "recipe.toml").model.labels == ("cat ", "dog", "école")
    (tmp_path / "names/list.txt").write_text('["cat", "dog, hound"]')
    assert load_recipe(tmp_path / "recipe.toml").model.labels == ("cat", "dog, hound")
    (tmp_path / "names/list.txt").write_text('["cat", 3]')
    with pytest.raises(RecipeError, match=r"recipe\.toml: .*list\.txt is not a list of texts"):
        load_recipe(tmp_path / "recipe.toml")
    (tmp_path / "names/list.txt").unlink()
    with pytest.raises(RecipeError, match=r"recipe\.toml: .*list\.txt cannot be read: No such file"):
        load_recipe(tmp_path / "recipe.toml")


def test_the_models_config_gives_labels(tmp_path: Path) -> None:
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(VIT))
    (tmp_path / "config.json").write_text(
        json.dumps({"architectures": ["AForImageClassification"], "id2label": {"0": "cat"}})
    )
    assert load_recipe(tmp_path / "preprocessor_config.json").model.labels == ("cat",)
    with pytest.raises(RecipeError, match=r"config\.json: .*give preprocessor_config\.json"):
        load_recipe(tmp_path / "config.json")
    (tmp_path / "config.json").write_text("[]")
    with pytest.raises(RecipeError, match="not a JSON table"):
        load_recipe(tmp_path / "preprocessor_config.json")


@pytest.mark.parametrize(
    ("data", "part"),
    [
        (b"{", "not valid JSON"),
        (b'{"a": ' * 100_000, "not valid JSON"),
        (b"{}", "neither Hugging Face's"),
        (b"\xff\xfe", "not UTF-8"),
        (b"#" * (LARGEST_FILE + 1), "larger than 4.0 MiB"),
        (b"[recipe]\nwidth = 3", "lacks height"),
    ],
)
def test_files_that_are_no_recipe(tmp_path: Path, data: bytes, part: str) -> None:
    path = tmp_path / "recipe"
    path.write_bytes(data)
    with pytest.raises(RecipeError) as caught:
        load_recipe(path)
    assert part in str(caught.value) and str(path) in str(caught.value)


def test_no_file_and_a_folder(tmp_path: Path) -> None:
    for path in (tmp_path / "gone.toml", tmp_path):
        with pytest.raises(RecipeError, match="cannot be read"):
            load_recipe(path)


def test_an_empty_label_file_has_no_labels(tmp_path: Path) -> None:
    (tmp_path / "empty").write_text("")
    assert read_labels(tmp_path / "empty") == ()

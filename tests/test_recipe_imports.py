"""Recipes from Hugging Face and timm mean what their own code means, or are refused."""

from __future__ import annotations

import string
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.image.geometry import place
from headrace.core.recipes.checks import checked
from headrace.core.recipes.huggingface import from_huggingface, labels_from_config
from headrace.core.recipes.timm import from_timm
from headrace.errors import RecipeError
from headrace.records.recipe import ModelCard, Recipe, RecipeFile

texts = st.text(st.sampled_from(string.printable), max_size=12)

# --- Hugging Face --------------------------------------------------------------------------------------------------------------

VIT = {
    "do_normalize": True,
    "do_rescale": True,
    "do_resize": True,
    "image_mean": [0.5, 0.5, 0.5],
    "image_processor_type": "ViTImageProcessor",
    "image_std": [0.5, 0.5, 0.5],
    "resample": 2,
    "rescale_factor": 0.00392156862745098,
    "size": {"height": 224, "width": 224},
}
CLIP = {
    **VIT,
    "image_processor_type": "CLIPImageProcessor",
    "crop_size": {"height": 224, "width": 224},
    "do_center_crop": True,
    "do_convert_rgb": True,
    "resample": 3,
    "size": {"shortest_edge": 224},
}
DINO = {**CLIP, "image_processor_type": "BitImageProcessor", "size": {"shortest_edge": 256}}
CONVNEXT = {
    **VIT,
    "image_processor_type": "ConvNextImageProcessor",
    "crop_pct": 0.875,
    "size": {"shortest_edge": 224},
}
OLD_VIT = {
    "do_normalize": True, "do_resize": True, "feature_extractor_type": "ViTFeatureExtractor",
    "image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.5], "resample": 2, "size": 224,
}  # fmt: skip
POOLFORMER = {**CLIP, "image_processor_type": "PoolFormerImageProcessor", "crop_pct": 0.9}
DPT = {
    **VIT,
    "image_processor_type": "DPTImageProcessor",
    "keep_aspect_ratio": False,
    "ensure_multiple_of": 1,
}
MOBILEVIT = {
    "crop_size": {"height": 256, "width": 256}, "do_center_crop": True, "do_flip_channel_order": True,
    "do_rescale": True, "do_resize": True, "image_processor_type": "MobileViTImageProcessor", "resample": 2,
    "rescale_factor": 1 / 255, "size": {"shortest_edge": 288},
}  # fmt: skip


@pytest.mark.parametrize(
    ("config", "geometry", "short"),
    [
        (VIT, (224, 224, "stretch"), None),
        (OLD_VIT, (224, 224, "stretch"), None),
        ({**VIT, "size": {"height": 480, "width": 640}}, (640, 480, "stretch"), None),
        ({**VIT, "size": [480, 640]}, (640, 480, "stretch"), None),
        (CLIP, (224, 224, "center_crop"), 224),
        ({**CLIP, "size": 224, "crop_size": 224}, (224, 224, "center_crop"), 224),
        (DINO, (224, 224, "center_crop"), 256),
        (CONVNEXT, (224, 224, "center_crop"), 256),
        ({**CONVNEXT, "crop_pct": None}, (224, 224, "center_crop"), 256),
        ({**CONVNEXT, "crop_pct": 0.95}, (224, 224, "center_crop"), 235),
        ({**CONVNEXT, "size": 384}, (384, 384, "stretch"), None),
        (POOLFORMER, (224, 224, "center_crop"), 248),
        ({**POOLFORMER, "size": {"height": 224, "width": 224}}, (224, 224, "center_crop"), 248),
        ({**POOLFORMER, "crop_pct": 0.95}, (224, 224, "center_crop"), 235),
        ({**CLIP, "image_processor_type": "LevitImageProcessor"}, (224, 224, "center_crop"), 256),
        (MOBILEVIT, (256, 256, "center_crop"), 288),
        ({**DPT, "size": {"height": 384, "width": 384}}, (384, 384, "stretch"), None),
        (
            {**DPT, "size": {"height": 518, "width": 520}, "ensure_multiple_of": 14},
            (518, 518, "stretch"),
            None,
        ),
        ({**VIT, "do_center_crop": True}, (224, 224, "stretch"), None),
        ({"processor_class": "CLIPProcessor", "image_processor": CLIP}, (224, 224, "center_crop"), 224),
    ],
)
def test_huggingface_geometry(
    config: dict[str, Any], geometry: tuple[int, int, str], short: int | None
) -> None:
    recipe = from_huggingface(config).recipe
    assert (recipe.width, recipe.height, recipe.fit) == geometry
    if short is not None:
        assert short_side(recipe) == short


def short_side(recipe: Recipe) -> int:
    """To what our own geometry resizes the short side of a large square."""
    box = place(12_600, 12_600, recipe).box
    return round(recipe.width * 12_600 / box.width)


@pytest.mark.parametrize(
    ("number", "name"), [(0, "nearest"), (1, "lanczos"), (2, "bilinear"), (3, "bicubic"), (4, "box")]
)
def test_huggingface_filters(number: int, name: str) -> None:
    assert from_huggingface({**VIT, "resample": number}).recipe.filter == name


def values(config: dict[str, Any], pixel: float) -> list[float]:
    recipe = from_huggingface(config).recipe
    return [(pixel * recipe.scale - mean) / std for mean, std in zip(recipe.mean, recipe.std, strict=True)]


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, [1.0, 1.0, 1.0]),
        ({"do_normalize": False}, [1.0, 1.0, 1.0]),
        ({"do_rescale": False}, [509.0, 509.0, 509.0]),
        ({"do_rescale": None, "rescale_factor": None}, [1.0, 1.0, 1.0]),
        ({"do_normalize": False, "do_rescale": False}, [255.0, 255.0, 255.0]),
        ({"image_mean": 0.25, "image_std": 0.25}, [3.0, 3.0, 3.0]),
        (
            {"image_mean": [0.485, 0.456, 0.406], "image_std": [0.229, 0.224, 0.225]},
            [2.248908, 2.428571, 2.64],
        ),
        ({"image_processor_type": "EfficientNetImageProcessor"}, [2.0, 2.0, 2.0]),
        ({"image_processor_type": "EfficientNetImageProcessor", "include_top": False}, [1.0, 1.0, 1.0]),
        ({"image_processor_type": "EfficientNetImageProcessor", "do_normalize": False}, [2.0, 2.0, 2.0]),
        ({"rescale_factor": 1 / 127.5, "rescale_offset": True}, [1.0, 1.0, 1.0]),
    ],
)
def test_huggingface_values_of_white(changes: dict[str, Any], expected: list[float]) -> None:
    assert values({**VIT, **changes}, 255.0) == pytest.approx(expected, rel=1e-5)


def test_huggingface_mobilevit_is_bgr_without_normalisation() -> None:
    recipe = from_huggingface(MOBILEVIT).recipe
    assert recipe.colour == "bgr" and recipe.mean == (0.0,) * 3 and recipe.std == (1.0,) * 3


@pytest.mark.parametrize(
    ("config", "part"),
    [
        ({**DPT, "keep_aspect_ratio": True}, "keep_aspect_ratio"),
        ({**VIT, "size": {"shortest_edge": 800, "longest_edge": 1333}}, "longest_edge"),
        ({**VIT, "size": {"longest_edge": 1024}}, "longest_edge"),
        ({**VIT, "size": {}}, "size = {}"),
        ({**VIT, "size": None}, "size is missing"),
        ({**VIT, "size": "large"}, "size = 'large'"),
        ({**VIT, "size": {"height": 0, "width": 3}}, "size.height = 0"),
        ({**VIT, "size": {"height": 20000, "width": 3}}, "height = 20000 is outside"),
        ({**VIT, "do_pad": True}, "do_pad"),
        ({**VIT, "size_divisor": 32}, "size_divisor"),
        ({**VIT, "min_pixels": 3136}, "min_pixels"),
        ({**VIT, "do_resize": False}, "do_resize is false"),
        ({**VIT, "do_resize": "yes"}, "do_resize = 'yes'"),
        ({**CLIP, "do_center_crop": False}, "without do_center_crop"),
        ({**CLIP, "crop_size": 256}, "black bars"),
        ({**CLIP, "crop_size": {"height": 224, "width": 200}}, "not square"),
        ({**CLIP, "crop_size": {"shortest_edge": 3}}, "lacks height and width"),
        ({**CLIP, "crop_size": None}, "crop_size is missing"),
        ({**VIT, "size": 256, "do_center_crop": True, "crop_size": 224}, '{"shortest_edge": 256}'),
        ({**VIT, "crop_pct": 0.9}, "crop_pct means different things"),
        ({**CONVNEXT, "crop_pct": 1.5}, "crop_pct = 1.5"),
        ({**CONVNEXT, "size": {"height": 224, "width": 224}}, "size.shortest_edge"),
        ({**POOLFORMER, "size": {"height": 224, "width": 200}}, "not square"),
        ({**VIT, "resample": None}, "resample is missing"),
        ({**VIT, "resample": 5}, "hamming"),
        ({**VIT, "resample": True}, "resample = True"),
        ({**VIT, "resample": "bicubic"}, "'bicubic'"),
        ({**VIT, "image_mean": None}, "image_mean is missing"),
        ({**VIT, "image_std": None}, "image_std is missing"),
        ({**VIT, "image_mean": [0.5]}, None),
        ({**VIT, "image_mean": [0.5, 0.5]}, "image_mean has 2 values"),
        ({**VIT, "image_mean": ["a", 0, 0]}, "image_mean"),
        ({**VIT, "image_std": [0, 0, 0]}, "std holds 0"),
        ({**VIT, "rescale_factor": float("nan")}, "rescale_factor"),
        ({**VIT, "rescale_offset": True}, "rescale_offset"),
        ({key: VIT[key] for key in ("size", "resample", "do_resize")}, "neither do_normalize nor image_mean"),
        ({}, "size is missing"),
    ],
)
def test_huggingface_what_no_recipe_says(config: dict[str, Any], part: str | None) -> None:
    if part is None:
        assert from_huggingface(config).recipe.mean == (0.5, 0.5, 0.5)
        return
    with pytest.raises(RecipeError) as caught:
        from_huggingface(config)
    assert part in str(caught.value)


def test_huggingface_cards() -> None:
    config = {"architectures": ["ViTForImageClassification"], "id2label": {"1": "dog", "0": "cat"}}
    assert from_huggingface(VIT, config).model == ModelCard(
        task="classify", activation="softmax", labels=("cat", "dog")
    )
    several = {**config, "problem_type": "multi_label_classification"}
    assert from_huggingface(VIT, several).model.activation == "sigmoid"
    assert from_huggingface(VIT, {"architectures": ["DPTForDepthEstimation"]}).model.task == "map"
    assert from_huggingface(VIT, {"id2label": {"0": "a"}}).model == ModelCard()
    for bad, part in (
        ({"0": "a", "2": "b"}, "none for 1"),
        ({"one": "a"}, "no number"),
        (["a"], "is a list"),
    ):
        with pytest.raises(RecipeError, match=part):
            labels_from_config({"id2label": bad})


# --- timm ----------------------------------------------------------------------------------------------------------------------

TIMM = {
    "architecture": "resnet50",
    "num_classes": 1000,
    "pretrained_cfg": {
        "input_size": [3, 224, 224],
        "interpolation": "bicubic",
        "crop_pct": 0.95,
        "crop_mode": "center",
        "mean": [0.485, 0.456, 0.406],
        "std": [0.229, 0.224, 0.225],
    },
}


def timm(**changes: Any) -> RecipeFile:
    return from_timm({**TIMM, "pretrained_cfg": {**TIMM["pretrained_cfg"], **changes}})  # type: ignore[dict-item]


@pytest.mark.parametrize(
    ("side", "share"), [(224, 0.875), (224, 0.9), (224, 0.95), (299, 0.875), (256, 1.0), (7, 0.3)]
)
def test_timm_rounds_the_short_side_down(side: int, share: float) -> None:
    recipe = timm(input_size=[3, side, side], crop_pct=share).recipe
    assert (recipe.width, recipe.fit, short_side(recipe)) == (side, "center_crop", int(side / share))


def test_timm_values_and_card() -> None:
    file = timm()
    assert file.recipe.scale == 1 / 255 and file.recipe.mean == (0.485, 0.456, 0.406)
    assert file.model == ModelCard(task="classify", activation="softmax")
    flat = {"architecture": "x", **TIMM["pretrained_cfg"], "label_names": ["n1", "n2"]}  # type: ignore[dict-item]
    assert from_timm(flat).recipe == file.recipe and from_timm(flat).model.labels == ("n1", "n2")
    named = {**flat, "label_descriptions": {"n1": "tench, fish"}}
    assert from_timm(named).model.labels == ("tench, fish", "n2")
    assert from_timm({**flat, "num_classes": 0}).model == ModelCard()
    bare = from_timm({"input_size": [3, 224, 224]}).recipe
    assert (bare.filter, bare.mean, short_side(bare)) == ("bicubic", (0.485, 0.456, 0.406), 256)


def test_timm_other_modes() -> None:
    squashed = timm(crop_mode="squash", crop_pct=1.0, input_size=[3, 240, 320]).recipe
    assert (squashed.width, squashed.height, squashed.fit) == (320, 240, "stretch")
    padded = timm(crop_mode="border", crop_pct=1.0, mean=[0.5] * 3).recipe
    assert (padded.fit, padded.pad_value) == ("letterbox", 128)
    grey = timm(input_size=[1, 28, 28], mean=[0.13], std=[0.31]).recipe
    assert (grey.colour, grey.mean) == ("grey", (0.13,))


@pytest.mark.parametrize(
    ("changes", "part"),
    [
        ({"crop_mode": "squash"}, "cuts after it stretches"),
        ({"crop_mode": "border"}, "cuts after it pads"),
        ({"crop_mode": "border", "crop_pct": 1.0}, "mean colour"),
        ({"crop_mode": "zoom"}, "crop_mode = 'zoom'"),
        ({"crop_pct": 1.2}, "crop_pct = 1.2"),
        ({"crop_pct": "much"}, "crop_pct = 'much'"),
        ({"interpolation": "random"}, "interpolation = 'random'"),
        ({"interpolation": "hamming"}, "interpolation = 'hamming'"),
        ({"input_size": [3, 224]}, "input_size = [3, 224]"),
        ({"input_size": [4, 224, 224]}, "4 channels"),
        ({"input_size": [3, 224, 320]}, "not square"),
        ({"input_size": [3, 224.5, 224]}, "224.5"),
        ({"input_size": [1, 28, 28]}, "mean has 3 values"),
        ({"std": [0, 1, 1]}, "std holds 0"),
    ],
)
def test_timm_what_no_recipe_says(changes: dict[str, Any], part: str) -> None:
    with pytest.raises(RecipeError) as caught:
        timm(**changes)
    assert part in str(caught.value)


json_keys = st.sampled_from(["height", "width", "shortest_edge", "0"])
json_values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-5, 500), st.floats(), texts),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(json_keys, inner, max_size=3)),
    max_leaves=5,
)


@given(st.sampled_from([VIT, CLIP, CONVNEXT, POOLFORMER, DPT, MOBILEVIT]), st.data())
def test_any_change_to_a_huggingface_file_gives_a_sound_recipe_or_is_refused(
    config: dict[str, Any], data: st.DataObject
) -> None:
    key = data.draw(st.sampled_from(sorted({**config, "crop_pct": 1, "do_pad": 1, "rescale_offset": 1})))
    try:
        file = from_huggingface({**config, key: data.draw(json_values)})
    except RecipeError:
        return
    assert checked(file.recipe) is file.recipe


@given(st.sampled_from([*TIMM["pretrained_cfg"], "label_names"]), json_values)  # type: ignore[misc]
def test_any_change_to_a_timm_file_gives_a_sound_recipe_or_is_refused(key: str, value: Any) -> None:
    try:
        file = timm(**{key: value})
    except RecipeError:
        return
    assert checked(file.recipe) is file.recipe

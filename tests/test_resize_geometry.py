"""Where pixels go: boxes, crops and orientations as arithmetic, then as pixels, then as bytes that must stay untouched."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from headrace.core.image.canvas import view_as_image
from headrace.core.image.geometry import Box, as_stored, place, stored_box
from headrace.core.image.resize import Resizer
from headrace.records.image import Pixels
from headrace.records.recipe import Recipe
from pictures import UPRIGHT_TO_STORED, apart, encoded, picture, prepared, reference_of

sizes = st.integers(1, 6000)
targets = st.integers(1, 512)
fractions = st.sampled_from([1.0, 0.95, 0.875, 0.9, 0.5, 224 / 256, 224 / 235])
orientations = st.integers(1, 8)
fits = st.sampled_from(["stretch", "center_crop", "letterbox"])
recipes = st.builds(Recipe, width=targets, height=targets, fit=fits, crop_fraction=fractions)


# --- placement ---------------------------------------------------------------------------------------------------------------


@given(width=sizes, height=sizes, recipe=recipes)
def test_boxes_lie_inside_source_and_target(width: int, height: int, recipe: Recipe) -> None:
    placement = place(width, height, recipe)
    box = placement.box
    assert box.left >= 0 and box.top >= 0 and box.width > 0 and box.height > 0
    assert box.left + box.width <= width * (1 + 1e-9)
    assert box.top + box.height <= height * (1 + 1e-9)
    assert placement.x >= 0 and placement.x + placement.width <= recipe.width
    assert placement.y >= 0 and placement.y + placement.height <= recipe.height
    assert placement.width >= 1 and placement.height >= 1


def torchvision_crop(
    width: int, height: int, target: int, fraction: float
) -> tuple[float, float, float, float]:
    """Resize(int(target / fraction)) and CenterCrop(target) of a source, as edges in the source.

    Resize: the short side becomes `size`, the long one int(size * long / short). CenterCrop: offsets int(round((side - target) / 2)).
    """
    size = int(target / fraction + 1e-6)
    if width <= height:
        new_width, new_height = size, int(size * height / width)
    else:
        new_width, new_height = int(size * width / height), size
    left, top = round((new_width - target) / 2.0), round((new_height - target) / 2.0)
    return (
        left * width / new_width,
        top * height / new_height,
        (left + target) * width / new_width,
        (top + target) * height / new_height,
    )


@given(width=st.integers(16, 6000), height=st.integers(16, 6000), target=targets, fraction=fractions)
def test_center_crop_is_that_of_torchvision(width: int, height: int, target: int, fraction: float) -> None:
    box = place(
        width, height, Recipe(width=target, height=target, fit="center_crop", crop_fraction=fraction)
    ).box
    edges = (box.left, box.top, box.left + box.width, box.top + box.height)
    assert edges == pytest.approx(torchvision_crop(width, height, target, fraction), rel=1e-9, abs=1e-6)


def test_center_crop_of_known_sizes() -> None:
    recipe = Recipe(width=224, height=224, fit="center_crop", crop_fraction=0.875)
    box = place(4000, 3000, recipe).box
    step_x, step_y = 4000 / 341, 3000 / 256
    assert (box.left, box.top) == pytest.approx((58 * step_x, 16 * step_y))
    assert (box.width, box.height) == pytest.approx((224 * step_x, 224 * step_y))


@pytest.mark.parametrize("size", [(500, 375), (375, 500), (341, 333)])
def test_center_crop_equals_two_steps(size: tuple[int, int]) -> None:
    """One resampling of the cut-out against resize, then cut: the same sampling points, so almost the same pixels."""
    image = picture(*size)
    short = min(size)
    scaled = image.resize((int(73 * size[0] / short), int(73 * size[1] / short)), Image.Resampling.BICUBIC)
    left, top = round((scaled.width - 64) / 2), round((scaled.height - 64) / 2)
    expected = np.asarray(scaled.crop((left, top, left + 64, top + 64)))
    recipe = Recipe(width=64, height=64, fit="center_crop", crop_fraction=64 / 73)
    got = prepared(encoded(image, "PNG"), recipe)
    assert apart(got[4:-4, 4:-4], expected[4:-4, 4:-4]) < 0.15


@given(width=sizes, height=sizes, target_width=targets, target_height=targets)
def test_letterbox_keeps_the_aspect(width: int, height: int, target_width: int, target_height: int) -> None:
    placement = place(width, height, Recipe(width=target_width, height=target_height, fit="letterbox"))
    assert placement.box == Box(0, 0, width, height)
    assert placement.width == target_width or placement.height == target_height
    exact = min(target_width / width, target_height / height)
    assert abs(placement.width - max(1, width * exact)) <= 0.5 + 1e-6
    assert abs(placement.height - max(1, height * exact)) <= 0.5 + 1e-6
    assert abs(2 * placement.x + placement.width - target_width) <= 1
    assert abs(2 * placement.y + placement.height - target_height) <= 1


def test_letterbox_bars_have_the_pad_level() -> None:
    recipe = Recipe(width=64, height=64, fit="letterbox", pad_value=9)
    got = prepared(encoded(picture(128, 64), "PNG"), recipe)
    assert (got[:16] == 9).all() and (got[48:] == 9).all()
    assert not (got[16:48] == 9).all(axis=(1, 2)).any()


# --- orientation -------------------------------------------------------------------------------------------------------------


@given(
    orientation=orientations,
    width=st.integers(1, 40),
    height=st.integers(1, 40),
    box=st.tuples(*[st.floats(0, 1)] * 4),
)
def test_stored_box_keeps_size_and_stays_inside(
    orientation: int, width: int, height: int, box: tuple[float, float, float, float]
) -> None:
    upright_width, upright_height = (height, width) if orientation >= 5 else (width, height)
    left, top = box[0] * upright_width, box[1] * upright_height
    upright = Box(left, top, box[2] * (upright_width - left), box[3] * (upright_height - top))
    stored = stored_box(upright, orientation, width, height)
    assert stored.width * stored.height == pytest.approx(upright.width * upright.height, abs=1e-9)
    assert stored.left >= 0 and stored.left + stored.width <= width + 1e-9
    assert stored.top >= 0 and stored.top + stored.height <= height + 1e-9


@given(orientation=orientations, data=st.data())
def test_whole_pixels_of_a_box_are_the_same_pixels(orientation: int, data: st.DataObject) -> None:
    """Cut out of the upright picture, or out of the stored one at stored_box: the same pixels, turned."""
    upright = np.arange(12 * 7, dtype=np.uint8).reshape(7, 12)
    turn = UPRIGHT_TO_STORED[orientation]
    image = Image.fromarray(upright)
    stored = np.asarray(image if turn is None else image.transpose(turn))
    x0, x1 = sorted(data.draw(st.tuples(st.integers(0, 12), st.integers(0, 12))))
    y0, y1 = sorted(data.draw(st.tuples(st.integers(0, 7), st.integers(0, 7))))
    box = stored_box(Box(x0, y0, x1 - x0, y1 - y0), orientation, stored.shape[1], stored.shape[0])
    left, top = round(box.left), round(box.top)
    cut = stored[top : top + round(box.height), left : left + round(box.width)]
    assert np.array_equal(as_stored(upright[y0:y1, x0:x1], orientation), cut)


@pytest.mark.parametrize("orientation", range(1, 9))
def test_as_stored_is_what_pillow_turns(orientation: int) -> None:
    upright = np.asarray(picture(19, 11))
    turn = UPRIGHT_TO_STORED[orientation]
    stored = picture(19, 11) if turn is None else picture(19, 11).transpose(turn)
    view = as_stored(upright, orientation)
    assert np.array_equal(view, np.asarray(stored))
    assert np.shares_memory(view, upright)


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("fit", ["stretch", "center_crop", "letterbox"])
def test_resizing_a_turned_picture_equals_turning_after(fit: str, orientation: int) -> None:
    recipe = Recipe(width=60, height=44, fit=fit, crop_fraction=0.875)
    upright = picture(251, 163)
    turn = UPRIGHT_TO_STORED[orientation]
    stored = upright if turn is None else upright.transpose(turn)
    straight, turned = (np.empty((44, 60, 3), np.uint8) for _ in range(2))
    Resizer(recipe).write(Pixels(upright, 1, upright.size), straight)
    Resizer(recipe).write(Pixels(stored, orientation, stored.size), turned)
    assert np.abs(straight.astype(int) - turned.astype(int)).max() <= 1


# --- writing -----------------------------------------------------------------------------------------------------------------

GUARD = 201


@settings(max_examples=150, deadline=None)
@given(
    recipe=st.builds(
        Recipe,
        width=st.integers(1, 80),
        height=st.integers(1, 80),
        fit=fits,
        crop_fraction=fractions,
        colour=st.sampled_from(["rgb", "bgr", "grey"]),
        filter=st.sampled_from(["nearest", "box", "bilinear", "bicubic", "lanczos"]),
        pad_value=st.integers(0, 255),
    ),
    width=st.integers(1, 120),
    height=st.integers(1, 120),
    mode=st.sampled_from(["RGB", "RGBA", "L"]),
    orientation=orientations,
)
def test_writes_all_of_its_slot_and_nothing_else(
    recipe: Recipe, width: int, height: int, mode: str, orientation: int
) -> None:
    """Two batches that differ in every byte before must agree in the slot after, and keep every byte around it."""
    source = Image.new(mode, (width, height), 100)
    slots = []
    for background in (GUARD, 255 - GUARD):
        memory = np.full((3, recipe.height, recipe.width, recipe.channels), background, np.uint8)
        Resizer(recipe).write(Pixels(source, orientation, source.size), memory[1])
        assert (memory[0] == background).all() and (memory[2] == background).all()
        slots.append(memory[1])
    assert np.array_equal(*slots)


def test_writes_into_a_slot_that_is_not_contiguous() -> None:
    recipe = Recipe(width=40, height=30)
    memory = np.full((40, 50, 5), GUARD, np.uint8)
    slot = memory[5:35, 5:45, 1:4]
    Resizer(recipe).write(Pixels(picture(100, 80), 6, (100, 80)), slot)
    outside = np.ones(memory.shape, bool)
    outside[5:35, 5:45, 1:4] = False
    assert (memory[outside] == GUARD).all()


def test_a_resizer_carries_nothing_over() -> None:
    """Scratch memory is reused: a picture must not shine through the next, whatever the order of sizes and modes."""
    recipe = Recipe(width=32, height=24, fit="letterbox")
    sources = [picture(90, 60), picture(60, 90), picture(90, 60, "L"), picture(61, 60), picture(90, 60)]
    one = Resizer(recipe)
    for source in sources * 2:
        got, fresh = (np.empty((24, 32, 3), np.uint8) for _ in range(2))
        one.write(Pixels(source, 1, source.size), got)
        Resizer(recipe).write(Pixels(source, 1, source.size), fresh)
        assert np.array_equal(got, fresh)


def test_the_unused_byte_is_never_read() -> None:
    recipe = Recipe(width=31, height=23)
    results = []
    for fill in (0, 128, 255):
        array = np.dstack([np.asarray(picture()), np.full((61, 97), fill, np.uint8)])
        slot = np.empty((23, 31, 3), np.uint8)
        Resizer(recipe).write(Pixels(view_as_image(array), 1, (array.shape[1], array.shape[0])), slot)
        results.append(slot)
    assert np.array_equal(results[0], results[1]) and np.array_equal(results[0], results[2])


@pytest.mark.parametrize("name", ["box", "bilinear", "bicubic", "lanczos"])
@pytest.mark.parametrize("target", [(40, 30), (97, 61), (150, 140)])
def test_filters_are_those_of_the_reference(name: str, target: tuple[int, int]) -> None:
    recipe = Recipe(width=target[0], height=target[1], filter=name)
    data = encoded(picture(), "PNG")
    apart_by = np.abs(prepared(data, recipe).astype(int) - reference_of(data, recipe).astype(int))
    assert apart_by.max() <= (6 if name == "box" else 2)
    assert apart_by.mean() < 0.3


# --- reduced decodes ---------------------------------------------------------------------------------------------------------


def test_a_picture_does_not_move_when_the_decoder_rounds_up() -> None:
    """A ramp reads the position: 1001 columns become 126 at 1/8, of which the last is seven eighths outside."""
    width, height = 1001, 1001
    ramp = np.tile(np.linspace(20, 235, width, dtype=np.float32), (height, 1)).round().astype(np.uint8)
    data = encoded(Image.fromarray(ramp), "JPEG", quality=98)
    recipe = Recipe(width=50, height=50, colour="grey")
    fast, full = (prepared(data, recipe, fidelity)[25, :, 0].astype(int) for fidelity in ("fast", "exact"))
    assert np.abs(fast[:-1] - full[:-1]).max() <= 1

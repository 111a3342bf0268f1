"""Does the recipe feed the model? One clear sentence for every defect seen in the wild."""

from __future__ import annotations

from dataclasses import replace

import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import helper

import tiny_models as tiny
from headrace.errors import ModelError
from headrace.models.graph import Tensor, read_signature
from headrace.models.signature import Fit, fit, value_range
from headrace.records.recipe import ModelCard, Recipe

PLAIN = Recipe(width=8, height=8)
GREY = Recipe(width=8, height=8, colour="grey", mean=(0.0,), std=(1.0,))


def fitted(model: onnx.ModelProto, recipe: Recipe = PLAIN, card: ModelCard | None = None) -> Fit:
    return fit(read_signature(model), recipe, card or ModelCard())


def refusal(model: onnx.ModelProto, recipe: Recipe = PLAIN, card: ModelCard | None = None) -> str:
    with pytest.raises(ModelError) as caught:
        fitted(model, recipe, card)
    message = str(caught.value)
    assert "\n" not in message and len(message) < 500
    return message


def test_a_sound_model_fits_without_a_note() -> None:
    found = fitted(tiny.classifier())
    assert found == Fit(
        input=Tensor("input", "float32", ("n", 3, 8, 8)),
        outputs=("logits",),
        batch=None,
        unfreeze=False,
        notes=(),
    )


def test_unknown_shape_and_dim_zero_count_as_free() -> None:
    model = tiny.identity([None, 3, None, None])
    assert fitted(model).input.dims == (None, 3, None, None)
    model.graph.input[0].type.tensor_type.ClearField("shape")
    assert fitted(model).input.dims is None
    zero = tiny.identity([0, 3, -1, 8])
    assert fitted(zero).batch is None and fitted(zero).input.dims == (None, 3, None, 8)


def test_centerface_leftovers_of_the_export() -> None:
    model = tiny.convolution([10, 3, 32, 32], name="input.1")
    message = refusal(model, Recipe(width=640, height=480))
    assert "'input.1' [10,3,32,32]" in message and "640x480" in message and "unfreeze = true" in message
    found = fitted(model, Recipe(width=640, height=480), ModelCard(unfreeze=True))
    assert found.batch is None and found.unfreeze and "freed" in found.notes[0]


def test_line_detector_nhwc_with_four_channels() -> None:
    message = refusal(tiny.nhwc_four_channels(), Recipe(width=512, height=512))
    for part in (
        "'image_with_alpha:0' [1,512,512,4]",
        "NHWC with 4 channels",
        'makes 3 (colour = "rgb") in NCHW',
        "1 or 3",
    ):
        assert part in message
    message = refusal(tiny.nhwc_four_channels(), Recipe(width=512, height=512, layout="nhwc"))
    assert "takes 4 channels" in message and "set layout" not in message


@pytest.mark.parametrize(
    ("dims", "recipe", "advice"),
    [
        (["n", 224, 224, 3], Recipe(width=224, height=224), 'set layout = "nhwc"'),
        (["n", 3, 224, 224], Recipe(width=224, height=224, layout="nhwc"), 'set layout = "nchw"'),
        (["n", 1, 8, 8], PLAIN, 'set colour = "grey"'),
        (["n", 3, 8, 8], GREY, 'set colour = "rgb" or "bgr"'),
        (["n", 6, 8, 8], PLAIN, "no recipe makes 6"),
        ([1, 3, 224, 224], Recipe(width=384, height=384), "is fixed at 224x224; the recipe makes 384x384"),
        (["n", 3, 224, 320], Recipe(width=224, height=320), "is fixed at 320x224; the recipe makes 224x320"),
    ],
)
def test_layout_channels_and_size(dims: tiny.Dims, recipe: Recipe, advice: str) -> None:
    assert advice in refusal(tiny.identity(dims), recipe)


def test_frozen_batches() -> None:
    one = fitted(tiny.convolution([1, 3, 8, 8]))
    assert one.batch == 1 and "one image at a time" in one.notes[0]
    four = fitted(tiny.convolution([4, 3, 8, 8]))
    assert four.batch == 4 and "fixed to batches of 4" in four.notes[0]


def test_no_image_input() -> None:
    flat = tiny.identity(["n", 768])
    assert "has 2 dimensions" in refusal(flat)
    video = tiny.identity(["n", 3, 16, 8, 8])
    assert "has 5 dimensions" in refusal(video)


@pytest.mark.parametrize("dtype", ["INT64", "DOUBLE", "INT8", "BFLOAT16", "BOOL"])
def test_dtypes_that_no_batch_has(dtype: str) -> None:
    message = refusal(tiny.identity(["n", 3, 8, 8], getattr(onnx.TensorProto, dtype)))
    assert "float32, float16, uint8" in message


def test_several_inputs() -> None:
    recipe = Recipe(width=4, height=4)
    message = refusal(tiny.two_inputs(), recipe)
    assert "takes 2 inputs" in message and 'input = "image" and outputs = ["seen"]' in message
    found = fitted(tiny.two_inputs(), recipe, ModelCard(input="image", outputs=("seen",)))
    assert found.input.name == "image" and found.outputs == ("seen",)
    assert fitted(tiny.two_inputs(), recipe, ModelCard(outputs=("seen",))).input.name == "image"
    assert 'outputs = ["seen"]' in refusal(tiny.two_inputs(), recipe, ModelCard(input="image"))
    assert "not from 'text'" in refusal(tiny.two_inputs(), recipe, ModelCard(input="text", outputs=("seen",)))


def test_names_that_the_model_lacks() -> None:
    assert "it takes 'input' [n,3,8,8]" in refusal(tiny.classifier(), card=ModelCard(input="pixels"))
    message = refusal(tiny.classifier(), card=ModelCard(outputs=("scores",)))
    assert "'scores'" in message and "'logits' [n,5]" in message


def test_two_inputs_that_nothing_can_part() -> None:
    node = helper.make_node("Add", ["a", "b"], ["y"])
    dims = ["n", 3, 8, 8]
    model = tiny.graph([node], [("a", tiny.FLOAT, dims), ("b", tiny.FLOAT, dims)], [("y", tiny.FLOAT, dims)])
    assert "as its only input" in refusal(model)


def test_twelve_outputs_are_pointed_out() -> None:
    recipe = Recipe(width=4, height=4)
    assert "All 12 outputs" in fitted(tiny.many_outputs(), recipe).notes[0]
    chosen = fitted(tiny.many_outputs(), recipe, ModelCard(outputs=("1953", "1950")))
    assert chosen.outputs == ("1953", "1950") and chosen.notes == ()


def test_labels_that_do_not_fit_the_scores() -> None:
    card = ModelCard(task="classify", labels=("a", "b", "c", "d"))
    assert "has 5 scores and labels has 4 names" in refusal(tiny.classifier(), card=card)
    assert fitted(tiny.classifier(), card=replace(card, labels=("a", "b", "c", "d", "e"))).notes == ()


@pytest.mark.parametrize(
    ("changes", "part"),
    [
        ({"scale": 1.0}, None),
        ({"scale": 1.0, "mean": (127.0,) * 3, "std": (128.0,) * 3}, None),
        (
            {"scale": 1.0, "mean": (0.485, 0.456, 0.406), "std": (0.229, 0.224, 0.225)},
            "more than models are trained with",
        ),
        ({"scale": 1 / 255, "mean": (0.0,) * 3, "std": (255.0,) * 3}, "sees a blank image"),
        ({"scale": 1 / 255, "mean": (123.7, 116.3, 103.5), "std": (1.0,) * 3}, None),
        ({"scale": 2.0}, "to 510"),
    ],
)
def test_ranges_that_no_model_was_trained_with(changes: dict[str, object], part: str | None) -> None:
    notes = fitted(tiny.classifier(), replace(PLAIN, **changes)).notes  # type: ignore[arg-type]
    assert (notes == ()) if part is None else (part in notes[0])


def test_dtype_notes() -> None:
    model = tiny.identity(["n", 8, 8, 3], tiny.UINT8)
    raw = Recipe(width=8, height=8, layout="nhwc", scale=1.0, dtype="uint8")
    assert fitted(model, raw).notes == ()
    notes = fitted(model, replace(raw, scale=1 / 255)).notes
    assert "is uint8 and the recipe normalises to 0..1" in notes[0]
    half = fitted(tiny.identity(["n", 3, 8, 8], tiny.FLOAT16)).notes
    assert "dtype float32" in half[0] and "float16" in half[0]


def test_weights_listed_as_inputs_are_no_inputs() -> None:
    model = tiny.classifier()
    model.graph.input.append(helper.make_tensor_value_info("w", tiny.FLOAT, [3, 5]))
    assert fitted(model).input.name == "input"


def test_a_graph_without_inputs() -> None:
    model = tiny.classifier()
    del model.graph.input[:]
    assert "no input" in refusal(model)


@given(
    st.lists(
        st.one_of(st.none(), st.sampled_from([0, 1, 3, 4, 8, 224, -1]), st.sampled_from(["n", "h", ""])),
        max_size=6,
    ),
    st.sampled_from(["nchw", "nhwc"]),
    st.booleans(),
    st.sampled_from([tiny.FLOAT, tiny.FLOAT16, tiny.UINT8, onnx.TensorProto.STRING]),
)
def test_any_signature_fits_or_is_refused_in_one_sentence(
    dims: tiny.Dims, layout: str, unfreeze: bool, dtype: int
) -> None:
    info = helper.make_tensor_value_info("x", dtype, dims)
    out = helper.make_tensor_value_info("y", dtype, None)
    made = helper.make_model(
        helper.make_graph([helper.make_node("Identity", ["x"], ["y"])], "g", [info], [out])
    )
    try:
        found = fitted(made, replace(PLAIN, layout=layout), ModelCard(unfreeze=unfreeze))  # type: ignore[arg-type]
    except ModelError as error:
        assert "'x'" in str(error) and "\n" not in str(error)
        return
    assert found.input.dims is not None and len(found.input.dims) == 4
    assert found.batch is None or found.batch >= 1


@given(
    st.floats(-10, 10).filter(lambda value: abs(value) > 1e-3),
    st.lists(st.floats(-300, 300), min_size=3, max_size=3),
    st.lists(st.floats(-300, 300).filter(lambda value: abs(value) > 1e-3), min_size=3, max_size=3),
    st.integers(0, 255),
)
def test_value_range_holds_every_pixel(scale: float, mean: list[float], std: list[float], pixel: int) -> None:
    low, high = value_range(replace(PLAIN, scale=scale, mean=tuple(mean), std=tuple(std)))
    slack = 1e-9 * max(1.0, abs(low), abs(high))
    for middle, spread in zip(mean, std, strict=True):
        assert low - slack <= (pixel * scale - middle) / spread <= high + slack

"""The front in the graph makes the numbers that the recipe promises."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper

import tiny_models as tiny
from headrace.errors import ModelError
from headrace.models.front import with_front, without_front
from headrace.models.graph import read_signature
from headrace.models.opening import open_runner
from headrace.models.signature import fit
from headrace.records.image import AnyArray
from headrace.records.recipe import ModelCard, Recipe, RecipeFile

RAW = Recipe(width=4, height=4, scale=1.0)


def fronted(model: onnx.ModelProto, recipe: Recipe, card: ModelCard | None = None) -> onnx.ModelProto:
    ready = with_front(model, recipe, fit(read_signature(model), recipe, card or ModelCard()))
    onnx.checker.check_model(ready, full_check=True)
    return ready


def outcome(model: onnx.ModelProto, batch: AnyArray) -> list[Any]:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    return session.run(None, {session.get_inputs()[0].name: batch})


def pixels(recipe: Recipe, count: int = 2, seed: int = 0) -> AnyArray:
    shape = (count, recipe.height, recipe.width, recipe.channels)
    return np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)


def normalised(batch: AnyArray, recipe: Recipe) -> AnyArray:
    """What the recipe's formula says, in double precision."""
    values = (batch.astype(np.float64) * recipe.scale - np.array(recipe.mean)) / np.array(recipe.std)
    return values.transpose(0, 3, 1, 2) if recipe.layout == "nchw" else values


@st.composite
def recipes(draw: st.DrawFn) -> Recipe:
    colour = draw(st.sampled_from(["rgb", "bgr", "grey"]))
    count = 1 if colour == "grey" else 3
    in_bytes = draw(st.booleans())
    top = 255.0 if in_bytes else 1.0
    mean = draw(st.lists(st.one_of(st.just(0.0), st.floats(0.0, top)), min_size=count, max_size=count))
    std = draw(st.lists(st.one_of(st.just(1.0), st.floats(top / 8, top)), min_size=count, max_size=count))
    return Recipe(
        width=draw(st.integers(1, 9)),
        height=draw(st.integers(1, 9)),
        colour=colour,  # type: ignore[arg-type]
        layout=draw(st.sampled_from(["nchw", "nhwc"])),
        scale=1.0 if in_bytes else 1.0 / 255.0,
        mean=tuple(mean),
        std=tuple(std),
    )


def dims_of(recipe: Recipe, batch: str | int = "n") -> list[str | int]:
    sides: list[str | int] = [recipe.height, recipe.width]
    return [batch, recipe.channels, *sides] if recipe.layout == "nchw" else [batch, *sides, recipe.channels]


@given(recipes(), st.integers(1, 4), st.integers(0, 999))
@settings(max_examples=60, deadline=None)
def test_the_front_makes_the_recipes_numbers(recipe: Recipe, count: int, seed: int) -> None:
    batch = pixels(recipe, count, seed)
    (made,) = outcome(fronted(tiny.identity(dims_of(recipe)), recipe), batch)
    expected = normalised(batch, recipe)
    assert made.dtype == np.float32 and made.shape == expected.shape
    np.testing.assert_allclose(made, expected, rtol=1e-5, atol=1e-4)


@given(recipes().filter(lambda recipe: recipe.layout == "nchw"), st.integers(0, 999))
@settings(max_examples=30, deadline=None)
def test_a_convolution_answers_the_same_behind_the_front(recipe: Recipe, seed: int) -> None:
    model = tiny.convolution(dims_of(recipe), channels=recipe.channels)
    batch = pixels(recipe, 2, seed)
    (made,) = outcome(fronted(model, recipe), batch)
    (expected,) = outcome(model, normalised(batch, recipe).astype(np.float32))
    np.testing.assert_allclose(made, expected, rtol=1e-4, atol=1e-4)


@given(recipes())
@settings(max_examples=30, deadline=None)
def test_half_precision(recipe: Recipe) -> None:
    batch = pixels(recipe)
    (made,) = outcome(fronted(tiny.identity(dims_of(recipe), tiny.FLOAT16), recipe), batch)
    assert made.dtype == np.float16
    np.testing.assert_allclose(made.astype(np.float32), normalised(batch, recipe), rtol=1e-3, atol=2e-3)


def test_uint8_models_take_the_pixels_as_they_are() -> None:
    recipe = replace(RAW, layout="nhwc", dtype="uint8")
    ready = fronted(tiny.identity(["n", 4, 4, 3], tiny.UINT8), recipe)
    assert [node.op_type for node in ready.graph.node] == ["Identity", "Identity"]
    np.testing.assert_array_equal(outcome(ready, pixels(recipe))[0], pixels(recipe))


def test_uint8_models_get_rounded_values_within_bounds() -> None:
    recipe = replace(RAW, layout="nhwc", scale=2.0, mean=(100.0, 0.0, -0.5), std=(1.0, 4.0, 1.0))
    batch = pixels(recipe)
    (made,) = outcome(fronted(tiny.identity(["n", 4, 4, 3], tiny.UINT8, opset=9), recipe), batch)
    np.testing.assert_array_equal(made, np.clip(np.floor(normalised(batch, recipe) + 0.5), 0, 255))


@pytest.mark.parametrize(
    ("changes", "operators"),
    [
        ({}, ["Transpose", "Cast"]),
        ({"scale": 1 / 255}, ["Transpose", "Cast", "Mul"]),
        ({"mean": (127.0,) * 3}, ["Transpose", "Cast", "Add"]),
        ({"mean": (127.0,) * 3, "std": (128.0,) * 3}, ["Transpose", "Cast", "Mul", "Add"]),
        ({"layout": "nhwc"}, ["Cast"]),
    ],
)
def test_steps_that_change_nothing_are_left_out(changes: dict[str, Any], operators: list[str]) -> None:
    recipe = replace(RAW, **changes)
    ready = fronted(tiny.identity(dims_of(recipe)), recipe)
    assert [node.op_type for node in ready.graph.node] == [*operators, "Identity"]


@pytest.mark.parametrize("opset", [9, 11, 13, 18, 21])
def test_opsets(opset: int) -> None:
    recipe = replace(RAW, scale=1 / 255, mean=(0.5, 0.4, 0.3), std=(0.2, 0.3, 0.4))
    (made,) = outcome(fronted(tiny.identity(["n", 3, 4, 4], opset=opset), recipe), pixels(recipe))
    np.testing.assert_allclose(made, normalised(pixels(recipe), recipe), atol=1e-5)


def test_older_opsets_are_refused() -> None:
    with pytest.raises(ModelError, match="opset 8"):
        fronted(tiny.identity(["n", 3, 4, 4], opset=8), RAW)


def test_names_of_the_model_are_left_alone() -> None:
    """A model that was fronted once has all the names that the front would like."""
    recipe = replace(RAW, scale=1 / 255, mean=(0.5,) * 3)
    once = fronted(tiny.identity(["n", 3, 4, 4], names=("pixels", "front_transpose")), recipe)
    names = [node.name for node in once.graph.node] + [
        name for node in once.graph.node for name in node.output
    ]
    assert len(once.graph.input) == 1 and once.graph.input[0].name == "pixels_1"
    assert [name for node in once.graph.node for name in node.output].count("front_transpose") == 1, names
    (made,) = outcome(once, pixels(recipe))
    np.testing.assert_allclose(made, normalised(pixels(recipe), recipe), atol=1e-5)
    again = fronted(once, replace(RAW, layout="nhwc", dtype="uint8"))
    np.testing.assert_array_equal(outcome(again, pixels(recipe))[0], made)


def test_names_inside_bodies_count_too() -> None:
    model = tiny.with_branch()
    for attribute in model.graph.node[1].attribute:
        attribute.g.node[0].name = "front_cast"
    ready = fronted(model, RAW, ModelCard(outputs=("y",)))
    assert "front_cast" not in [node.name for node in ready.graph.node]


def test_only_the_wanted_outputs_are_computed() -> None:
    ready = fronted(tiny.many_outputs(), RAW, ModelCard(outputs=("1953", "1950")))
    assert [info.name for info in ready.graph.output] == ["1953", "1950"]
    assert sum(node.op_type == "Add" for node in ready.graph.node) == 2
    assert {weight.name for weight in ready.graph.initializer} == {"k3", "k0"}
    batch = pixels(RAW)
    third, zeroth = outcome(ready, batch)
    np.testing.assert_array_equal(third, zeroth + 3)


def test_what_a_branch_reads_from_around_it_stays() -> None:
    ready = fronted(tiny.with_branch(), RAW, ModelCard(outputs=("y",)))
    assert {weight.name for weight in ready.graph.initializer} == {"two", "yes"}
    assert "Sqrt" not in [node.op_type for node in ready.graph.node]
    batch = pixels(RAW)
    np.testing.assert_array_equal(outcome(ready, batch)[0], 2.0 * batch.transpose(0, 3, 1, 2))


def test_an_input_nobody_chose_disappears() -> None:
    ready = fronted(tiny.two_inputs(), RAW, ModelCard(outputs=("seen",)))
    assert [info.name for info in ready.graph.input] == ["pixels"]


def test_old_models_that_list_weights_as_inputs() -> None:
    model = tiny.classifier(("n", 3, 4, 4))
    model.graph.input.append(helper.make_tensor_value_info("w", tiny.FLOAT, [3, 5]))
    model.ir_version = 3
    ready = fronted(model, RAW)
    assert ready.ir_version == 4 and [info.name for info in ready.graph.input] == ["pixels"]
    np.testing.assert_allclose(
        outcome(ready, pixels(RAW))[0],
        outcome(tiny.classifier(("n", 3, 4, 4)), normalised(pixels(RAW), RAW).astype("f4"))[0],
    )


def test_the_model_given_is_not_changed() -> None:
    model = tiny.convolution([10, 3, 32, 32])
    before = model.SerializeToString()
    fitted = fit(read_signature(model), RAW, ModelCard(unfreeze=True))
    with_front(model, RAW, fitted)
    without_front(model, RAW, fitted)
    assert model.SerializeToString() == before


@pytest.mark.parametrize("stale", [False, True])
def test_unfrozen_models_run_at_any_size(stale: bool) -> None:
    model = tiny.convolution([10, 3, 32, 32], [10, 2, 32, 32])
    if stale:
        relu = helper.make_node("Relu", ["y"], ["z"])
        model.graph.node.append(relu)
        model.graph.value_info.append(helper.make_tensor_value_info("y", tiny.FLOAT, [10, 2, 32, 32]))
        model.graph.output[0].name = "z"
    recipe = Recipe(width=24, height=16)
    (made,) = outcome(fronted(model, recipe, ModelCard(unfreeze=True)), pixels(recipe, 3))
    assert made.shape == (3, 2, 16, 24)


@pytest.mark.parametrize("layout", ["nchw", "nhwc"])
def test_unfreezing_without_the_front(layout: str) -> None:
    recipe = replace(RAW, layout=layout, width=5, height=3)  # type: ignore[arg-type]
    frozen = dims_of(replace(recipe, width=32, height=32), 10)
    model = tiny.identity(frozen)
    ready = without_front(model, recipe, fit(read_signature(model), recipe, ModelCard(unfreeze=True)))
    onnx.checker.check_model(ready, full_check=True)
    batch = normalised(pixels(recipe), recipe).astype(np.float32)
    np.testing.assert_array_equal(outcome(ready, batch)[0], batch)


def test_a_quantised_model() -> None:
    weights = {
        "s": np.float32(1 / 64), "z": np.uint8(128), "ws": np.float32(0.01), "wz": np.int8(0),
        "w": np.arange(-40, 41, dtype=np.int8).reshape(3, 3, 3, 3),
    }  # fmt: skip
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["xq"]),
        helper.make_node("DequantizeLinear", ["xq", "s", "z"], ["xd"]),
        helper.make_node("DequantizeLinear", ["w", "ws", "wz"], ["wd"]),
        helper.make_node("Conv", ["xd", "wd"], ["y"], kernel_shape=[3, 3]),
    ]
    dims = ["batch_size", 3, "height", "width"]
    model = tiny.graph(
        nodes, [("x", tiny.FLOAT, dims)], [("y", tiny.FLOAT, ["batch_size", 3, "h", "w"])], weights
    )
    recipe = Recipe(width=9, height=7, mean=(0.5,) * 3, std=(0.5,) * 3)
    batch = pixels(recipe)
    (made,) = outcome(fronted(model, recipe), batch)
    (expected,) = outcome(model, normalised(batch, recipe).astype(np.float32))
    # One step of the quantiser where a value lies on its edge.
    np.testing.assert_allclose(made, expected, atol=0.01 * 40 / 64 + 1e-4)


def test_weights_in_a_file_beside_the_model(tmp_path: Path) -> None:
    model = tiny.convolution(["n", 3, 4, 4])
    inside = open_runner(
        tiny.saved(model, tmp_path, "inside.onnx"), RecipeFile(recipe=RAW), accelerator="cpu", threads=1
    )
    folder = tmp_path / "apart"
    folder.mkdir()
    onnx.save(
        model, folder / "model.onnx", save_as_external_data=True, location="model.onnx.data", size_threshold=0
    )
    assert (folder / "model.onnx.data").is_file()
    outside = open_runner(folder / "model.onnx", RecipeFile(recipe=RAW), accelerator="cpu", threads=1)
    batch = pixels(RAW)
    np.testing.assert_array_equal(outside.run(batch)["y"], inside.run(batch)["y"])
    (folder / "model.onnx.data").unlink()
    with pytest.raises(ModelError, match=r"keeps its weights in .*model\.onnx\.data, which is missing"):
        open_runner(folder / "model.onnx", RecipeFile(recipe=RAW), accelerator="cpu", threads=1)


def test_weights_outside_the_folder_are_refused(tmp_path: Path) -> None:
    model = tiny.convolution(["n", 3, 4, 4])
    onnx.save(
        model, tmp_path / "model.onnx", save_as_external_data=True, location="model.data", size_threshold=0
    )
    loaded = onnx.load(tmp_path / "model.onnx", load_external_data=False)
    for weight in loaded.graph.initializer:
        next(entry for entry in weight.external_data if entry.key == "location").value = "../../etc/passwd"
    (tmp_path / "bad.onnx").write_bytes(loaded.SerializeToString())
    with pytest.raises(ModelError, match="outside its own folder"):
        open_runner(tmp_path / "bad.onnx", RecipeFile(recipe=RAW), accelerator="cpu", threads=1)

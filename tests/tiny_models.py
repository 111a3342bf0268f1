"""Tiny ONNX graphs with the signatures, sound and defective, of real models."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

Dims = Sequence[int | str | None]
FLOAT, FLOAT16, UINT8 = TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.UINT8


def graph(
    nodes: Sequence[onnx.NodeProto],
    inputs: Sequence[tuple[str, int, Dims]],
    outputs: Sequence[tuple[str, int, Dims | None]],
    weights: dict[str, Any] | None = None,
    *,
    opset: int = 17,
    ir_version: int = 8,
) -> onnx.ModelProto:
    """A model of these parts, checked by onnx."""
    made = helper.make_model(
        helper.make_graph(
            list(nodes),
            "tiny",
            [helper.make_tensor_value_info(*entry) for entry in inputs],
            [helper.make_tensor_value_info(*entry) for entry in outputs],
            [numpy_helper.from_array(np.asarray(value), name) for name, value in (weights or {}).items()],
        ),
        opset_imports=[helper.make_opsetid("", opset)],
        ir_version=ir_version,
    )
    onnx.checker.check_model(made)
    return made


def identity(
    dims: Dims, dtype: int = FLOAT, *, opset: int = 17, names: tuple[str, str] = ("x", "y")
) -> onnx.ModelProto:
    """The input as the output: shows exactly what the front makes."""
    node = helper.make_node("Identity", [names[0]], [names[1]], name="same")
    return graph([node], [(names[0], dtype, dims)], [(names[1], dtype, dims)], opset=opset)


def convolution(
    dims: Dims, out_dims: Dims | None = None, *, channels: int = 3, dtype: int = FLOAT, name: str = "x"
) -> onnx.ModelProto:
    """One 3x3 convolution to two channels, same size, NCHW."""
    rng = np.random.default_rng(3)
    kind = np.float16 if dtype == FLOAT16 else np.float32
    weights = {
        "w": (rng.standard_normal((2, channels, 3, 3)) * 0.1).astype(kind),
        "b": np.array([0.5, -0.5], kind),
    }
    node = helper.make_node(
        "Conv", [name, "w", "b"], ["y"], name="conv", kernel_shape=[3, 3], pads=[1, 1, 1, 1]
    )
    return graph([node], [(name, dtype, dims)], [("y", dtype, out_dims or [dims[0], 2, *dims[2:]])], weights)


def classifier(dims: Dims = ("n", 3, 8, 8), classes: int = 5) -> onnx.ModelProto:
    """Mean of each channel, then one matrix."""
    rng = np.random.default_rng(4)
    nodes = [
        helper.make_node("GlobalAveragePool", ["input"], ["gap"]),
        helper.make_node("Flatten", ["gap"], ["flat"]),
        helper.make_node("Gemm", ["flat", "w"], ["logits"]),
    ]
    weights = {"w": rng.standard_normal((3, classes)).astype(np.float32)}
    return graph(nodes, [("input", FLOAT, dims)], [("logits", FLOAT, [dims[0], classes])], weights)


def many_outputs(count: int = 12) -> onnx.ModelProto:
    """Output k is x + k, each from nodes of its own."""
    names = [str(1950 + index) for index in range(count)]
    nodes = [helper.make_node("Add", ["input", f"k{index}"], [name]) for index, name in enumerate(names)]
    weights = {f"k{index}": np.array([index], np.float32) for index in range(count)}
    dims = ["n", 3, 4, 4]
    return graph(nodes, [("input", FLOAT, dims)], [(name, FLOAT, dims) for name in names], weights)


def two_inputs() -> onnx.ModelProto:
    """`seen` needs the image only, `both` also the text."""
    nodes = [
        helper.make_node("Relu", ["image"], ["seen"]),
        helper.make_node("Add", ["seen", "text"], ["both"]),
    ]
    dims = ["n", 3, 4, 4]
    return graph(
        nodes, [("image", FLOAT, dims), ("text", FLOAT, [1])], [("seen", FLOAT, dims), ("both", FLOAT, dims)]
    )


def nhwc_four_channels() -> onnx.ModelProto:
    """The shape of a line detector: [1, 512, 512, 4] in, a map out."""
    nodes = [helper.make_node("ReduceMax", ["image_with_alpha:0"], ["scores"], axes=[3], keepdims=1)]
    return graph(
        nodes,
        [("image_with_alpha:0", FLOAT, [1, 512, 512, 4])],
        [("scores", FLOAT, [1, 512, 512, 1])],
        opset=11,
    )


def fixed_reshape() -> onnx.ModelProto:
    """Says that the batch is free and flattens everything into one row."""
    node = helper.make_node("Reshape", ["x", "shape"], ["y"])
    return graph(
        [node],
        [("x", FLOAT, ["n", 3, 4, 4])],
        [("y", FLOAT, [1, "m"])],
        {"shape": np.array([1, -1], np.int64)},
    )


def mixing() -> onnx.ModelProto:
    """Divides by the greatest value of the whole batch."""
    nodes = [
        helper.make_node("ReduceMax", ["x"], ["top"], keepdims=0),
        helper.make_node("Div", ["x", "top"], ["y"]),
    ]
    dims = ["n", 3, 4, 4]
    return graph(nodes, [("x", FLOAT, dims)], [("y", FLOAT, dims)])


def with_branch() -> onnx.ModelProto:
    """The bodies of an If read a tensor from around them."""
    dims = ["n", 3, 4, 4]
    bodies = {}
    for name, operator in (("then", "Relu"), ("else", "Neg")):
        inner = helper.make_node(operator, ["scaled"], [f"{name}_out"])
        out = helper.make_tensor_value_info(f"{name}_out", FLOAT, dims)
        bodies[f"{name}_branch"] = helper.make_graph([inner], name, [], [out])
    nodes = [
        helper.make_node("Mul", ["x", "two"], ["scaled"]),
        helper.make_node("If", ["yes"], ["y"], **bodies),
        helper.make_node("Sqrt", ["x"], ["unused"]),
    ]
    weights = {"two": np.array([2], np.float32), "yes": np.array(True), "idle": np.zeros(9, np.float32)}
    return graph(nodes, [("x", FLOAT, dims)], [("y", FLOAT, dims), ("unused", FLOAT, dims)], weights)


def saved(model: onnx.ModelProto, folder: Path, name: str = "model.onnx") -> Path:
    """The path of the model on disk."""
    path = folder / name
    onnx.save(model, path)
    return path

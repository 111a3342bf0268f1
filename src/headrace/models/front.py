"""Normalisation as the first nodes of the graph: uint8 pixels in, layout, cast, scale, mean and std on the device."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from headrace.errors import ModelError
from headrace.models.graph import all_names, needed_names, needed_nodes, opset_version
from headrace.models.signature import Fit, normalises
from headrace.records.image import FloatArray
from headrace.records.recipe import Recipe

OLDEST_OPSET = 9
PIXELS = "pixels"
_ELEMENT = {"float32": TensorProto.FLOAT, "float16": TensorProto.FLOAT16, "uint8": TensorProto.UINT8}


def with_front(model: onnx.ModelProto, recipe: Recipe, fit: Fit) -> onnx.ModelProto:
    """A new model that takes `pixels` uint8[batch, H, W, C] (C order, 0..255, the recipe's colour order).

    Computes only `fit.outputs`. Weights stored outside the file stay outside, relative to the file's folder.
    Raises ModelError for operators older than opset 9.
    """
    opset = opset_version(model)
    if opset < OLDEST_OPSET:
        raise ModelError(
            f"the model uses opset {opset}, older than {OLDEST_OPSET}: convert it with onnx.version_converter or export it again"
        )
    taken = all_names(model.graph)
    pixels = _free_name(PIXELS, taken)
    nodes, weights = _front(recipe, fit, pixels, taken)
    shape = [fit.batch or "batch", recipe.height, recipe.width, recipe.channels]
    image = helper.make_tensor_value_info(pixels, TensorProto.UINT8, shape)
    return _rebuilt(model, fit, image, nodes, weights)


def without_front(model: onnx.ModelProto, recipe: Recipe, fit: Fit) -> onnx.ModelProto:
    """A new model with the input as it was, unfrozen if `fit` says so, that computes only `fit.outputs`."""
    image = onnx.ValueInfoProto()
    image.CopyFrom(next(info for info in model.graph.input if info.name == fit.input.name))
    if fit.unfreeze:
        _unfreeze(image, recipe)
    return _rebuilt(model, fit, image, [], [])


def _rebuilt(
    model: onnx.ModelProto,
    fit: Fit,
    image: onnx.ValueInfoProto,
    front: Sequence[onnx.NodeProto],
    front_weights: Sequence[onnx.TensorProto],
) -> onnx.ModelProto:
    """The needed part of `model` behind `front`, fed by `image`."""
    old = model.graph
    wanted = needed_names(old, fit.outputs)
    new = onnx.ModelProto()
    new.CopyFrom(_without_graph(model))
    new.ir_version = max(model.ir_version, 4)  # from 4 on, weights need not be inputs too
    new.graph.name = old.name or "model"
    new.graph.input.append(image)
    new.graph.node.extend([*front, *needed_nodes(old, fit.outputs)])
    new.graph.initializer.extend(
        [*front_weights, *(weight for weight in old.initializer if weight.name in wanted)]
    )
    new.graph.sparse_initializer.extend(w for w in old.sparse_initializer if w.values.name in wanted)
    new.graph.quantization_annotation.extend(
        q for q in old.quantization_annotation if q.tensor_name in wanted
    )
    by_name = {info.name: info for info in old.output}
    new.graph.output.extend(_output(by_name[name], fit) for name in fit.outputs)
    if not fit.unfreeze:
        new.graph.value_info.extend(info for info in old.value_info if info.name in wanted)
    return new


def _without_graph(model: onnx.ModelProto) -> onnx.ModelProto:
    """Everything but the graph, without copying the weights first."""
    shell = onnx.ModelProto(
        producer_name=model.producer_name,
        producer_version=model.producer_version,
        model_version=model.model_version,
    )
    shell.domain = model.domain
    shell.opset_import.extend(model.opset_import)
    shell.functions.extend(model.functions)
    shell.metadata_props.extend(model.metadata_props)
    return shell


def _output(info: onnx.ValueInfoProto, fit: Fit) -> onnx.ValueInfoProto:
    """Unfrozen outputs keep their rank only: the runtime works the sizes out again."""
    kept = onnx.ValueInfoProto()
    kept.CopyFrom(info)
    if fit.unfreeze:
        for dim in kept.type.tensor_type.shape.dim:
            dim.Clear()
    return kept


def _unfreeze(image: onnx.ValueInfoProto, recipe: Recipe) -> None:
    height = 2 if recipe.layout == "nchw" else 1
    for position, name in ((0, "batch"), (height, "height"), (height + 1, "width")):
        dims = image.type.tensor_type.shape.dim
        if position < len(dims):
            dims[position].dim_param = name


def _front(
    recipe: Recipe, fit: Fit, pixels: str, taken: set[str]
) -> tuple[list[onnx.NodeProto], list[onnx.TensorProto]]:
    """Nodes from `pixels` to the model's old input. The transpose comes first, while a pixel is one byte."""
    chain = _Chain(pixels, taken)
    if recipe.layout == "nchw":
        chain.step("Transpose", perm=[0, 3, 1, 2])
    if fit.input.dtype != "uint8" or normalises(recipe):
        _arithmetic(chain, recipe, fit.input.dtype)
    return chain.ending_in(fit.input.name), chain.weights


def _arithmetic(chain: _Chain, recipe: Recipe, dtype: str) -> None:
    """float32 throughout, cast to the model's dtype at the end: float16 would lose digits of the pixel times scale."""
    chain.step("Cast", to=TensorProto.FLOAT)
    factor, offset = folded(recipe)
    if np.any(factor != 1.0):
        chain.step("Mul", _shaped(factor, recipe))
    if np.any(offset != 0.0):
        chain.step("Add", _shaped(offset, recipe))
    if dtype == "uint8":
        chain.step("Add", np.float32(0.5))
        chain.step("Floor")
        chain.step("Max", np.float32(0.0))
        chain.step("Min", np.float32(255.0))
    if dtype != "float32":
        chain.step("Cast", to=_ELEMENT[dtype])


def folded(recipe: Recipe) -> tuple[FloatArray, FloatArray]:
    """(factor, offset), float32[C] each, with value = pixel * factor + offset."""
    std = np.asarray(recipe.std, dtype=np.float64)
    factor = recipe.scale / std
    offset = -np.asarray(recipe.mean, dtype=np.float64) / std
    return factor.astype(np.float32), offset.astype(np.float32) + np.float32(0.0)


def _shaped(values: FloatArray, recipe: Recipe) -> FloatArray:
    """One number when all channels share it, else one for each channel at the channels' place."""
    if np.all(values == values[0]):
        return np.asarray(values[0])
    return values.reshape(-1, 1, 1) if recipe.layout == "nchw" else values


class _Chain:
    """A straight line of nodes under names that nobody else uses."""

    def __init__(self, start: str, taken: set[str]) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []
        self._last = start
        self._taken = taken

    def step(self, operator: str, constant: FloatArray | np.float32 | None = None, **attributes: Any) -> None:
        """Appends `operator` on what came before, and `constant` as its second operand."""
        name = _free_name(f"front_{operator.lower()}", self._taken)
        operands = [self._last]
        if constant is not None:
            weight = _free_name(f"{name}_by", self._taken)
            self.weights.append(numpy_helper.from_array(np.asarray(constant, dtype=np.float32), weight))
            operands.append(weight)
        self.nodes.append(helper.make_node(operator, operands, [name], name=name, **attributes))
        self._last = name

    def ending_in(self, name: str) -> list[onnx.NodeProto]:
        """The nodes, the last of which now makes `name`."""
        if not self.nodes:
            self.step("Identity")
        self.nodes[-1].output[0] = name
        return self.nodes


def _free_name(wish: str, taken: set[str]) -> str:
    """`wish`, or with the first free number behind it; takes it."""
    name, number = wish, 1
    while name in taken:
        name, number = f"{wish}_{number}", number + 1
    taken.add(name)
    return name


def weights_outside(model: onnx.ModelProto) -> tuple[str, ...]:
    """Names of the files beside the model that hold its weights, as written in it."""
    found = {
        entry.value
        for weight in model.graph.initializer
        if weight.data_location == TensorProto.EXTERNAL
        for entry in weight.external_data
        if entry.key == "location"
    }
    return tuple(sorted(found))

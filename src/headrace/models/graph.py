"""Questions to an ONNX graph: what it takes, what it gives, what needs what. Reads only."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import onnx

from headrace.errors import ModelError

Dim = int | str | None
"""A fixed size, the name of a free one, or a free one without a name."""


@dataclass(frozen=True, slots=True)
class Tensor:
    """A graph input or output."""

    name: str
    dtype: str
    """numpy's name, like `float32`; ONNX's for what numpy lacks; empty when the graph does not say."""
    dims: tuple[Dim, ...] | None
    """None when the graph does not say."""

    def __str__(self) -> str:
        if self.dims is None:
            return f"'{self.name}' of unknown shape"
        return f"'{self.name}' [{','.join('?' if dim is None else str(dim) for dim in self.dims)}]"


@dataclass(frozen=True, slots=True)
class Signature:
    """What a model takes and gives."""

    inputs: tuple[Tensor, ...]
    """Without the weights, which old exports list among the inputs."""
    outputs: tuple[Tensor, ...]
    needs: tuple[frozenset[str], ...]
    """For each output, the inputs it is computed from."""
    opset: int
    """Version of the standard operators."""


def read_signature(model: onnx.ModelProto) -> Signature:
    """Raises ModelError when the graph has no inputs or outputs at all."""
    weights = weight_names(model.graph)
    inputs = tuple(_tensor(info) for info in model.graph.input if info.name not in weights)
    outputs = tuple(_tensor(info) for info in model.graph.output)
    if not inputs or not outputs:
        missing = "input" if not inputs else "output"
        raise ModelError(
            f"the graph has no {missing}, so there is nothing to feed or read; export the model again"
        )
    names = frozenset(tensor.name for tensor in inputs)
    needs = tuple(frozenset(needed_names(model.graph, [tensor.name]) & names) for tensor in outputs)
    return Signature(inputs=inputs, outputs=outputs, needs=needs, opset=opset_version(model))


def opset_version(model: onnx.ModelProto) -> int:
    """Version of the standard operators, 1 when the model does not say."""
    return max((entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx")), default=1)


def weight_names(graph: onnx.GraphProto) -> set[str]:
    """Names of the constants stored in the graph."""
    return {weight.name for weight in graph.initializer} | {
        weight.values.name for weight in graph.sparse_initializer
    }


def needed_nodes(graph: onnx.GraphProto, outputs: Iterable[str]) -> list[onnx.NodeProto]:
    """The nodes that `outputs` are computed by, in the graph's order."""
    wanted = needed_names(graph, outputs)
    return [node for node in graph.node if any(name in wanted for name in node.output if name)]


def needed_names(graph: onnx.GraphProto, outputs: Iterable[str]) -> set[str]:
    """Every tensor that `outputs` are computed from, themselves included."""
    makers = {name: node for node in graph.node for name in node.output if name}
    wanted: set[str] = set()
    waiting = list(outputs)
    while waiting:
        name = waiting.pop()
        if name in wanted:
            continue
        wanted.add(name)
        if name in makers:
            waiting.extend(read_by(makers[name]))
    return wanted


def read_by(node: onnx.NodeProto) -> Iterator[str]:
    """Names a node reads, including what the bodies of If, Loop and Scan may read from around them."""
    yield from (name for name in node.input if name)
    for graph in _bodies(node):
        yield from (info.name for info in graph.output)
        for inner in graph.node:
            yield from read_by(inner)


def all_names(graph: onnx.GraphProto) -> set[str]:
    """Every name that is taken: tensors and nodes, bodies included."""
    names = weight_names(graph) | {info.name for info in (*graph.input, *graph.output, *graph.value_info)}
    for node in graph.node:
        names.update((node.name, *node.input, *node.output))
        for body in _bodies(node):
            names |= all_names(body)
    return names


def _bodies(node: onnx.NodeProto) -> Iterator[onnx.GraphProto]:
    for attribute in node.attribute:
        if attribute.HasField("g"):
            yield attribute.g
        yield from attribute.graphs


def _tensor(info: onnx.ValueInfoProto) -> Tensor:
    kind = info.type.tensor_type
    dims = tuple(_dim(dim) for dim in kind.shape.dim) if kind.HasField("shape") else None
    return Tensor(name=info.name, dtype=_dtype(kind.elem_type), dims=dims)


def _dim(dim: onnx.TensorShapeProto.Dimension) -> Dim:
    if dim.HasField("dim_value"):
        return int(dim.dim_value) if dim.dim_value > 0 else None
    return dim.dim_param or None


def _dtype(element: int) -> str:
    if element == onnx.TensorProto.UNDEFINED:
        return ""
    try:
        return onnx.helper.tensor_dtype_to_np_dtype(element).name
    except (KeyError, ValueError):
        return str(onnx.TensorProto.DataType.Name(element)).lower()


def listed(tensors: Sequence[Tensor]) -> str:
    """`'a' [1,3,8,8] and 'b' [1]`, for messages."""
    words = [str(tensor) for tensor in tensors]
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"

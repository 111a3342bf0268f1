"""Write EfficientNet-Lite0 as ONNX from its published weights, without torch.

The network is small enough to be written down as a table; torch would cost a gigabyte of installation for one
export. Batch normalisation is folded into the convolutions (in float64, rounded once), as an exporter would do, and
padding is written out as numbers instead of `auto_pad`, because some runtimes accept only explicit padding.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from headrace.errors import AssetError
from headrace.lab.assets.torch_weights import read_weights

SIDE = 224
CLASSES = 1000
OPSET = 17
_IR_VERSION = 8
_BATCH_NORM_EPSILON = 1e-3

Array = NDArray[Any]


@dataclass(frozen=True)
class Stage:
    """A run of inverted-residual blocks; only the first of the run may change the stride."""

    repeats: int
    kernel: int
    stride: int
    expansion: int
    channels: int


STEM_CHANNELS = 32
STAGES = (
    Stage(1, 3, 1, 1, 16),
    Stage(2, 3, 2, 6, 24),
    Stage(2, 5, 2, 6, 40),
    Stage(3, 3, 2, 6, 80),
    Stage(3, 5, 1, 6, 112),
    Stage(4, 5, 2, 6, 192),
    Stage(1, 3, 1, 6, 320),
)


@dataclass(frozen=True)
class Signal:
    """A value flowing through the graph: its name, its channels, and the side of its square plane."""

    name: str
    channels: int
    side: int


@dataclass
class Graph:
    """Nodes and constants gathered while walking through the network once."""

    weights: Mapping[str, Array]
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    constants: list[onnx.TensorProto] = field(default_factory=list)

    def constant(self, name: str, value: Array) -> str:
        self.constants.append(numpy_helper.from_array(np.ascontiguousarray(value, dtype=np.float32), name))
        return name

    def node(self, kind: str, inputs: list[str], output: str, **attributes: Any) -> str:
        self.nodes.append(helper.make_node(kind, inputs, [output], name=output, **attributes))
        return output

    def weight(self, name: str) -> Array:
        try:
            return self.weights[name]
        except KeyError:
            raise AssetError(f"the weights file has no {name}; it is not EfficientNet-Lite0's") from None

    def convolution(
        self, signal: Signal, source: str, norm: str, stride: int = 1, depthwise: bool = False
    ) -> Signal:
        """Convolution with its batch normalisation folded in, 'same' padding, no activation."""
        kernel, bias = self._folded(source, norm)
        side, pads = same_padding(signal.side, kernel.shape[2], stride)
        name = source.replace("_blocks.", "block").replace("._", ".").lstrip("_")
        self.node(
            "Conv",
            [signal.name, self.constant(f"{name}.kernel", kernel), self.constant(f"{name}.bias", bias)],
            name,
            kernel_shape=list(kernel.shape[2:]),
            strides=[stride, stride],
            pads=pads,
            group=signal.channels if depthwise else 1,
        )
        return Signal(name, kernel.shape[0], side)

    def relu6(self, signal: Signal) -> Signal:
        name = self.node("Clip", [signal.name, "relu6.low", "relu6.high"], f"{signal.name}.relu6")
        return Signal(name, signal.channels, signal.side)

    def _folded(self, source: str, norm: str) -> tuple[Array, Array]:
        parts = ("weight", "bias", "running_mean", "running_var")
        gain, shift, mean, variance = (self.weight(f"{norm}.{part}").astype(np.float64) for part in parts)
        factor = gain / np.sqrt(variance + _BATCH_NORM_EPSILON)
        kernel = self.weight(f"{source}.weight") * factor[:, None, None, None]
        return kernel, shift - mean * factor


def same_padding(side: int, kernel: int, stride: int) -> tuple[int, list[int]]:
    """TensorFlow's 'same': the output is ceil(side/stride), and an odd pixel of padding goes to the end."""
    output = -(-side // stride)
    total = max((output - 1) * stride + kernel - side, 0)
    before, after = total // 2, total - total // 2
    return output, [before, before, after, after]


def convert(weights_file: Path, onnx_file: Path) -> None:
    """Read the weights, build the graph, have it checked, write it."""
    onnx.save(build(read_weights(weights_file)), str(onnx_file))


def build(weights: Mapping[str, Array]) -> onnx.ModelProto:
    """`input` [batch,3,224,224] float32 -> `logits` [batch,1000]."""
    graph = Graph(weights)
    graph.constant("relu6.low", np.array(0.0))
    graph.constant("relu6.high", np.array(6.0))
    stem = graph.convolution(Signal("input", 3, SIDE), "_conv_stem", "_bn0", stride=2)
    signal, index = graph.relu6(stem), 0
    for stage in STAGES:
        for repeat in range(stage.repeats):
            signal = _block(graph, signal, f"_blocks.{index}", stage, stage.stride if repeat == 0 else 1)
            index += 1
    _classifier(graph, graph.relu6(graph.convolution(signal, "_conv_head", "_bn1")))
    return _model(graph)


def _block(graph: Graph, entry: Signal, prefix: str, stage: Stage, stride: int) -> Signal:
    """Expand, filter each channel, project; add the entry back where shapes allow it."""
    signal = entry
    if stage.expansion != 1:
        signal = graph.relu6(graph.convolution(signal, f"{prefix}._expand_conv", f"{prefix}._bn0"))
    depthwise, norm = f"{prefix}._depthwise_conv", f"{prefix}._bn1"
    signal = graph.relu6(graph.convolution(signal, depthwise, norm, stride, depthwise=True))
    signal = graph.convolution(signal, f"{prefix}._project_conv", f"{prefix}._bn2")
    if signal.channels != stage.channels:
        raise AssetError(
            f"{prefix} ends in {signal.channels} channels; EfficientNet-Lite0 has {stage.channels}"
        )
    if stride == 1 and entry.channels == signal.channels:
        name = graph.node("Add", [signal.name, entry.name], f"{signal.name}.residual")
        signal = Signal(name, signal.channels, signal.side)
    return signal


def _classifier(graph: Graph, signal: Signal) -> None:
    pooled = graph.node("GlobalAveragePool", [signal.name], "pooled")
    flat = graph.node("Flatten", [pooled], "features")
    kernel = graph.constant("classifier.kernel", graph.weight("_fc.weight"))
    bias = graph.constant("classifier.bias", graph.weight("_fc.bias"))
    graph.node("Gemm", [flat, kernel, bias], "logits", transB=1)


def _model(graph: Graph) -> onnx.ModelProto:
    body = helper.make_graph(
        graph.nodes,
        "efficientnet-lite0",
        [helper.make_tensor_value_info("input", TensorProto.FLOAT, ["batch", 3, SIDE, SIDE])],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", CLASSES])],
        graph.constants,
    )
    opset = [helper.make_opsetid("", OPSET)]
    model = helper.make_model(body, opset_imports=opset, ir_version=_IR_VERSION, producer_name="headrace")
    onnx.checker.check_model(model, full_check=True)
    return model

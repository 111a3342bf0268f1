"""Requests of the Open Inference Protocol v2, which headrace, Triton, MLServer, KServe and OpenVINO Model Server speak: an encoded image as
a BYTES tensor, or pixels prepared by a recipe."""

from __future__ import annotations

import http.client
import re
from base64 import b64encode
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import numpy as np
import orjson

from headrace.core.image import reference
from headrace.core.image.header import read_header
from headrace.errors import UsageError
from headrace.load.shot import Shot
from headrace.load.wire import Endpoint, Item, Maker
from headrace.records.image import AnyArray, Encoded
from headrace.records.recipe import Recipe

_MODEL = re.compile(r"(?P<model>.*/v2/models/[^/]+(/versions/[^/]+)?)(/infer)?/?")
_ANSWER_MAX_BYTES = 4 * 2**20
_FLOATS = {"FP32": np.float32, "FP16": np.float16}


class Input(NamedTuple):
    """A tensor that a model takes, as its metadata says."""

    name: str
    datatype: str
    shape: tuple[int, ...]
    """-1: any size."""

    def __str__(self) -> str:
        return f"{self.name} {self.datatype}{list(self.shape)}"


def model_path(path: str) -> str:
    """`/v2/models/NAME` of a path that leads to it or to its `infer`. Raises UsageError."""
    found = _MODEL.fullmatch(path.partition("?")[0])
    if found is None:
        raise UsageError(f"the path {path!r} names no model; write it like /v2/models/NAME/infer")
    return found["model"]


def ask_inputs(url: str, timeout_s: float = 10.0) -> list[Input]:
    """The inputs of the model that `url` leads to, asked of the server. Raises UsageError when it does not tell."""
    parts, path = urlsplit(url), model_path(urlsplit(url).path)
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    connection = kind(parts.hostname or "", parts.port, timeout=timeout_s)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        text = answer.read(_ANSWER_MAX_BYTES)
    except (OSError, http.client.HTTPException, UnicodeError) as problem:
        raise UsageError(f"the server does not tell what the model takes: GET {path}: {problem}") from None
    finally:
        connection.close()
    if answer.status != 200:
        shown = text[:200].decode("utf-8", "replace")
        raise UsageError(
            f"the server does not tell what the model takes: GET {path}: {answer.status} {shown}"
        )
    return parse_inputs(text)


def parse_inputs(text: bytes) -> list[Input]:
    """The inputs in a model's metadata. Raises UsageError."""
    try:
        entries = orjson.loads(text)["inputs"]
        return [
            Input(str(entry["name"]), str(entry["datatype"]), tuple(int(size) for size in entry["shape"]))
            for entry in entries
        ]
    except (ValueError, TypeError, KeyError):
        raise UsageError(f"the server's metadata of the model cannot be read: {text[:200]!r}") from None


def as_oip(endpoint: Endpoint, inputs: Sequence[Input], recipe: Recipe | None, *, binary: bool) -> Maker:
    """Raw bytes of tensors after the JSON (`binary`), or all in JSON. Raises UsageError when the model takes nothing of the kind."""
    to = endpoint._replace(path=f"{model_path(endpoint.path)}/infer")
    tensor_of = _encoded(inputs) if recipe is None else _decoded(inputs, recipe)

    def make(item: Item) -> Shot:
        tensor = tensor_of(item)
        entry: dict[str, Any] = {"name": tensor.name, "datatype": tensor.datatype, "shape": tensor.shape}
        if not binary:
            entry |= tensor.as_json()
            body = orjson.dumps({"inputs": [entry]}, option=orjson.OPT_SERIALIZE_NUMPY)
            return to.shot(item.source, "POST", body, "application/json")
        raw = tensor.as_bytes()
        entry["parameters"] = {"binary_data_size": len(raw)}
        text = orjson.dumps({"inputs": [entry], "parameters": {"binary_data_output": True}})
        length = ("Inference-Header-Content-Length", str(len(text)))
        return to.shot(item.source, "POST", text + raw, "application/octet-stream", length)

    return Maker(make, "bytes")


class Tensor(NamedTuple):
    """A value for an input: one encoded image, or an array."""

    name: str
    datatype: str
    shape: list[int]
    value: bytes | AnyArray

    def as_bytes(self) -> bytes:
        """Little-endian numbers; an image with its length before it."""
        if isinstance(self.value, bytes):
            return len(self.value).to_bytes(4, "little") + self.value
        return self.value.astype(self.value.dtype.newbyteorder("<"), copy=False).tobytes()

    def as_json(self) -> dict[str, Any]:
        """`data`, flat; an image in base64, and saying so."""
        if isinstance(self.value, bytes):
            return {"data": [b64encode(self.value).decode("ascii")], "parameters": {"content_type": "base64"}}
        return {
            "data": self.value.reshape(-1).astype(np.float32 if self.value.dtype.kind == "f" else np.uint8)
        }


def _encoded(inputs: Sequence[Input]) -> Callable[[Item], Tensor]:
    takes = [one for one in inputs if one.datatype == "BYTES"]
    if len(takes) != 1:
        raise UsageError(
            f"the model takes {_listed(inputs)}: {'more than one' if takes else 'no'} BYTES tensor for an encoded image; "
            "give --recipe to send prepared pixels, or write the request with --template"
        )
    shape = [1 if size < 1 else size for size in takes[0].shape]
    if shape.count(1) != len(shape):
        raise UsageError(
            f"the model takes {takes[0]}, which is not one image; write the request with --template"
        )
    return lambda item: Tensor(takes[0].name, "BYTES", shape, item.data)


def _decoded(inputs: Sequence[Input], recipe: Recipe) -> Callable[[Item], Tensor]:
    wide = {
        "nchw": (recipe.channels, recipe.height, recipe.width),
        "nhwc": (recipe.height, recipe.width, recipe.channels),
    }
    other = "nhwc" if recipe.layout == "nchw" else "nchw"
    for layout in (recipe.layout, other):
        for one in inputs:
            if one.datatype in ("UINT8", *_FLOATS) and _fits(one.shape, wide[layout]):
                batch = [1] * (len(one.shape) - 3)
                return lambda item: Tensor(
                    one.name,
                    one.datatype,
                    [*batch, *wide[layout]],
                    _prepared(item, recipe, one.datatype, layout),
                )
    raise UsageError(
        f"the model takes {_listed(inputs)}: no UINT8, FP16 or FP32 tensor of the recipe's size {list(wide[recipe.layout])}"
    )


def _fits(shape: tuple[int, ...], wanted: tuple[int, ...]) -> bool:
    """Whether a tensor of one image of the wanted shape may have this one, with or without a batch in front."""
    if len(shape) == len(wanted) + 1 and shape[0] in (-1, 1):
        shape = shape[1:]
    return len(shape) == len(wanted) and all(
        size in (-1, want) for size, want in zip(shape, wanted, strict=True)
    )


def _prepared(item: Item, recipe: Recipe, datatype: str, layout: str) -> AnyArray:
    pixels: AnyArray = reference.prepare(Encoded(item.data, item.name), read_header(item.data), recipe)
    if datatype in _FLOATS:
        pixels = reference.normalise(pixels, recipe).astype(_FLOATS[datatype], copy=False)
    return np.ascontiguousarray(pixels.transpose(2, 0, 1) if layout == "nchw" else pixels)


def _listed(inputs: Sequence[Input]) -> str:
    return ", ".join(map(str, inputs[:4])) or "nothing"

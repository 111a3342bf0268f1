"""Open Inference Protocol v2 over HTTP: tensors in JSON and in the binary extension. Pure.

Every number a client claims is checked against what is there before anything of that size is made.
"""

from __future__ import annotations

import binascii
import math
from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import chain
from typing import Any, NamedTuple

import numpy as np

from headrace.errors import RequestError
from headrace.records.image import AnyArray, Uint8Array
from headrace.serve.http.json_text import parse_json

_MOST_DIMENSIONS = 8

_DATATYPES = {
    "bool": "BOOL",
    **{f"{sign}int{bits}": f"{sign.upper()}INT{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)},
    **{f"float{bits}": f"FP{bits}" for bits in (16, 32, 64)},
}


class Tensor(NamedTuple):
    """An input as claimed; `data` is a list from JSON or the raw bytes."""

    name: str
    datatype: str
    shape: tuple[int, ...]
    data: list[Any] | memoryview
    parameters: Mapping[str, Any]


class Wanted(NamedTuple):
    """An output the client asks for."""

    name: str
    binary: bool
    classes: int = 0
    """Above 0: the best so many classes instead of the numbers."""


class InferRequest(NamedTuple):
    """A request, taken apart."""

    id: str
    inputs: tuple[Tensor, ...]
    outputs: tuple[Wanted, ...]
    """Empty: all."""
    binary: bool
    """Whether outputs that say nothing else go out as raw bytes."""
    timeout_s: float | None


@lru_cache(maxsize=64)
def datatype(dtype: np.dtype[Any]) -> str:
    """The protocol's name of a dtype; texts are BYTES."""
    return _DATATYPES.get(dtype.name, "BYTES")


def parse_infer(body: bytes, header_length: bytes | None) -> InferRequest:
    """Takes the body apart. `header_length` is the field Inference-Header-Content-Length. Raises RequestError."""
    head, raw = _split(body, header_length)
    table = _table(parse_json(head), "the request")
    parameters = _table(table.get("parameters", {}), "parameters")
    binary = _flag(parameters, "binary_data_output")
    return InferRequest(
        _text(table.get("id", ""), "id"),
        _inputs(_list(table.get("inputs"), "inputs"), raw),
        tuple(_wanted(entry, binary) for entry in _list(table.get("outputs", []), "outputs")),
        binary,
        _timeout_s(parameters),
    )


def encoded_images(tensor: Tensor, most: int) -> list[bytes]:
    """The images of a BYTES tensor of shape [n] or [n, 1]. Raises RequestError."""
    count = _count(tensor, most)
    if tensor.datatype != "BYTES" or tensor.shape not in ((count,), (count, 1)):
        raise RequestError(
            f"input {tensor.name!r} has to be BYTES of shape [n] or [n, 1], not {_claim(tensor)}"
        )
    if isinstance(tensor.data, memoryview):
        return _length_prefixed(tensor, count)
    kind = tensor.parameters.get("content_type", "base64")
    if kind != "base64":
        raise RequestError(
            f"input {tensor.name!r}: content_type {str(kind)[:40]!r} is not read here, base64 is"
        )
    texts = _flat(tensor, len(tensor.shape))
    if len(texts) != count:
        raise RequestError(f"input {tensor.name!r} has {len(texts)} elements, its shape says {count}")
    return [_from_base64(text, f"{tensor.name}[{at}]") for at, text in enumerate(texts)]


def prepared_images(tensor: Tensor, shape: tuple[int, int, int], most: int) -> Uint8Array:
    """uint8[n, *shape] of a UINT8 tensor. Raises RequestError."""
    count = _count(tensor, most)
    if tensor.datatype != "UINT8" or tensor.shape != (count, *shape):
        raise RequestError(
            f"input {tensor.name!r} has to be UINT8 of shape {['n', *shape]}, not {_claim(tensor)}".replace(
                "'n'", "n"
            )
        )
    data: memoryview | bytes
    if isinstance(tensor.data, memoryview):
        data = tensor.data
    else:
        try:
            data = bytes(_flat(tensor, 4))
        except (TypeError, ValueError):
            raise RequestError(
                f"input {tensor.name!r} has data other than whole numbers from 0 to 255"
            ) from None
    if len(data) != math.prod(tensor.shape):
        raise RequestError(
            f"input {tensor.name!r} has {len(data)} values, its shape {list(tensor.shape)} says {math.prod(tensor.shape)}"
        )
    return np.frombuffer(data, np.uint8).reshape(tensor.shape)


def raw_bytes(array: AnyArray) -> bytes:
    """The binary form of an output: little-endian numbers, or texts with their lengths before them."""
    if datatype(array.dtype) != "BYTES":
        return array.astype(array.dtype.newbyteorder("<"), order="C", copy=False).tobytes()
    texts = [as_bytes(value) for value in array.ravel()]
    return b"".join(chain.from_iterable((len(text).to_bytes(4, "little"), text) for text in texts))


def as_bytes(value: Any) -> bytes:
    """One element of a BYTES output."""
    return value if isinstance(value, bytes) else str(value).encode("utf-8")


# --- taking claims apart -----------------------------------------------------------------------------------------------------


def _split(body: bytes, header_length: bytes | None) -> tuple[bytes, memoryview]:
    if header_length is None:
        return body, memoryview(b"")
    if not header_length.isdigit() or len(header_length) > 12 or int(header_length) > len(body):
        raise RequestError(
            f"Inference-Header-Content-Length {header_length[:20].decode('latin-1')!r} does not fit a body of {len(body)} bytes"
        )
    at = int(header_length)
    return body[:at], memoryview(body)[at:]


def _inputs(entries: Sequence[Any], raw: memoryview) -> tuple[Tensor, ...]:
    tensors, at = [], 0
    for entry in entries:
        table = _table(entry, "an input")
        name = _text(table.get("name"), "an input's name")
        parameters = _table(table.get("parameters", {}), f"parameters of input {name!r}")
        size = parameters.get("binary_data_size")
        data: list[Any] | memoryview
        if size is None:
            data = list(_list(table.get("data"), f"data of input {name!r}"))
        else:
            if not _whole(size) or not 0 <= size <= len(raw) - at:
                raise RequestError(
                    f"input {name!r}: binary_data_size {str(size)[:20]} does not fit the {len(raw) - at} bytes left"
                )
            data = raw[at : at + size]
            at += size
        tensors.append(
            Tensor(
                name,
                _text(table.get("datatype"), "datatype"),
                _shape(table.get("shape"), name),
                data,
                parameters,
            )
        )
    if at != len(raw):
        raise RequestError(f"{len(raw) - at} bytes follow the last input")
    return tuple(tensors)


def _shape(value: Any, name: str) -> tuple[int, ...]:
    sizes = _list(value, f"shape of input {name!r}")
    if not 1 <= len(sizes) <= _MOST_DIMENSIONS or not all(
        _whole(size) and 0 <= size < 2**31 for size in sizes
    ):
        raise RequestError(f"the shape of input {name!r} is no list of sizes")
    return tuple(sizes)


def _wanted(entry: Any, binary: bool) -> Wanted:
    table = _table(entry, "an output")
    name = _text(table.get("name"), "an output's name")
    parameters = _table(table.get("parameters", {}), f"parameters of output {name!r}")
    classes = parameters.get("classification", 0)
    if not _whole(classes) or not 0 <= classes < 2**31:
        raise RequestError(
            f"output {name!r}: classification has to be a number of classes, not {str(classes)[:40]!r}"
        )
    return Wanted(name, _flag(parameters, "binary_data", binary), classes)


def _timeout_s(parameters: Mapping[str, Any]) -> float | None:
    priority = parameters.get("priority", 0)
    if not _whole(priority) or priority < 0:
        raise RequestError(f"parameter priority has to be a whole number from 0, not {str(priority)[:40]!r}")
    timeout = parameters.get("timeout", 0)
    if not _whole(timeout) or timeout < 0:
        raise RequestError(f"parameter timeout has to be microseconds, not {str(timeout)[:40]!r}")
    return timeout / 1e6 if timeout else None


def _count(tensor: Tensor, most: int) -> int:
    count = tensor.shape[0]
    if not 1 <= count <= most:
        raise RequestError(f"input {tensor.name!r} has {count} images, 1 to {most} fit one request")
    return count


def _length_prefixed(tensor: Tensor, count: int) -> list[bytes]:
    data = tensor.data
    assert isinstance(data, memoryview)
    images: list[bytes] = []
    at = 0
    while at < len(data):
        size = int.from_bytes(data[at : at + 4], "little")
        if len(data) - at < 4 + size or len(images) == count:
            raise RequestError(
                f"input {tensor.name!r}: element {len(images)} does not fit its {len(data)} bytes or its shape"
            )
        images.append(bytes(data[at + 4 : at + 4 + size]))
        at += 4 + size
    if len(images) != count:
        raise RequestError(f"input {tensor.name!r} has {len(images)} elements, its shape says {count}")
    return images


def _flat(tensor: Tensor, depth: int) -> list[Any]:
    assert isinstance(tensor.data, list)
    values = tensor.data
    for _ in range(depth - 1):
        if not values or not isinstance(values[0], list):
            break
        if not all(isinstance(value, list) for value in values):
            raise RequestError(f"the data of input {tensor.name!r} is no regular nest of lists")
        values = list(chain.from_iterable(values))
    return values


def _from_base64(text: Any, where: str) -> bytes:
    try:
        return binascii.a2b_base64(_text(text, where))
    except ValueError as problem:
        raise RequestError(f"{where} is no valid base64: {problem}") from None


def _claim(tensor: Tensor) -> str:
    return f"{tensor.datatype[:20]} of shape {list(tensor.shape)}"


def _whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _table(value: Any, where: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise RequestError(f"{where} has to be a JSON object")
    return value


def _list(value: Any, where: str) -> Sequence[Any]:
    if not isinstance(value, list):
        raise RequestError(f"{where} has to be a list")
    return value


def _text(value: Any, where: str) -> str:
    if not isinstance(value, str):
        raise RequestError(f"{where} has to be a text")
    return value


def _flag(parameters: Mapping[str, Any], name: str, default: bool = False) -> bool:
    value = parameters.get(name, default)
    if not isinstance(value, bool):
        raise RequestError(f"parameter {name} has to be true or false")
    return value

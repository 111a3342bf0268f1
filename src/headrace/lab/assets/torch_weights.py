"""Read a torch weights file without torch, resolving nothing but tensors.

A `.pth` of the older kind is a row of pickles followed by raw numbers. A pickle may name any callable of any module,
so reading it with the plain unpickler hands the machine to whoever wrote the file. Here an allow-list of four names
exists; every other name is refused before anything is imported.
"""

from __future__ import annotations

import pickle
import struct
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from headrace.errors import AssetError

_MAGIC = 0x1950A86A20F9469CFC6C
_PROTOCOL = 1001
_MAX_ELEMENTS = 200_000_000

Array = NDArray[Any]


@dataclass(frozen=True)
class _StorageKind:
    dtype: np.dtype[Any]


@dataclass(frozen=True)
class _StorageRef:
    key: str
    dtype: np.dtype[Any]


@dataclass(frozen=True)
class _TensorRef:
    storage: _StorageRef
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]


def _tensor(
    storage: _StorageRef, offset: int, shape: Sequence[int], strides: Sequence[int], *_: object
) -> _TensorRef:
    return _TensorRef(storage, int(offset), tuple(shape), tuple(strides))


_ALLOWED: Mapping[tuple[str, str], Any] = {
    ("collections", "OrderedDict"): OrderedDict,
    ("torch._utils", "_rebuild_tensor_v2"): _tensor,
    ("torch", "FloatStorage"): _StorageKind(np.dtype("<f4")),
    ("torch", "LongStorage"): _StorageKind(np.dtype("<i8")),
}


class _TensorUnpickler(pickle.Unpickler):
    """Knows four names. A refused name raises before its module is looked at."""

    def find_class(self, module: str, name: str) -> Any:
        try:
            return _ALLOWED[module, name]
        except KeyError:
            raise AssetError(
                f"the weights file asks for {module}.{name}, which numbers never need; refused"
            ) from None

    def persistent_load(self, pid: Any) -> _StorageRef:
        marker, kind, key = pid[0], pid[1], pid[2]
        if marker != "storage" or not isinstance(kind, _StorageKind):
            raise AssetError(f"the weights file refers to {marker!r}, which is no storage; refused")
        return _StorageRef(str(key), kind.dtype)


_MALFORMED = (
    pickle.UnpicklingError,
    struct.error,
    EOFError,
    ValueError,
    TypeError,
    AttributeError,
    LookupError,
    OverflowError,
)


def read_weights(path: Path) -> dict[str, Array]:
    """All tensors by name, each a copy of its own. Raises AssetError for anything but a plain list of tensors."""
    try:
        with path.open("rb") as file:
            return _read(file)
    except _MALFORMED as error:
        raise AssetError(f"{path.name} is not a readable torch weights file: {error}") from error


def _read(file: BinaryIO) -> dict[str, Array]:
    magic, protocol, _system = (_TensorUnpickler(file).load() for _ in range(3))
    if (magic, protocol) != (_MAGIC, _PROTOCOL):
        raise ValueError("the file does not start like one")
    tensors = _TensorUnpickler(file).load()
    keys = _TensorUnpickler(file).load()
    if not isinstance(tensors, dict) or not all(isinstance(ref, _TensorRef) for ref in tensors.values()):
        raise ValueError("it holds other things than named tensors")
    dtypes = {ref.storage.key: ref.storage.dtype for ref in tensors.values()}
    storages = {str(key): _read_storage(file, dtypes[str(key)]) for key in keys}
    return {str(name): _view(ref, storages[ref.storage.key]) for name, ref in tensors.items()}


def _read_storage(file: BinaryIO, dtype: np.dtype[Any]) -> Array:
    (count,) = struct.unpack("<q", file.read(8))
    if not 0 <= count <= _MAX_ELEMENTS:
        raise ValueError(f"a storage of {count} numbers")
    return np.frombuffer(file.read(count * dtype.itemsize), dtype=dtype, count=count)


def _view(ref: _TensorRef, storage: Array) -> Array:
    """A copy in row-major order.

    Strides come from the file, so their reach is checked: numpy would follow them outside the numbers that were read.
    """
    axes = list(zip(ref.shape, ref.strides, strict=True))
    reach = ref.offset + sum((length - 1) * stride for length, stride in axes)
    sane = ref.offset >= 0 and all(length > 0 and stride >= 0 for length, stride in axes)
    if not sane or reach >= storage.size or prod(ref.shape) > storage.size:
        raise ValueError(f"a tensor of shape {ref.shape}, strides {ref.strides}, over {storage.size} numbers")
    strides = [stride * storage.itemsize for stride in ref.strides]
    return np.lib.stride_tricks.as_strided(storage[ref.offset :], ref.shape, strides).copy()

"""Page-locked host memory: what a GPU reads without a detour through a driver's buffer. Needs only the CUDA runtime."""

from __future__ import annotations

import ctypes
import ctypes.util
import weakref
from functools import cache
from typing import Any

import numpy as np

from headrace.records.image import AnyArray

_PORTABLE = 1  # usable from every CUDA context of the process
_NAMES = ("libcudart.so.13", "libcudart.so.12", "libcudart.so")


def pinned_zeros(shape: tuple[int, ...], dtype: np.dtype[Any], runtime: Any = None) -> AnyArray | None:
    """Zeros in page-locked memory, freed with the last view of the array; None where that cannot be had."""
    runtime = runtime or _cuda_runtime()
    count = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    if runtime is None or count == 0:
        return None
    address = ctypes.c_void_p()
    if (
        runtime.cudaHostAlloc(ctypes.byref(address), ctypes.c_size_t(count), ctypes.c_uint(_PORTABLE)) != 0
        or not address
    ):
        return None
    memory = (ctypes.c_uint8 * count).from_address(address.value or 0)
    weakref.finalize(memory, runtime.cudaFreeHost, ctypes.c_void_p(address.value)).atexit = False
    array: AnyArray = np.ctypeslib.as_array(memory).view(dtype).reshape(shape)
    array.fill(0)
    return array


@cache
def _cuda_runtime() -> Any:
    """The CUDA runtime that ONNX Runtime already loaded, or None."""
    found = ctypes.util.find_library("cudart")
    for name in (*_NAMES, *([found] if found else [])):
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    return None

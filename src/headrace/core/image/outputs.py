"""What a model's numbers mean: scores to labels, maps to grey pictures. Pure."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from headrace.records.image import AnyArray, FloatArray, Uint8Array
from headrace.records.recipe import Activation


@dataclass(frozen=True, slots=True)
class Scored:
    """One class and how much the model believes in it."""

    index: int
    score: float
    label: str
    """Empty when the model has no label for the index."""


def activate(scores: AnyArray, activation: Activation, *, axis: int = -1) -> FloatArray:
    """float32 of the shape of `scores`: as they are, or made probabilities; never overflows.

    `axis` is the classes' axis (softmax only). Scores that are not finite stay visible as NaN, or 0 and 1 for a sigmoid of -inf
    and inf.
    """
    values = np.asarray(scores, dtype=np.float32)
    if activation == "softmax":
        with np.errstate(invalid="ignore"):
            powers = np.exp(values - np.max(values, axis=axis, keepdims=True))
        return np.asarray(powers / np.sum(powers, axis=axis, keepdims=True), dtype=np.float32)
    if activation == "sigmoid":
        fall = np.exp(-np.abs(values))
        return np.asarray(np.where(values >= 0, 1.0, fall) / (1.0 + fall), dtype=np.float32)
    return values


def top_k(scores: AnyArray, k: int, labels: tuple[str, ...] = ()) -> list[Scored]:
    """The `k` highest of one image's scores (any shape, read in C order), highest first, the lower index first among equals.

    Scores that are not a number come last. Fewer than `k` when there are fewer. Raises ValueError for k below 1.
    """
    if k < 1:
        raise ValueError(f"k is at least 1, not {k}")
    flat = np.asarray(scores, dtype=np.float32).reshape(-1)
    order = np.argsort(-flat, kind="stable")  # NaN sorts last
    return [
        Scored(int(index), float(flat[index]), labels[index] if index < len(labels) else "")
        for index in order[:k]
    ]


def grey_picture(values: AnyArray) -> Uint8Array:
    """uint8[h, w] for looking at: one image's map ([h, w], [1, h, w] or [h, w, 1]), least value 0, greatest 255.

    A flat map is black; values that are not finite are black. Raises ValueError for any other shape.
    """
    plane = np.asarray(values, dtype=np.float32)
    if plane.ndim == 3:
        plane = plane[0] if plane.shape[0] == 1 else plane[..., 0] if plane.shape[2] == 1 else plane
    if plane.ndim != 2:
        raise ValueError(f"a map has one channel, and this has shape {list(np.shape(values))}")
    finite = np.isfinite(plane)
    low, high = np.min(plane, where=finite, initial=np.inf), np.max(plane, where=finite, initial=-np.inf)
    if not low < high:
        return np.zeros(plane.shape, dtype=np.uint8)
    shares = (np.where(finite, plane, low).astype(np.float64) - float(low)) / (float(high) - float(low))
    return np.rint(shares * 255.0).astype(np.uint8)

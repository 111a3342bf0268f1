"""What the server asks of a model, whatever runs it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from headrace.records.image import AnyArray


@dataclass(frozen=True, slots=True)
class DeviceBusy:
    """Totals since the runner was opened."""

    busy_s: float
    """Seconds with at least one run on the device: a union of intervals, never a sum over overlapping runs."""
    launches: int
    images: int


class Runner(Protocol):
    """A loaded model on its device.

    `run` and `busy` may be called from any number of threads at once; `close` only when no run is on.
    """

    @property
    def name(self) -> str:
        """The model's name: its file without the ending, or `emulated`."""

    @property
    def device(self) -> str:
        """`cpu`, `cuda:0` or `emulated`."""

    @property
    def emulated(self) -> bool:
        """True when no model runs: every report that uses the figures says so."""

    @property
    def input_dtype(self) -> np.dtype[Any]:
        """dtype of a batch: uint8 with the front in the graph, the model's own without."""

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """Shape of one image in a batch: (H, W, C) with the front, the recipe's layout without."""

    @property
    def max_batch(self) -> int | None:
        """Most images the model computes at once; None when free. `run` takes more and splits them."""

    @property
    def output_names(self) -> tuple[str, ...]:
        """Outputs that are computed, in order."""

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences for people: what was adjusted, what looks odd."""

    def allocate(self, shape: tuple[int, ...]) -> AnyArray:
        """A zeroed batch buffer of `input_dtype`; page-locked where that speeds up the transfer."""

    def run(self, batch: AnyArray) -> dict[str, AnyArray]:
        """Computes `batch` (`input_dtype`[n, *image_shape], C order, n >= 1) into {output name: array[n, ...]}.

        The arrays are the caller's to keep. Raises InferenceFailed when the model fails or an output's first
        dimension is not n.
        """

    def busy(self) -> DeviceBusy:
        """Totals up to now."""

    def close(self) -> None:
        """Frees the device. The runner must not be used afterwards."""

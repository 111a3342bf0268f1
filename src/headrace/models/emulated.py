"""An accelerator that only takes time: for measuring pipelines on machines without one. It measures no model."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np

from headrace.clock import monotonic_s
from headrace.core.queueing.service_curve import EmulatedSpec
from headrace.errors import InferenceFailed
from headrace.models.runner import DeviceBusy
from headrace.records.image import AnyArray, FloatArray
from headrace.records.recipe import Layout

SAMPLES_ACROSS = 12
"""The fingerprint reads about this many pixels across and down, so that it costs microseconds at any size."""


def fingerprint(batch: AnyArray, layout: Layout) -> FloatArray:
    """float32[n, C]: mean of each channel over a grid of pixels of `batch` ([n, H, W, C] or [n, C, H, W]).

    What the emulated device answers, so that a test can tell whose answer it got.
    """
    height, width = batch.shape[1:3] if layout == "nhwc" else batch.shape[2:4]
    down, across = (
        slice(None, None, max(1, height // SAMPLES_ACROSS)),
        slice(None, None, max(1, width // SAMPLES_ACROSS)),
    )
    if layout == "nhwc":
        means = batch[:, down, across, :].mean(axis=(1, 2), dtype=np.float32)
    else:
        means = batch[:, :, down, across].mean(axis=(2, 3), dtype=np.float32)
    return np.asarray(means, dtype=np.float32)


class Timeline:
    """Books copy and compute time on one device, in the order of the calls.

    Each of the two does one batch at a time. Bookings are absolute, so a thread that wakes late delays nobody else.
    """

    def __init__(self, spec: EmulatedSpec) -> None:
        self._spec = spec
        self._lock = threading.Lock()
        self._copy_free_s = 0.0
        self._compute_free_s = 0.0
        self._booked: deque[tuple[float, float]] = deque()
        self._done_s = 0.0
        self._launches = 0
        self._images = 0

    def book(self, now_s: float, images: int) -> float:
        """When the batch that is launched at `now_s` will be done."""
        with self._lock:
            copy_start_s = max(now_s + self._spec.launch_s, self._copy_free_s)
            self._copy_free_s = copy_start_s + self._spec.copy.seconds(images)
            start_s = max(self._copy_free_s, self._compute_free_s)
            self._compute_free_s = start_s + self._spec.compute.seconds(images)
            self._booked.append((start_s, self._compute_free_s))
            self._launches += 1
            self._images += images
            self._settle(now_s)
            return self._compute_free_s

    def read(self, now_s: float) -> DeviceBusy:
        """Computing time up to `now_s`; copying is not computing, as on a real device's utilisation counter."""
        with self._lock:
            self._settle(now_s)
            begun_s = sum(max(0.0, now_s - start_s) for start_s, _ in self._booked)
            return DeviceBusy(busy_s=self._done_s + begun_s, launches=self._launches, images=self._images)

    def _settle(self, now_s: float) -> None:
        while self._booked and self._booked[0][1] <= now_s:
            start_s, end_s = self._booked.popleft()
            self._done_s += end_s - start_s


class EmulatedRunner:
    """A `Runner` without a model: sleeps as long as `spec` says and answers {"fingerprint": float32[n, C]}."""

    name = "emulated"
    device = "emulated"
    emulated = True
    max_batch: int | None = None
    output_names = ("fingerprint",)
    notes = (
        "The accelerator is emulated: it takes time and computes nothing, so figures are about the pipeline only.",
    )

    def __init__(
        self,
        spec: EmulatedSpec,
        image_shape: tuple[int, int, int],
        *,
        layout: Layout = "nhwc",
        dtype: str = "uint8",
        clock_s: Callable[[], float] = monotonic_s,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.image_shape = image_shape
        self.input_dtype: np.dtype[Any] = np.dtype(dtype)
        self._layout: Layout = layout
        self._clock_s = clock_s
        self._sleep = sleep
        self._timeline = Timeline(spec)

    def allocate(self, shape: tuple[int, ...]) -> AnyArray:
        """Zeros of `input_dtype`."""
        return np.zeros(shape, self.input_dtype)

    def run(self, batch: AnyArray) -> dict[str, AnyArray]:
        """Takes the emulated time, without using the CPU. Raises InferenceFailed when the batch has the wrong shape."""
        called_s = self._clock_s()
        if batch.shape[1:] != self.image_shape or len(batch) < 1 or batch.dtype != self.input_dtype:
            raise InferenceFailed(
                f"the batch is {batch.dtype}{list(batch.shape)}; the emulated device takes "
                f"{self.input_dtype}{['n', *self.image_shape]}"
            )
        outputs: dict[str, AnyArray] = {"fingerprint": fingerprint(batch, self._layout)}
        self._sleep_until(self._timeline.book(called_s, len(batch)))
        return outputs

    def busy(self) -> DeviceBusy:
        """Totals up to now: time in which the emulated device computes."""
        return self._timeline.read(self._clock_s())

    def close(self) -> None:
        """Nothing to free."""

    def _sleep_until(self, deadline_s: float) -> None:
        while (left_s := deadline_s - self._clock_s()) > 0:
            self._sleep(left_s)

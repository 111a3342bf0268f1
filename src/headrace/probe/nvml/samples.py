"""Shares that the driver samples by itself: what is new since the last reading."""

from __future__ import annotations

from typing import Any

from headrace.probe.nvml.calls import Card

BUSY, MEMORY_BUSY = 1, 2
"""Kinds of samples (nvml.h, nvmlSamplingType_t)."""

_FIELD_OF_TYPE = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")
"""Where a sample's value is, by its type (nvml.h, nvmlValueType_t)."""


class SampledShare:
    """A share that the driver keeps samples of: their mean since the last reading, and what they look back on."""

    def __init__(self, card: Card, what: str, kind: int) -> None:
        self._card = card
        self._what = what
        self._kind = kind
        self._newest_us = 0

    def read(self) -> tuple[float, float] | None:
        """Share (0 to 1) and its window in seconds; None: nothing new, or no samples here.

        The first reading gives None: the samples before it are older than the capture.
        """
        found = self._card.ask(self._what, ("nvmlDeviceGetSamples", self._kind, self._newest_us))
        if found is None:
            return None
        samples = self._new(*found)
        if not samples:
            return None
        before_us, self._newest_us = self._newest_us, max(samples)
        if before_us == 0:
            return None
        return sum(samples.values()) / len(samples), (self._newest_us - before_us) / 1e6

    def _new(self, value_type: int, samples: list[Any]) -> dict[int, float]:
        """Time stamp in us -> share. Drivers also hand out old, unset and impossible entries."""
        if not 0 <= value_type < len(_FIELD_OF_TYPE):
            return {}
        field = _FIELD_OF_TYPE[value_type]
        values = {sample.timeStamp: getattr(sample.sampleValue, field) for sample in samples}
        return {
            stamp: value / 100
            for stamp, value in values.items()
            if stamp > self._newest_us and 0 <= value <= 100
        }

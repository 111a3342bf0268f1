"""How much of the chip worked, by the counters NVML calls GPM (Hopper and newer)."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from headrace.probe.nvml.calls import Card

_VERSION = 1
_WHAT = "SM activity (GPM)"

# Numbers of the metrics (nvml.h, nvmlGpmMetricId_t): the first four in percent, the last two in MiB/s.
_METRICS = (2, 3, 5, 10, 20, 21)


class GpmReading(NamedTuple):
    """Shares from 0 to 1 and traffic, over the time since the last reading; None where the GPU does not count it."""

    sm_active_ratio: float | None
    sm_occupancy_ratio: float | None
    tensor_ratio: float | None
    dram_ratio: float | None
    pcie_sent_bytes_per_s: int | None
    pcie_received_bytes_per_s: int | None


def gpm_offered(card: Card) -> bool | None:
    """Whether this GPU counts; None where the driver cannot say."""
    support = card.ask(_WHAT, ("nvmlGpmQueryDeviceSupport",))
    return None if support is None else bool(support.isSupportedDevice)


class Gpm:
    """Two samples in turn; what happened between them is the reading."""

    def __init__(self, card: Card) -> None:
        self._card = card
        self._before: Any = None
        self._spare: Any = None
        offered = gpm_offered(card)
        if offered is False:
            card.tell(_WHAT, "counted by Hopper and newer GPUs only")
        self.offered = bool(offered)
        if not self.offered:
            return
        self._request = card.nvml.c_nvmlGpmMetricsGet_t()
        self._request.version = _VERSION
        self._request.numMetrics = len(_METRICS)
        for place, number in enumerate(_METRICS):
            self._request.metrics[place].metricId = number

    def read(self) -> GpmReading | None:
        """What happened since the last reading; None at the first, and where the driver refuses."""
        if not self.offered:
            return None
        sample = self._spare or self._card.call(_WHAT, "nvmlGpmSampleAlloc")
        self._spare = None
        if sample is None:
            return None
        if self._card.ask(_WHAT, ("nvmlGpmSampleGet", sample)) is None:
            self._spare = sample
            return None
        before, self._before = self._before, sample
        self._spare = before
        return None if before is None else self._between(before, sample)

    def close(self) -> None:
        for sample in (self._before, self._spare):
            if sample is not None:
                self._card.call(_WHAT, "nvmlGpmSampleFree", sample)
        self._before = self._spare = None

    def _between(self, before: Any, after: Any) -> GpmReading | None:
        self._request.sample1, self._request.sample2 = before, after
        if self._card.call(_WHAT, "nvmlGpmMetricsGet", self._request) is None:
            return None
        metrics = self._request.metrics
        return GpmReading(
            sm_active_ratio=_share(metrics[0]),
            sm_occupancy_ratio=_share(metrics[1]),
            tensor_ratio=_share(metrics[2]),
            dram_ratio=_share(metrics[3]),
            pcie_sent_bytes_per_s=_bytes_per_s(metrics[4]),
            pcie_received_bytes_per_s=_bytes_per_s(metrics[5]),
        )


def _share(metric: Any) -> float | None:
    percent = _value(metric)
    return None if percent is None or percent > 101 else min(1.0, percent / 100)


def _bytes_per_s(metric: Any) -> int | None:
    mebibytes = _value(metric)
    return None if mebibytes is None else round(mebibytes * 2**20)


def _value(metric: Any) -> float | None:
    value = float(metric.value)
    return value if metric.nvmlReturn == 0 and math.isfinite(value) and value >= 0 else None

"""PCIe traffic of GPUs without GPM. Each reading takes the driver some 20 ms, so a thread of its own waits for it."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import NamedTuple

from headrace.probe.nvml.calls import Card

PERIOD_S = 1.0
_SENT, _RECEIVED = 0, 1
"""Counters (nvml.h, nvmlPcieUtilCounter_t)."""


class Traffic(NamedTuple):
    """Bytes a second over some 20 ms, seen from the GPU; None where it does not tell."""

    sent: int | None
    received: int | None


class PcieMeter:
    """Reads all `cards` once a second until it is closed."""

    def __init__(self, cards: Sequence[Card]) -> None:
        self._cards = cards
        self._newest: dict[int, Traffic] = {}
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="headrace-pcie", daemon=True)
        if cards:
            self._thread.start()

    def take(self, number: int) -> Traffic | None:
        """What was read since it was last taken; None: nothing."""
        return self._newest.pop(number, None)

    def close(self) -> None:
        self._closed.set()
        if self._thread.is_alive():
            self._thread.join(timeout=PERIOD_S)

    def _run(self) -> None:
        while not self._closed.wait(PERIOD_S):
            for card in self._cards:
                traffic = Traffic(_throughput(card, _SENT), _throughput(card, _RECEIVED))
                if traffic != (None, None):
                    self._newest[card.number] = traffic


def _throughput(card: Card, counter: int) -> int | None:
    kilobytes = card.ask("PCIe traffic", ("nvmlDeviceGetPcieThroughput", counter))
    return None if kilobytes is None else int(kilobytes) * 1000

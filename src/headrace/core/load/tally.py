"""What became of requests, counted as they end: latencies, failures, goodput, time by stage."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from headrace.core.stats.batched import BatchedLatencies
from headrace.core.stats.latency import MOST_US, Latencies
from headrace.records.rows.load import LatencyRow, OutcomeRow, SpanRow

OK = "ok"
MOST_STAGES = 100
"""A service may name as many as it likes; we keep the first."""


class Tally:
    """Of one phase. Latencies count from the intended time. Not synchronised."""

    __slots__ = ("_deadline_us", "_wrong", "answers", "every", "failed", "good")

    def __init__(self, deadline_s: float | None = None) -> None:
        self._deadline_us = MOST_US if deadline_s is None else round(deadline_s * 1e6)
        self.answers = BatchedLatencies()
        """Of right answers."""
        self.every = BatchedLatencies()
        """Of all requests; one without a right answer takes for ever."""
        self.failed: Counter[str] = Counter()
        """By kind of failure."""
        self.good = 0
        """Right answers within the deadline."""
        self._wrong: dict[str, Latencies] = {}

    def add(self, outcomes: Sequence[OutcomeRow]) -> None:
        """Of this phase, about in the order of intended times."""
        spans_s = [(row.done_s or np.nan) - row.intended_s for row in outcomes]
        right = np.array([row.error is None for row in outcomes], bool)
        latencies_us = np.rint(np.nan_to_num(np.array(spans_s), nan=MOST_US / 1e6) * 1e6).astype(np.int64)
        self.answers.add_many(latencies_us[right])
        self.every.add_many(np.where(right, latencies_us, MOST_US))
        self.good += int((latencies_us[right] <= self._deadline_us).sum())
        kinds = Counter(row.error for row in outcomes if row.error is not None)
        self.failed += kinds
        for kind in kinds:
            answered = [row.error == kind and row.done_s is not None for row in outcomes]
            self._wrong.setdefault(kind, Latencies()).add_many(latencies_us[np.array(answered, bool)])

    def rows(self, phase: str) -> Iterator[LatencyRow]:
        """Its histograms, for a capture; of failures those with an answer."""
        yield from self.answers.total().rows(phase, OK)
        for kind, latencies in self._wrong.items():
            yield from latencies.rows(phase, kind)


class Bill(NamedTuple):
    """What requests spent in one stage, in mean microseconds over those that were in it."""

    stage: str
    requests: int
    wait_us: float
    service_us: float


class StageBills:
    """What right answers spent in each stage, as the server told. Not synchronised."""

    __slots__ = ("_latency_s", "_requests", "_sums")

    def __init__(self) -> None:
        self._sums: dict[str, tuple[int, int, int]] = {}
        self._requests = 0
        self._latency_s = 0.0

    def add(self, spans: Iterable[SpanRow], latencies_s: Mapping[int, float]) -> None:
        """Spans of requests that are not in `latencies_s` (seconds by number) do not count."""
        seen: set[int] = set()
        for number, stage, wait_us, service_us in spans:
            if number in latencies_s and (stage in self._sums or len(self._sums) < MOST_STAGES):
                seen.add(number)
                requests, waits_us, services_us = self._sums.get(stage, (0, 0, 0))
                self._sums[stage] = (requests + 1, waits_us + wait_us, services_us + service_us)
        self._requests += len(seen)
        self._latency_s += sum(latencies_s[number] for number in seen)

    def bills(self) -> list[Bill]:
        """In the order in which stages were told first."""
        return [
            Bill(stage, requests, wait_us / requests, service_us / requests)
            for stage, (requests, wait_us, service_us) in self._sums.items()
        ]

    def elsewhere_us(self) -> float | None:
        """Mean latency of these requests that no stage accounts for: network, connecting, waiting to be read. None without spans."""
        if not self._requests:
            return None
        told_us = sum(wait_us + service_us for _, wait_us, service_us in self._sums.values())
        return (self._latency_s * 1e6 - told_us) / self._requests

"""What HTTP adds to the figures. Written and read on the event loop only.

Always: seen = answered + gone + open.
"""

from __future__ import annotations

from collections import Counter

from headrace.core.stats.histogram import DURATION_BOUNDS_S, Histogram
from headrace.records.timeline import STAGES, Span


class Counters:
    """One set for a server."""

    def __init__(self) -> None:
        self.seen = 0
        """Requests whose head was complete."""
        self.gone = 0
        """Requests whose client went away before an answer; nothing was sent."""
        self.answers: Counter[tuple[str, int]] = Counter()
        """By family of paths and HTTP status."""
        self.errors: Counter[str] = Counter()
        """By error code: requests, and images of a request with several."""
        self.latency_s = Histogram(DURATION_BOUNDS_S)
        """Predictions: from the head of the request to the answer's bytes."""
        self.wait_s = {stage: Histogram(DURATION_BOUNDS_S) for stage in STAGES}
        """Predictions: waiting for each stage they went through."""
        self.service_s = {stage: Histogram(DURATION_BOUNDS_S) for stage in STAGES}
        """Predictions: being worked on by each stage they went through."""

    @property
    def answered(self) -> int:
        return self.answers.total()

    @property
    def open(self) -> int:
        """Requests being read, worked on or answered."""
        return self.seen - self.answered - self.gone

    def timed(self, spans: tuple[Span, ...]) -> None:
        """A prediction's way through the stages."""
        latency_s = 0.0
        for stage, wait_s, service_s in spans:
            latency_s += wait_s + service_s
            if wait_s:
                self.wait_s[stage].add(wait_s)
            if service_s:
                self.service_s[stage].add(service_s)
        self.latency_s.add(latency_s)

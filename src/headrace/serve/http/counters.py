"""What HTTP adds to the figures. Written and read on the event loop only.

Always: seen = answered + gone + open.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from headrace.core.stats.histogram import DURATION_BOUNDS_S, Histogram
from headrace.records.timeline import Span


@dataclass(slots=True)
class Totals:
    """Sums over all predictions since the start, for the statistics of the /v2 API."""

    images: int = 0
    succeeded: int = 0
    """Requests."""
    failed: int = 0
    success_s: float = 0.0
    fail_s: float = 0.0
    queue_s: float = 0.0
    input_s: float = 0.0
    infer_s: float = 0.0
    output_s: float = 0.0
    last_wall_s: float = 0.0
    """When the last one was answered, since the epoch."""

    def as_triton(self) -> dict[str, dict[str, int]]:
        """`inference_stats`: how often, and nanoseconds in all. The times inside are those of each request's last image."""
        return {
            "success": _duration(self.succeeded, self.success_s),
            "fail": _duration(self.failed, self.fail_s),
            "queue": _duration(self.succeeded, self.queue_s),
            "compute_input": _duration(self.succeeded, self.input_s),
            "compute_infer": _duration(self.succeeded, self.infer_s),
            "compute_output": _duration(self.succeeded, self.output_s),
            "cache_hit": _duration(0, 0.0),
            "cache_miss": _duration(0, 0.0),
        }


def _duration(count: int, total_s: float) -> dict[str, int]:
    return {"count": count, "ns": int(total_s * 1e9)}


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
        self.totals = Totals()
        self.latency_s = Histogram(DURATION_BOUNDS_S)
        """Predictions: from the head of the request to the answer's bytes."""
        self.fetch_s = Histogram(DURATION_BOUNDS_S)
        """Predictions: until the body was there and taken apart. The engine's books have the stages after it."""
        self.reply_s = Histogram(DURATION_BOUNDS_S)
        """Predictions: from the end of the model's run to the answer's bytes, waiting for the event loop included."""

    @property
    def answered(self) -> int:
        return self.answers.total()

    @property
    def open(self) -> int:
        """Requests being read, worked on or answered."""
        return self.seen - self.answered - self.gone

    def predicted(self, spans: tuple[Span, ...], images: int, wall_s: float) -> None:
        """A request with at least one prediction: its last image's way through the stages."""
        fetch, decode, resize, batch, infer, reply = spans
        waits_s = decode.wait_s + resize.wait_s + batch.wait_s + infer.wait_s + reply.wait_s
        inputs_s = decode.service_s + resize.service_s
        latency_s = fetch.service_s + waits_s + inputs_s + infer.service_s + reply.service_s
        self.latency_s.add(latency_s)
        self.fetch_s.add(fetch.service_s)
        self.reply_s.add(reply.wait_s + reply.service_s)
        totals = self.totals
        totals.images += images
        totals.succeeded += 1
        totals.success_s += latency_s
        totals.queue_s += waits_s
        totals.input_s += inputs_s
        totals.infer_s += infer.service_s
        totals.output_s += reply.service_s
        totals.last_wall_s = wall_s

    def failed(self, latency_s: float) -> None:
        """A request for a prediction that was answered with an error."""
        self.totals.failed += 1
        self.totals.fail_s += latency_s

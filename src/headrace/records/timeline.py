"""Where the time of one request went. Marks follow each other, so that waits and services add up to the latency by construction."""

from __future__ import annotations

from typing import NamedTuple

STAGES = ("fetch", "decode", "resize", "batch", "infer", "reply")


class Span(NamedTuple):
    """What a request spent in one stage: queued, and worked on."""

    stage: str
    wait_s: float
    service_s: float


class Timeline:
    """Marks in seconds on one monotonic clock, in order. A stage that a request skips leaves its marks unset and takes no time."""

    __slots__ = (
        "arrived_s",
        "decode_end_s",
        "decode_start_s",
        "fetched_s",
        "infer_end_s",
        "infer_start_s",
        "launched_s",
        "replied_s",
        "reply_start_s",
        "resize_end_s",
        "resize_start_s",
    )

    def __init__(self, arrived_s: float) -> None:
        self.arrived_s = arrived_s
        self.fetched_s = 0.0
        self.decode_start_s = 0.0
        self.decode_end_s = 0.0
        self.resize_start_s = 0.0
        self.resize_end_s = 0.0
        self.launched_s = 0.0
        self.infer_start_s = 0.0
        self.infer_end_s = 0.0
        self.reply_start_s = 0.0
        self.replied_s = 0.0

    def spans(self) -> tuple[Span, ...]:
        """One span a stage, in order; their sum is `latency_s`. Unset marks fall back on the mark before them."""
        fetched = max(self.arrived_s, self.fetched_s)
        decode_start = max(fetched, self.decode_start_s)
        decode_end = max(decode_start, self.decode_end_s)
        resize_start = max(decode_end, self.resize_start_s)
        resize_end = max(resize_start, self.resize_end_s)
        launched = max(resize_end, self.launched_s)
        infer_start = max(launched, self.infer_start_s)
        infer_end = max(infer_start, self.infer_end_s)
        reply_start = max(infer_end, self.reply_start_s)
        return (
            Span("fetch", 0.0, fetched - self.arrived_s),
            Span("decode", decode_start - fetched, decode_end - decode_start),
            Span("resize", resize_start - decode_end, resize_end - resize_start),
            Span("batch", launched - resize_end, 0.0),
            Span("infer", infer_start - launched, infer_end - infer_start),
            Span("reply", reply_start - infer_end, max(reply_start, self.replied_s) - reply_start),
        )

    @property
    def latency_s(self) -> float:
        return sum(span.wait_s + span.service_s for span in self.spans())


def server_timing(spans: tuple[Span, ...]) -> str:
    """The `Server-Timing` header (W3C): milliseconds by stage, waiting apart from working."""
    parts = []
    for stage, wait_s, service_s in spans:
        if wait_s:
            parts.append(f"{stage}-wait;dur={wait_s * 1e3:.3f}")
        if service_s:
            parts.append(f"{stage};dur={service_s * 1e3:.3f}")
    return ", ".join(parts)

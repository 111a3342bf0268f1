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
        at_s = self.arrived_s
        filled = []
        for mark_s in (
            self.fetched_s,
            self.decode_start_s,
            self.decode_end_s,
            self.resize_start_s,
            self.resize_end_s,
            self.launched_s,
            self.infer_start_s,
            self.infer_end_s,
            self.reply_start_s,
            self.replied_s,
        ):
            step_s = max(0.0, mark_s - at_s)
            at_s += step_s
            filled.append(step_s)
        fetch, to_decode, decode, to_resize, resize, to_launch, to_infer, infer, to_reply, reply = filled
        return (
            Span("fetch", 0.0, fetch),
            Span("decode", to_decode, decode),
            Span("resize", to_resize, resize),
            Span("batch", to_launch, 0.0),
            Span("infer", to_infer, infer),
            Span("reply", to_reply, reply),
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

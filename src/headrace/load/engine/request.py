"""One request on its way from intention to outcome."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NamedTuple

from headrace.load.shot import Headers, Shot

if TYPE_CHECKING:
    from headrace.load.engine.client import Connection


class Answer(NamedTuple):
    status: int
    headers: Headers
    body: bytes
    """Empty without a judge."""


class Request:
    """Times in seconds on the monotonic clock; None: it has not happened."""

    __slots__ = (
        "again",
        "answer",
        "carrier",
        "done_s",
        "intended_s",
        "number",
        "phase",
        "received_bytes",
        "sent_s",
        "shot",
        "started_s",
        "waited",
    )

    def __init__(self, number: int, phase: int, shot: Shot, intended_s: float) -> None:
        self.number = number
        self.phase = phase
        """Which of the run's phases."""
        self.shot = shot
        self.intended_s = intended_s
        self.started_s: float | None = None
        """Taken in hand: given to a connection, open or to be opened."""
        self.sent_s: float | None = None
        """Its first byte left."""
        self.done_s: float | None = None
        """The last byte of its answer came."""
        self.answer: Answer | None = None
        self.received_bytes = 0
        self.carrier: Connection | asyncio.Task[None] | None = None
        """What it is on: a connection, or the task that opens one."""
        self.waited = False
        """All connections were taken."""
        self.again = False
        """Sent a second time: the service closed the kept connection of the first without an answer."""

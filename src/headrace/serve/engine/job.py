"""One request's way through the engine."""

from __future__ import annotations

from collections.abc import Callable

from headrace.core.image.decode_plan import DecodePlan
from headrace.core.policy.batching import Place
from headrace.errors import HeadraceError
from headrace.records.image import Encoded, Header, Pixels, Prediction, Uint8Array
from headrace.records.timeline import Timeline


class Job:
    """Filled in by one stage after the other; `done(job)` is called exactly once, on an engine thread, with `prediction` or `error` set.

    Either `encoded` or `prepared` (uint8[H, W, C] at the recipe's size and colour) is given.
    """

    __slots__ = (
        "abandoned",
        "deadline_s",
        "done",
        "encoded",
        "error",
        "header",
        "pixels",
        "place",
        "plan",
        "prediction",
        "prepared",
        "timeline",
    )

    def __init__(
        self,
        *,
        timeline: Timeline,
        deadline_s: float,
        done: Callable[[Job], None],
        encoded: Encoded | None = None,
        prepared: Uint8Array | None = None,
    ) -> None:
        self.timeline = timeline
        self.deadline_s = deadline_s
        self.done = done
        self.encoded = encoded
        self.prepared = prepared
        self.header: Header | None = None
        self.plan: DecodePlan | None = None
        self.pixels: Pixels | None = None
        self.place: Place | None = None
        self.prediction: Prediction | None = None
        self.error: HeadraceError | None = None
        self.abandoned = False

    def abandon(self) -> None:
        """Nobody waits any more: stages drop the job as soon as they see it. `done` is still called."""
        self.abandoned = True

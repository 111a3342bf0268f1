"""A few clients in a closed loop, to show a server at work."""

from __future__ import annotations

import http.client
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import cycle
from typing import Any

from headrace.load.run import Phase, closed_loop
from headrace.load.run import drive as run
from headrace.load.shot import Target
from headrace.load.wire import Endpoint, Item, as_body
from headrace.records.rows.load import OutcomeRow, SpanRow


@dataclass
class Traffic:
    """What the clients saw."""

    seconds: float = 0.0
    outcomes: list[OutcomeRow] = field(default_factory=list)
    spans: list[SpanRow] = field(default_factory=list)

    @property
    def latencies_s(self) -> list[float]:
        """Of right answers."""
        return [
            row.done_s - row.intended_s
            for row in self.outcomes
            if row.error is None and row.done_s is not None
        ]

    @property
    def failures(self) -> list[str]:
        """Kinds, one a request."""
        return [row.error for row in self.outcomes if row.error is not None]

    @property
    def rate(self) -> float:
        """Right answers a second."""
        return len(self.latencies_s) / self.seconds if self.seconds else 0.0

    def stage_ms(self, stage: str) -> tuple[float, float]:
        """What a request waited and was worked on in a stage, on the mean."""
        rows, requests = [row for row in self.spans if row.stage == stage], max(1, len(self.latencies_s))
        return sum(row.wait_us for row in rows) * 1e-3 / requests, sum(
            row.service_us for row in rows
        ) * 1e-3 / requests

    def __add__(self, other: Traffic) -> Traffic:
        return Traffic(self.seconds + other.seconds, self.outcomes + other.outcomes, self.spans + other.spans)


def predict(port: int, data: bytes) -> dict[str, Any]:
    """One image, the parsed answer."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request("POST", "/predict", data, {"Content-Type": "application/octet-stream"})
        answer: dict[str, Any] = json.loads(connection.getresponse().read())
        return answer
    finally:
        connection.close()


def drive(port: int, images: Sequence[bytes], clients: int, seconds: float) -> Traffic:
    """`clients` connections send `images` in turn until the time is up; answers under way are waited for."""
    maker = as_body(Endpoint.of(f"http://127.0.0.1:{port}/predict"))
    shots = [maker.make(Item(number, f"{number}.jpg", image)) for number, image in enumerate(images)]
    traffic = Traffic()
    figures = run(
        closed_loop(
            Target("127.0.0.1", port),
            clients,
            cycle(shots),
            phases=[Phase("run", seconds)],
            sink=traffic.outcomes.extend,
            spans=traffic.spans.extend,
        )
    )
    ends = [row.done_s for row in traffic.outcomes if row.done_s is not None]
    traffic.seconds = max(ends, default=seconds) - figures.phases[0].began_s
    return traffic

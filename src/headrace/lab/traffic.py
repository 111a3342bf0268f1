"""A few clients in a closed loop: enough to show a server at work. Measuring is done elsewhere."""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from headrace.clock import monotonic_s


@dataclass
class Traffic:
    """What the clients saw."""

    seconds: float = 0.0
    latencies_s: list[float] = field(default_factory=list)
    stage_ms: dict[str, float] = field(default_factory=dict)
    """Summed over answers, by name in `Server-Timing`."""
    failures: list[str] = field(default_factory=list)

    @property
    def rate(self) -> float:
        return len(self.latencies_s) / self.seconds if self.seconds else 0.0

    @property
    def mean_stage_ms(self) -> dict[str, float]:
        count = max(1, len(self.latencies_s))
        return {name: total / count for name, total in self.stage_ms.items()}

    def __add__(self, other: Traffic) -> Traffic:
        names = [*self.stage_ms, *(name for name in other.stage_ms if name not in self.stage_ms)]
        return Traffic(
            self.seconds + other.seconds,
            self.latencies_s + other.latencies_s,
            {name: self.stage_ms.get(name, 0.0) + other.stage_ms.get(name, 0.0) for name in names},
            self.failures + other.failures,
        )


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
    traffic, lock, turn = Traffic(), threading.Lock(), iter(range(1 << 30))
    start_s = monotonic_s()

    def client() -> None:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        while monotonic_s() - start_s < seconds:
            sent_s = monotonic_s()
            connection.request(
                "POST", "/predict", images[next(turn) % len(images)], {"Content-Type": "image/jpeg"}
            )
            answer = connection.getresponse()
            body = answer.read()
            with lock:
                _note(traffic, answer, body, monotonic_s() - sent_s)
        connection.close()

    threads = [threading.Thread(target=client) for _ in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    traffic.seconds = monotonic_s() - start_s
    return traffic


def _note(traffic: Traffic, answer: http.client.HTTPResponse, body: bytes, latency_s: float) -> None:
    if answer.status != 200:
        traffic.failures.append(f"{answer.status} {body[:200].decode(errors='replace')}")
        return
    traffic.latencies_s.append(latency_s)
    for entry in (answer.getheader("Server-Timing") or "").split(", "):
        name, _, duration = entry.partition(";dur=")
        if duration:
            traffic.stage_ms[name] = traffic.stage_ms.get(name, 0.0) + float(duration)

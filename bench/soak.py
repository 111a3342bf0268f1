"""Does a server stay as large as it is? `python -m bench.soak [--requests 20000]`.

One server process on an emulated accelerator is sent a mixture of photographs, small images and hostile clients, at 16 connections.
After each tenth of the requests all connections are closed and the process is looked at. Exits 1 when its memory, its
threads or its open files grew, or when an answer had a status it should not have.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import uvloop

from bench.inputs import workload
from bench.process import Worker, cost, files, peak_bytes, resident_bytes, threads
from headrace.units import format_bytes

CONNECTIONS = 16
LEGS = 10
SAMPLES_A_LEG = 10
SETTLED_SHARE = 0.3
"""The first requests fill pools, arenas and caches: the fit leaves them out."""
GROWTH_LIMIT = 0.02
SETTLE_S = 10.0
DEVICE = "emulated:0.5ms+0ms"
FILL = 2 * CONNECTIONS
"""The first requests are the most expensive ones on every connection at once, so that the ceiling is reached before the fit begins."""
SIDE = 384

SHARES: Mapping[str, float] = {
    "small": 0.90,
    "large": 0.08,
    "png": 0.01,
    "junk": 0.004,
    "truncated": 0.003,
    "cut": 0.003,
}
ALLOWED: Mapping[str, frozenset[int]] = {
    "small": frozenset({200}),
    "large": frozenset({200}),
    "png": frozenset({200}),
    "junk": frozenset({415}),
    "truncated": frozenset({200, 422}),
    "cut": frozenset({0}),
}
"""Statuses by kind; 0 is a connection that the client cut. A JPEG that lost its end may still hold all that a reduced decode reads."""

Bodies = Mapping[str, Sequence[bytes]]


@dataclass(frozen=True, slots=True)
class Look:
    """The server process between two legs, nobody connected."""

    sent: int
    resident_bytes: int
    peak_bytes: int
    threads: int
    files: int
    faults_an_image: float
    """Minor faults since the look before, by images sent since."""
    seconds: float


@dataclass(frozen=True, slots=True)
class Soak:
    """What was seen. The first look is after the first leg."""

    looks: tuple[Look, ...]
    resident: tuple[tuple[int, int], ...]
    """(requests sent, resident bytes), several a leg, under load."""
    wrong: Mapping[tuple[str, int], int]
    """Answers whose status is not allowed, by kind and status."""

    @property
    def growth(self) -> float:
        """Of the resident memory over the settled part, by a linear fit, as a share of its mean."""
        first = self.resident[-1][0] * SETTLED_SHARE
        return growth([point for point in self.resident if point[0] >= first])

    @property
    def complaints(self) -> tuple[str, ...]:
        """Why it is not flat; empty when it is."""
        first, last = self.looks[0], self.looks[-1]
        found = []
        if self.growth >= GROWTH_LIMIT:
            found.append(
                f"resident memory grew by {self.growth:.1%} over the last {1 - SETTLED_SHARE:.0%} of the requests"
            )
        if last.threads > first.threads:
            found.append(f"threads grew from {first.threads} to {last.threads}")
        if last.files > first.files:
            found.append(f"open files grew from {first.files} to {last.files}")
        found.extend(
            f"{count} requests of kind {kind!r} were answered {status}"
            for (kind, status), count in self.wrong.items()
        )
        return tuple(found)


def growth(points: Sequence[tuple[int, int]]) -> float:
    """Rise of the line fitted through `points` over their span, as a share of their mean height."""
    mean_x = sum(x for x, _ in points) / len(points)
    mean_y = sum(y for _, y in points) / len(points)
    spread = sum((x - mean_x) ** 2 for x, _ in points)
    slope = sum((x - mean_x) * (y - mean_y) for x, y in points) / spread if spread else 0.0
    return slope * (points[-1][0] - points[0][0]) / mean_y


def photographs() -> Bodies:
    """The bench's own files, and what hostile clients make of them."""
    large = workload("baseline")
    return {
        "small": workload("small"),
        "large": large,
        "png": workload("png"),
        "junk": [bytes(20_000), b"GET / HTTP/1.1\r\n\r\n" * 100],
        "truncated": [body[: len(body) // 2] for body in large],
        "cut": large,
    }


def soak(requests: int, bodies: Bodies, say: Callable[[Look], None] = lambda look: None) -> Soak:
    """Sends `requests` to one fresh server."""
    worker = Worker(
        "bench.workers.server", "headrace", str(SIDE), f"accelerator={DEVICE}", "request.timeout_ms=60000"
    )
    try:
        return uvloop.run(_legs(worker, requests, bodies, say))
    finally:
        worker.close()


async def _legs(worker: Worker, requests: int, bodies: Bodies, say: Callable[[Look], None]) -> Soak:
    traffic = _Traffic(worker, bodies, every=max(1, requests // (LEGS * SAMPLES_A_LEG)))
    looks: list[Look] = []
    faults, start_s = cost(worker.pid).minor_faults, time.monotonic()
    for leg in range(LEGS):
        before = traffic.sent
        traffic.until = requests * (leg + 1) // LEGS
        await asyncio.gather(*(traffic.connection() for _ in range(CONNECTIONS)))
        await _settled(worker.pid, looks[0].files if looks else None)
        now_faults = cost(worker.pid).minor_faults
        look = Look(
            sent=traffic.sent,
            resident_bytes=resident_bytes(worker.pid),
            peak_bytes=peak_bytes(worker.pid),
            threads=threads(worker.pid),
            files=files(worker.pid),
            faults_an_image=(now_faults - faults) / max(1, traffic.sent - before),
            seconds=time.monotonic() - start_s,
        )
        faults = now_faults
        looks.append(look)
        say(look)
    return Soak(tuple(looks), tuple(traffic.resident), dict(traffic.wrong))


async def _settled(pid: int, expected_files: int | None) -> None:
    """Until the server has closed what its clients closed: as few files as before, or no change for a while."""
    end_s, seen, same = time.monotonic() + SETTLE_S, -1, 0
    while time.monotonic() < end_s and same < 20:
        now = files(pid)
        if expected_files is not None and now <= expected_files:
            return
        seen, same = now, same + 1 if now == seen else 0
        await asyncio.sleep(0.05)


@dataclass
class _Traffic:
    """Which request is next, over all connections."""

    worker: Worker
    bodies: Bodies
    every: int
    until: int = 0
    sent: int = 0
    resident: list[tuple[int, int]] = field(default_factory=list)
    wrong: Counter[tuple[str, int]] = field(default_factory=Counter)
    dice: random.Random = field(default_factory=lambda: random.Random(5))

    def next(self) -> tuple[str, bytes] | None:
        if self.sent >= self.until:
            return None
        self.sent += 1
        if self.sent % self.every == 0:
            self.resident.append((self.sent, resident_bytes(self.worker.pid)))
        kind = "png" if self.sent <= FILL else self.dice.choices(list(SHARES), list(SHARES.values()))[0]
        return kind, self.dice.choice(self.bodies[kind])

    async def connection(self) -> None:
        """One client at a time; a new connection after one that was cut."""
        client: _Client | None = None
        while (chosen := self.next()) is not None:
            kind, body = chosen
            client = client or await _Client.open(int(self.worker.hello["port"]))
            status = await client.send(body, cut=kind == "cut")
            if status not in ALLOWED[kind]:
                self.wrong[kind, status] += 1
            if kind == "cut" or client.closed:
                client.close()
                client = None
        if client is not None:
            client.close()


@dataclass
class _Client:
    """One connection, kept alive."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    closed: bool = False

    @classmethod
    async def open(cls, port: int) -> _Client:
        return cls(*await asyncio.open_connection("127.0.0.1", port))

    async def send(self, body: bytes, *, cut: bool) -> int:
        """The status; 0 when there is none."""
        self.writer.write(b"POST /predict HTTP/1.1\r\nHost: soak\r\nContent-Length: %d\r\n\r\n" % len(body))
        if cut:
            self.writer.write(body[: len(body) // 2])
            await self.writer.drain()
            return 0
        self.writer.write(body)
        try:
            head = (await self.reader.readuntil(b"\r\n\r\n")).lower()
            length = int(head.partition(b"content-length: ")[2].partition(b"\r\n")[0])
            await self.reader.readexactly(length)
        except (asyncio.IncompleteReadError, ConnectionError):
            self.closed = True
            return -1
        self.closed = b"connection: close" in head
        return int(head[9:12])

    def close(self) -> None:
        self.writer.transport.abort()


HEAD = f"{'requests':>8}  {'resident':>9}  {'peak':>9}  {'threads':>7}  {'files':>5}  {'faults/image':>12}  {'seconds':>7}"


def line(look: Look) -> str:
    return (
        f"{look.sent:8}  {format_bytes(look.resident_bytes):>9}  {format_bytes(look.peak_bytes):>9}  "
        f"{look.threads:7}  {look.files:5}  {look.faults_an_image:12.1f}  {look.seconds:7.1f}"
    )


def main() -> int:
    """The exit code: 1 when it is not flat."""
    parser = argparse.ArgumentParser("python -m bench.soak", description=__doc__)
    parser.add_argument("--requests", type=int, default=20_000)
    requests = max(LEGS * SAMPLES_A_LEG, parser.parse_args().requests)
    bodies = photographs()
    print(", ".join(f"{share:.1%} {kind}" for kind, share in SHARES.items()))
    print(HEAD)
    found = soak(requests, bodies, lambda look: print(line(look), flush=True))
    print(f"growth of resident memory, last {1 - SETTLED_SHARE:.0%}: {found.growth:+.2%}")
    for complaint in found.complaints:
        print(f"not flat: {complaint}")
    if not found.complaints:
        print("flat")
    return 1 if found.complaints else 0


if __name__ == "__main__":
    sys.exit(main())

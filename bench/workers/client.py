"""A closed-loop HTTP client that costs little: prebuilt requests, one asyncio protocol a connection.

It checks status and length of every answer and keeps every latency.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from functools import partial
from typing import Any

import uvloop

from bench.inputs import workload


class Run:
    """One order: requests in turn over all connections until the time is up."""

    def __init__(self, requests: list[bytes], seconds: float) -> None:
        self._requests = requests
        self._sent = 0
        self.end = time.perf_counter() + seconds
        self.latencies: list[float] = []
        self.failed = 0

    def next(self) -> bytes | None:
        if time.perf_counter() >= self.end:
            return None
        self._sent += 1
        return self._requests[self._sent % len(self._requests)]


class Connection(asyncio.Protocol):
    def __init__(self, run: Run, finished: asyncio.Future[None]) -> None:
        self._run, self._finished = run, finished
        self._answer = bytearray()
        self._length = -1
        self._start = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport: Any = transport
        self._send()

    def _send(self) -> None:
        request = self._run.next()
        if request is None:
            self._transport.close()
            if not self._finished.done():
                self._finished.set_result(None)
            return
        self._start = time.perf_counter()
        self._transport.write(request)

    def data_received(self, data: bytes) -> None:
        self._answer += data
        if self._length < 0:
            end = self._answer.find(b"\r\n\r\n")
            if end < 0:
                return
            head = bytes(self._answer[:end]).lower()
            at = head.index(b"content-length:") + 15
            self._length = end + 4 + int(head[at:].split(b"\r\n", 1)[0])
        if len(self._answer) >= self._length:
            self._run.latencies.append(time.perf_counter() - self._start)
            self._run.failed += not self._answer.startswith(b"HTTP/1.1 200")
            self._answer.clear()
            self._length = -1
            self._send()

    def connection_lost(self, exc: Exception | None) -> None:
        if not self._finished.done():
            self._run.failed += 1
            self._finished.set_result(None)


async def drive(port: int, requests: list[bytes], connections: int, seconds: float) -> dict[str, Any]:
    loop, run = asyncio.get_running_loop(), Run(requests, seconds)
    start, cpu = time.perf_counter(), time.process_time()
    ends: list[asyncio.Future[None]] = []
    for _ in range(connections):
        ends.append(loop.create_future())
        await loop.create_connection(partial(Connection, run, ends[-1]), "127.0.0.1", port)
    await asyncio.gather(*ends)
    took = time.perf_counter() - start
    times = sorted(run.latencies)
    return {
        "images": len(times) - run.failed,
        "failed": run.failed,
        "seconds": took,
        "client_cpu_s": time.process_time() - cpu,
        "p50_ms": 1e3 * times[len(times) // 2] if times else 0.0,
        "p99_ms": 1e3 * times[min(len(times) - 1, int(len(times) * 0.99))] if times else 0.0,
    }


def main() -> None:
    name, path, connections = sys.argv[1], sys.argv[2], int(sys.argv[3])
    kind = "image/png" if name == "png" else "image/jpeg"
    requests = [
        f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: {kind}\r\nContent-Length: {len(data)}\r\n\r\n".encode()
        + data
        for data in workload(name)
    ]
    print(json.dumps({"ready": True}), flush=True)
    for line in sys.stdin:
        _, port, seconds = line.split()
        print(json.dumps(uvloop.run(drive(int(port), requests, connections, float(seconds)))), flush=True)


if __name__ == "__main__":
    main()

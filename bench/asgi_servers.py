"""Which ASGI server costs least for image bodies: `python -m bench.asgi_servers [--rounds N] [--only NAME]`.

Each candidate serves the same bare ASGI application from a process of its own. All stay up for the whole run,
and each round loads them one after another, so that a busy neighbour hurts all alike. The main figure is the
CPU time (user + system) of the server process and its children per request; requests/s depend on what else
the machine does. The client is another process, its CPU is shown apart. Candidates not installed are skipped.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib
import importlib.util
import json
import os
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from headrace.serve.http_protocol import read_body

LARGE, SMALL = 3_500_000, 20_000
LOADS = {"3.5 MB, answers the length": (LARGE, "/count", 300), "20 KB, echo": (SMALL, "/echo", 5000)}
BASELINE = "uvicorn-httptools-uvloop"
TICK_S = 1 / os.sysconf("SC_CLK_TCK")
Sample = tuple[float, float, float]  # server CPU ms per request, requests/s, client CPU ms per request
spare_buffers: list[bytearray] = []


async def app(scope: dict[str, Any], receive: Callable[[], Any], send: Callable[[Any], Any]) -> None:
    """Reads the body into a reused buffer; answers its length, or the body itself under /echo."""
    buffer = spare_buffers.pop() if spare_buffers else bytearray(LARGE)
    with memoryview(buffer) as view:
        length = await read_body(scope, receive, view)
        answer = bytes(view[:length]) if scope["path"] == "/echo" else b'{"bytes":%d}' % length
    spare_buffers.append(buffer)
    headers = [(b"content-length", b"%d" % len(answer))]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": answer})


def serve_uvicorn(port: int, http: str, loop: str) -> None:
    module, _, name = http.partition(":")
    protocol: Any = getattr(importlib.import_module(module), name) if name else http
    options = {"log_level": "critical", "proxy_headers": False, "ws": "none", "lifespan": "off"}
    uvicorn: Any = importlib.import_module("uvicorn")
    uvicorn.run(app, port=port, http=protocol, loop=loop, access_log=False, **options)


def serve_granian(port: int, loop: str, threads: int) -> None:
    options = {"log_enabled": False, "interface": "asginl", "http": "1", "websockets": False}
    granian: Any = importlib.import_module("granian")
    granian.Granian(f"{__spec__.name}:app", port=port, loop=loop, runtime_threads=threads, **options).serve()


def serve_granian_embedded(port: int) -> None:
    constants = importlib.import_module("granian.constants")
    options = {"interface": constants.Interfaces.ASGINL, "http": constants.HTTPModes.http1}

    async def main() -> None:
        embed = importlib.import_module("granian.server.embed")
        await embed.Server(app, port=port, log_enabled=False, websockets=False, **options).serve()

    importlib.import_module("uvloop").run(main())


def serve_hypercorn(port: int) -> None:
    config = importlib.import_module("hypercorn.config").Config()
    config.bind, config.errorlog, config.keep_alive_max_requests = [f"127.0.0.1:{port}"], None, 10**9
    importlib.import_module("uvloop").run(importlib.import_module("hypercorn.asyncio").serve(app, config))


class BareProtocol(asyncio.Protocol):
    """No ASGI at all: httptools and a list of chunks. What the parser alone costs."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport: Any = transport
        self.parser: Any = importlib.import_module("httptools").HttpRequestParser(self)

    def data_received(self, data: bytes) -> None:
        self.parser.feed_data(data)

    def on_url(self, url: bytes) -> None:
        self.url, self.chunks = url, list[bytes]()

    def on_body(self, chunk: bytes) -> None:
        self.chunks.append(chunk)

    def on_message_complete(self) -> None:
        body = b"".join(self.chunks)
        answer = body if self.url == b"/echo" else b'{"bytes":%d}' % len(body)
        self.transport.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(answer), answer))


def serve_bare(port: int) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        await (await loop.create_server(BareProtocol, "127.0.0.1", port)).serve_forever()

    importlib.import_module("uvloop").run(main())


HEADRACE = "headrace.serve.http_protocol:BodyProtocol"
CANDIDATES: dict[str, tuple[str, Callable[..., None], tuple[Any, ...]]] = {
    BASELINE: ("uvicorn httptools uvloop", serve_uvicorn, ("httptools", "uvloop")),
    "uvicorn-headrace-uvloop": ("uvicorn httptools uvloop", serve_uvicorn, (HEADRACE, "uvloop")),
    "uvicorn-headrace-asyncio": ("uvicorn httptools", serve_uvicorn, (HEADRACE, "asyncio")),
    "uvicorn-httptools-asyncio": ("uvicorn httptools", serve_uvicorn, ("httptools", "asyncio")),
    "uvicorn-h11-uvloop": ("uvicorn h11 uvloop", serve_uvicorn, ("h11", "uvloop")),
    "uvicorn-zttp-uvloop": ("uvicorn zttp uvloop", serve_uvicorn, ("zttp", "uvloop")),
    "granian-uvloop": ("granian uvloop", serve_granian, ("uvloop", 1)),
    "granian-2-threads": ("granian uvloop", serve_granian, ("uvloop", 2)),
    "granian-asyncio": ("granian", serve_granian, ("asyncio", 1)),
    "granian-embedded": ("granian uvloop", serve_granian_embedded, ()),
    "hypercorn-uvloop": ("hypercorn uvloop", serve_hypercorn, ()),
    "bare-protocol": ("httptools uvloop", serve_bare, ()),
}


class Client(asyncio.Protocol):
    """Sends prebuilt bytes, counts the answer by its content-length, and sends again while tickets last."""

    def __init__(self, request: bytes, tickets: Iterator[int], finished: asyncio.Future[None]) -> None:
        self.request, self.tickets, self.finished = request, tickets, finished
        self.head, self.left = bytearray(), -1

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport: Any = transport
        self.go()

    def go(self) -> None:
        if next(self.tickets, None) is None:
            self.transport.close()
            self.finished.set_result(None)
        else:
            self.transport.write(self.request)

    def data_received(self, data: bytes) -> None:
        if self.left < 0:
            self.head += data
            if (end := self.head.find(b"\r\n\r\n")) < 0:
                return
            length = self.head.lower().index(b"content-length:") + len("content-length:")
            self.left = int(self.head[length : self.head.index(b"\r\n", length)]) + end + 4 - len(self.head)
            self.head.clear()
        else:
            self.left -= len(data)
        if self.left == 0:
            self.left = -1
            self.go()


async def load(path: str, port: int, size: int, total: int, connections: int) -> tuple[float, float]:
    head = f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: image/jpeg\r\nContent-Length: {size}\r\n\r\n"
    request, tickets = head.encode() + os.urandom(size), iter(range(total))
    loop = asyncio.get_running_loop()
    ends: list[asyncio.Future[None]] = [loop.create_future() for _ in range(connections)]
    wall, cpu = time.perf_counter(), time.process_time()
    for end in ends:
        await loop.create_connection(partial(Client, request, tickets, end), "127.0.0.1", port)
    await asyncio.wait_for(asyncio.gather(*ends), 120)
    return time.perf_counter() - wall, time.process_time() - cpu


def tree_cpu_s(pid: int) -> float:
    """User + system seconds of a process, all its threads, and its live children."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    children = " ".join(path.read_text() for path in Path(f"/proc/{pid}/task").glob("*/children")).split()
    return (int(fields[11]) + int(fields[12])) * TICK_S + sum(tree_cpu_s(int(child)) for child in children)


def start(name: str) -> tuple[subprocess.Popen[bytes], int] | None:
    """A serving process and its port; None, with a line, where the candidate does not run here."""
    if missing := [module for module in CANDIDATES[name][0].split() if not importlib.util.find_spec(module)]:
        print(f"skipped {name}: not installed: {', '.join(missing)}")
        return None
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    process = subprocess.Popen([sys.executable, "-m", __spec__.name, "--serve", name, str(port)])
    for _ in range(100):
        time.sleep(0.1)
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return process, port
    process.kill()
    print(f"skipped {name}: it does not listen")
    return None


def sample(pid: int, port: int, size: int, path: str, total: int, connections: int) -> Sample:
    before = tree_cpu_s(pid)
    numbers = map(str, (port, size, total, connections))
    client = [sys.executable, "-m", __spec__.name, "--load", path, *numbers]
    wall_s, client_s = json.loads(subprocess.run(client, check=True, stdout=subprocess.PIPE).stdout)
    return (tree_cpu_s(pid) - before) * 1e3 / total, total / wall_s, client_s * 1e3 / total


def print_table(title: str, samples: dict[str, list[Sample]]) -> None:
    print(f"\n{title}\n{'server':<28}{'CPU ms/request (range)':>28}{'ratio':>8}{'req/s':>9}{'client ms':>11}")
    base = statistics.median(cpu for cpu, _, _ in samples.get(BASELINE, [(float("nan"), 0, 0)]))
    for name, runs in samples.items():
        all_cpu = [cpu for cpu, _, _ in runs]
        cpu, rate, client = (statistics.median(column) for column in zip(*runs, strict=True))
        text = f"{cpu:.3f} ({min(all_cpu):.3f}-{max(all_cpu):.3f})"
        print(f"{name:<28}{text:>28}{cpu / base:>8.2f}{rate:>9.0f}{client:>11.3f}")


def measure(names: list[str], rounds: int, connections: int) -> None:
    servers = {name: started for name in names if (started := start(name))}
    try:
        for title, (size, path, total) in LOADS.items():
            samples: dict[str, list[Sample]] = {name: [] for name in servers}
            for turn in range(rounds + 1):  # the first round warms up and is not counted
                for name, (process, port) in servers.items():
                    one = sample(process.pid, port, size, path, total, connections)
                    samples[name] += [one] if turn else []
            print_table(f"{title}, {connections} connections, {rounds} rounds of {total}", samples)
    finally:
        for process, _ in servers.values():
            process.terminate()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--connections", type=int, default=16)
    parser.add_argument("--only", nargs="+", default=list(CANDIDATES), choices=list(CANDIDATES))
    parser.add_argument("--serve", nargs=2, metavar=("NAME", "PORT"), help=argparse.SUPPRESS)
    parser.add_argument("--load", nargs=5, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.serve:
        CANDIDATES[args.serve[0]][1](int(args.serve[1]), *CANDIDATES[args.serve[0]][2])
    elif args.load:
        numbers = [int(word) for word in args.load[1:]]
        print(json.dumps(importlib.import_module("uvloop").run(load(args.load[0], *numbers))))
    else:
        measure(args.only, args.rounds, args.connections)


if __name__ == "__main__":
    main()

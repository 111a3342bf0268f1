"""Servers that behave as told, and runs of the load tester's engine against them."""

from __future__ import annotations

import asyncio
import itertools
import re
import socket
import struct
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from headrace.core.load.figures import RunFigures
from headrace.load.run import Limits, Phase, closed_loop, drive, open_loop
from headrace.load.shot import Judge, Shot, Target
from headrace.records.rows.load import OutcomeRow

Behaviour = Callable[["Exchange"], Awaitable[None]]
QUICK = Limits(timeout_s=5.0, grace_s=5.0)


class Exchange:
    """One request as the server has it. `close` is left True for the connection to end after it."""

    def __init__(self, number: int, body: bytes, served: int, writer: asyncio.StreamWriter) -> None:
        self.number = number
        self.body = body
        self.served = served
        """Requests that came over this connection before."""
        self.writer = writer
        self.close = False

    def write(self, data: bytes) -> None:
        self.writer.write(data)

    def reset(self) -> None:
        """Ends the connection by RST."""
        raw: socket.socket = self.writer.get_extra_info("socket")
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()
        self.close = True


@asynccontextmanager
async def serving(behaviour: Behaviour, **options: Any) -> Any:
    """A server on a port of its own; yields its Target. `X-Number` in the head of a request tells which it is."""
    tasks: set[asyncio.Task[Any]] = set()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        try:
            for served in itertools.count():
                head = await reader.readuntil(b"\r\n\r\n")
                number = re.search(rb"X-Number: (\d+)", head)
                length = re.search(rb"Content-Length: (\d+)", head)
                body = await reader.readexactly(int(length[1]) if length else 0)
                exchange = Exchange(int(number[1]) if number else -1, body, served, writer)
                await behaviour(exchange)
                if exchange.close:
                    break
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass
        finally:
            writer.close()
            tasks.discard(task)

    server = await asyncio.start_server(connected, "127.0.0.1", 0, backlog=2048, **options)
    try:
        yield Target("127.0.0.1", server.sockets[0].getsockname()[1])
    finally:
        server.close()
        for task in tuple(tasks):
            task.cancel()
        await server.wait_closed()
        await asyncio.sleep(0)


def answer(body: bytes = b"{}", status: int = 200, extra: bytes = b"") -> bytes:
    return b"HTTP/1.1 %d X\r\nContent-Length: %d\r\n%s\r\n%s" % (status, len(body), extra, body)


async def well(exchange: Exchange) -> None:
    exchange.write(answer())


def shots(body: bytes | memoryview = b"pixels", judge: Judge | None = None) -> Iterator[Shot]:
    """Number and source are alike: 0, 1, 2, ..."""
    for number in itertools.count():
        wire = b"POST /predict HTTP/1.1\r\nHost: x\r\nX-Number: %d\r\nContent-Length: %d\r\n\r\n" % (
            number,
            len(body),
        )
        yield Shot(number, wire, body, judge)


class Seen:
    """What a run handed on and returned."""

    def __init__(self) -> None:
        self.rows: list[OutcomeRow] = []
        self.chunks: list[int] = []
        self.figures: RunFigures | None = None

    def sink(self, rows: Sequence[OutcomeRow]) -> None:
        self.chunks.append(len(rows))
        self.rows += rows

    @property
    def errors(self) -> dict[int, str | None]:
        """By number of the request."""
        return {row.source: row.error for row in self.rows}

    def latencies_s(self) -> list[float]:
        return [row.done_s - row.intended_s for row in self.rows if row.done_s is not None]


def check_books(seen: Seen) -> None:
    """Every intended request has one row and one count."""
    assert seen.figures is not None
    numbers = [row.number for row in seen.rows]
    assert sorted(numbers) == list(range(len(numbers)))
    for phase in seen.figures.phases:
        rows = [row for row in seen.rows if row.phase == phase.name]
        assert phase.waiting == 0
        assert phase.intended == len(rows) == phase.ok + sum(phase.failed.values()) + phase.unsent
        assert phase.ok == sum(row.error is None for row in rows)
        assert phase.unsent == sum(row.error == "unsent" for row in rows)
        assert phase.sent == sum(row.sent_s is not None for row in rows)
        for kind, count in phase.failed.items():
            assert count == sum(row.error == kind for row in rows)
    assert seen.figures.sent_bytes == sum(row.sent_bytes for row in seen.rows)
    assert seen.figures.received_bytes == sum(
        row.received_bytes for row in seen.rows if row.sent_s is not None
    )
    for row in seen.rows:
        assert row.sent_s is None or row.sent_s >= row.intended_s
        assert row.done_s is None or (row.sent_s is not None and row.done_s >= row.sent_s)
        assert (row.status is None) == (row.done_s is None)


def run_open(behaviour: Behaviour, arrivals: Iterable[float], **options: Any) -> Seen:
    """One run at `arrivals` against `behaviour`, in this process, its books checked."""
    return _run(
        behaviour, lambda target, sent, rest: open_loop(target, iter(arrivals), sent, **rest), options
    )


def run_closed(behaviour: Behaviour, clients: int, **options: Any) -> Seen:
    return _run(behaviour, lambda target, sent, rest: closed_loop(target, clients, sent, **rest), options)


def _run(
    behaviour: Behaviour, loop: Callable[..., Coroutine[Any, Any, RunFigures]], options: dict[str, Any]
) -> Seen:
    seen = Seen()
    sent, tls, plain_loop = (options.pop(name, None) for name in ("shots", "tls", "plain_loop"))
    options = {"phases": [Phase("run", 3600.0)], "limits": QUICK, "sink": seen.sink} | options

    async def scenario() -> RunFigures:
        async with serving(behaviour, ssl=tls) as target:
            return await loop(target._replace(tls=tls is not None), sent or shots(), options)

    seen.figures = asyncio.run(scenario()) if plain_loop else drive(scenario())
    check_books(seen)
    return seen


def every(interval_s: float, count: int) -> list[float]:
    return [n * interval_s for n in range(count)]

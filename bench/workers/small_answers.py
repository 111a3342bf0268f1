"""A server that answers as soon as a request is complete: what a load tester is measured against.

`python -m bench.workers.small_answers` prints one JSON line with its port and lives until its input ends.
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any, cast

import httptools
import uvloop

ANSWER = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"


class Connection(asyncio.Protocol):
    """Keep-alive, one request after another."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._parser = httptools.HttpRequestParser(self)

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_message_complete(self) -> None:
        self._transport.write(ANSWER)


async def main() -> None:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(Connection, "127.0.0.1", 0)
    port: Any = server.sockets[0].getsockname()[1]
    print(json.dumps({"port": port}), flush=True)
    await loop.run_in_executor(None, sys.stdin.read)


if __name__ == "__main__":
    uvloop.run(main())

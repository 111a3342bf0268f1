"""Any ASGI application on a free port, the way headrace runs its own."""

from __future__ import annotations

import asyncio
import json
import socket
from typing import Any, Literal

import uvicorn
import uvloop


def serve_bare(app: Any, protocol: Any, lifespan: Literal["on", "off"] = "off") -> None:
    """Serves until terminated; prints the port as a JSON line."""
    bound = socket.socket()
    bound.bind(("127.0.0.1", 0))
    config = uvicorn.Config(
        app,
        http=protocol,
        ws="none",
        lifespan=lifespan,
        proxy_headers=False,
        log_level="warning",
        access_log=False,
        backlog=1024,
    )

    async def main() -> None:
        print(json.dumps({"port": bound.getsockname()[1]}), flush=True)
        await uvicorn.Server(config).serve(sockets=[bound])

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())

"""One process, two ports: requests, and figures. Starts, announces itself, drains on SIGTERM."""

from __future__ import annotations

import asyncio
import gc
import logging
import signal
import socket
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any

import orjson
import uvicorn

from headrace.core.stats.histogram import Histogram
from headrace.errors import UsageError
from headrace.records.recipe import RecipeFile
from headrace.serve import metrics
from headrace.serve.engine.engine import Engine
from headrace.serve.http.app import App
from headrace.serve.http_protocol import BodyProtocol

_log = logging.getLogger(__name__)

_BACKLOG = 1024
_LAST_BODIES_S = 2.0
"""After a drain, how long bodies that have begun to arrive may still take; the senders are then answered 408."""
_ANSWERING_S = 5.0
"""After the drain: for answers on their way out and bodies on their way in."""
_LOOK_S = 0.05


class _Uvicorn(uvicorn.Server):
    """Signals are the process's business, not one port's."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class Server:
    """Binds its sockets when constructed, so that a taken port is an error before anything is loaded."""

    def __init__(self, host: str, port: int, metrics_port: int) -> None:
        """Raises UsageError that names the address."""
        self._sockets = [_bind(host, port, "server.port"), _bind(host, metrics_port, "server.metrics_port")]

    @property
    def port(self) -> int:
        return int(self._sockets[0].getsockname()[1])

    @property
    def metrics_port(self) -> int:
        return int(self._sockets[1].getsockname()[1])

    def run(
        self,
        engine: Engine,
        recipe_file: RecipeFile,
        name: str,
        *,
        on_ready: Callable[[], None] = lambda: None,
    ) -> bool:
        """Serves until SIGTERM or SIGINT, then drains. True when every request inside ended in time. The engine is closed."""
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            return runner.run(self._run(engine, recipe_file, name, on_ready))

    async def _run(
        self, engine: Engine, recipe_file: RecipeFile, name: str, on_ready: Callable[[], None]
    ) -> bool:
        app = App(engine, recipe_file, name)
        registry = metrics.exposition(engine, app.counters, name)
        servers = [_uvicorn(app, BodyProtocol), _uvicorn(_FiguresApp(engine, registry), "httptools")]
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        for signal_number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(signal_number, stop.set)
        engine.start()
        tasks = [
            asyncio.create_task(server.serve(sockets=[bound]))
            for server, bound in zip(servers, self._sockets, strict=True)
        ]
        announce = asyncio.create_task(_announce(engine, on_ready))
        stopping = asyncio.create_task(stop.wait())
        await asyncio.wait([stopping, *tasks], return_when=asyncio.FIRST_COMPLETED)
        announce.cancel()
        drained = await asyncio.to_thread(engine.drain, engine.settings.server_drain_s)
        if not drained:
            logging.getLogger(
                "uvicorn.error"
            ).disabled = True  # it would print a stack for each request cut off
        app.hurry(_LAST_BODIES_S)
        for server in servers:
            server.config.timeout_graceful_shutdown = _ANSWERING_S if drained else 0  # type: ignore[assignment]
            server.should_exit = True
        await asyncio.gather(*tasks)
        if drained:
            await asyncio.to_thread(engine.close)
        return drained


async def _announce(engine: Engine, on_ready: Callable[[], None]) -> None:
    while engine.readiness.state == "warming":
        await asyncio.sleep(_LOOK_S)
    _settle_garbage()
    if engine.readiness.ready:
        on_ready()


def _settle_garbage() -> None:
    """What was loaded stays: keep the collector from walking it again and again, and let it look less often.

    A request leaves no cycles behind. With the defaults a third of the time of a small request went into looking for some.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)


def _uvicorn(app: Any, protocol: Any) -> _Uvicorn:
    return _Uvicorn(
        uvicorn.Config(
            app,
            http=protocol,
            ws="none",
            lifespan="off",
            proxy_headers=False,
            log_level="error",
            access_log=False,
            server_header=False,
            date_header=True,
            backlog=_BACKLOG,
        )
    )


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:
        return None
    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory


def _bind(host: str, port: int, setting: str) -> socket.socket:
    if not host:
        raise UsageError("server.host is empty; give an address, 0.0.0.0 for all")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    bound = socket.socket(family, socket.SOCK_STREAM)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind((host, port))
        bound.listen(_BACKLOG)  # now, for two sockets may be bound to one port until one of them listens
    except (OSError, OverflowError, ValueError) as problem:
        bound.close()
        raise UsageError(
            f"cannot listen on {host} port {port} ({problem}); choose another {setting}, 0 takes a free one"
        ) from None
    bound.set_inheritable(True)
    return bound


class _FiguresApp:
    """GET /metrics, /plan, /livez on the metrics port."""

    def __init__(self, engine: Engine, registry: Any) -> None:
        self._engine = engine
        self._registry = registry

    async def __call__(self, scope: Any, receive: Any, send: Callable[[Any], Awaitable[None]]) -> None:
        if scope["type"] != "http":
            return
        status, kind, body = self._answer(scope["path"])
        headers = [(b"content-type", kind.encode()), (b"content-length", str(len(body)).encode())]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body if scope["method"] != "HEAD" else b""})

    def _answer(self, path: str) -> tuple[int, str, bytes]:
        if path == "/metrics":
            return 200, metrics.CONTENT_TYPE, metrics.render(self._registry)
        if path == "/plan":
            return 200, "application/json", orjson.dumps(_plan(self._engine))
        if path == "/livez":
            return 200, "application/json", b'{"live":true}'
        error = {
            "error": f"no such path {path!r}; this port has /metrics, /plan and /livez",
            "code": "not_found",
        }
        return 404, "application/json", orjson.dumps(error)


def _plan(engine: Engine) -> dict[str, Any]:
    """The running plan with the mean times measured so far, None before the first image."""
    stages = []
    readings = {reading.stage: reading for reading in (book.read() for book in engine.books)}
    for stage in engine.plan.stages:
        reading = readings[stage.name]
        stages.append(
            {
                "stage": stage.name,
                "workers": stage.workers,
                "images": reading.left,
                "mean_wait_ms": _mean_ms(reading.wait_s),
                "mean_service_ms": _mean_ms(reading.service_s),
                "operations": [asdict(operation) for operation in stage.operations],
            }
        )
    return {"path": engine.plan.path, "emulated": engine.runner.emulated, "stages": stages}


def _mean_ms(histogram: Histogram) -> float | None:
    return 1e3 * histogram.total / histogram.count if histogram.count else None

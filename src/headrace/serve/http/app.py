"""The ASGI application: finds the handler, turns what comes back into an answer, keeps the books."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from headrace.clock import monotonic_s, wall_s
from headrace.errors import ClientGone, HeadraceError, InternalError, MethodNotAllowed, SlowSender
from headrace.records.recipe import RecipeFile
from headrace.records.timeline import server_timing
from headrace.serve.engine.engine import Engine
from headrace.serve.http.answers import Answers
from headrace.serve.http.bodies import Bodies
from headrace.serve.http.bridge import Bridge
from headrace.serve.http.counters import Counters
from headrace.serve.http.exchange import Answer, Request, Route, error_answer
from headrace.serve.http.oip import Protocol
from headrace.serve.http.predict import Predict
from headrace.serve.http.probes import Probes
from headrace.serve.http.ticks import Ticker
from headrace.serve.http_protocol import Receive, Scope

Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

_log = logging.getLogger(__name__)

UNKNOWN = Route("other", {})


class App:
    """One engine's face. `name` is the model's name in answers and in the /v2 API. Lives on one event loop."""

    def __init__(
        self,
        engine: Engine,
        recipe_file: RecipeFile,
        name: str,
        clock_s: Callable[[], float] = monotonic_s,
    ) -> None:
        self.counters = Counters()
        self._engine = engine
        self._clock_s = clock_s
        ticker = Ticker(clock_s)
        bodies, bridge = Bodies(ticker), Bridge(ticker)
        self._bodies = bodies
        answers = Answers(engine.runner, recipe_file, name, engine.plan.path)
        predict = Predict(engine, answers, bodies=bodies, bridge=bridge, counters=self.counters)
        self._protocol = Protocol(
            engine, recipe_file, name, bodies=bodies, bridge=bridge, counters=self.counters
        )
        self._routes: dict[str, Route] = {
            "/predict": Route("predict", {"POST": predict.post}),
            **Probes(engine).routes(),
            **self._protocol.routes(),
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serves one connection scope of ASGI."""
        if scope["type"] != "http":
            await _other(scope, receive, send)
            return
        counters = self.counters
        counters.seen += 1
        request = Request(scope, receive, self._engine.settings, self._clock_s())
        route = self._routes.get(request.path) or UNKNOWN
        try:
            answer = await self._answer(request, route)
        except (ClientGone, asyncio.CancelledError) as reason:
            counters.gone += 1
            if isinstance(reason, asyncio.CancelledError):
                raise
            return
        finally:
            if request.room_bytes:
                self._bodies.leave(request)
        timing = self._count(request, route, answer)
        try:
            await _send(request, answer, timing, send)
        except RuntimeError:
            _log.debug("request %s: the connection was closed before its answer", request.id)

    def hurry(self, within_s: float) -> None:
        """The server is going: bodies still on their way have `within_s` left."""
        self._bodies.hurry(self._clock_s() + within_s)

    def _count(self, request: Request, route: Route, answer: Answer) -> bytes:
        """Into the books; gives the Server-Timing field."""
        counters = self.counters
        counters.answers[route.family, answer.status] += 1
        if answer.code:
            counters.errors[answer.code] += 1
        spans = answer.timeline.spans() if answer.timeline is not None else ()
        if answer.images:
            counters.predicted(spans, answer.images, wall_s())
        elif request.method == "POST" and route.family in ("predict", "infer"):
            counters.failed(self._clock_s() - request.arrived_s)
        return server_timing(spans).encode("ascii")

    async def _answer(self, request: Request, route: Route) -> Answer:
        method = "GET" if request.method == "HEAD" else request.method
        try:
            handler = route.methods.get(method)
            if handler is None:
                return self._no_handler(request, route)
            return await handler(request)
        except ClientGone:
            raise
        except SlowSender as error:
            return error_answer(request, error, fields=((b"connection", b"close"),))
        except HeadraceError as error:
            return error_answer(request, error)
        except Exception:
            _log.exception("request %s: %s %s failed", request.id, request.method, request.path)
            return error_answer(
                request,
                InternalError("the server failed on this request; its log says why, under the request id"),
            )

    def _no_handler(self, request: Request, route: Route) -> Answer:
        if not route.methods:
            return error_answer(request, self._protocol.not_found(request.path))
        allowed = sorted({*route.methods, *(("HEAD",) if "GET" in route.methods else ())})
        error = MethodNotAllowed(
            f"{request.path[:200]} takes {' and '.join(allowed)}, not {request.method[:20]}"
        )
        return error_answer(request, error, fields=((b"allow", ", ".join(allowed).encode("ascii")),))


async def _send(request: Request, answer: Answer, timing: bytes, send: Send) -> None:
    fields = [
        (b"content-type", answer.media),
        (b"content-length", b"%d" % len(answer.body)),
        (b"x-request-id", request.id.encode("ascii")),
        *answer.fields,
    ]
    if timing:
        fields.append((b"server-timing", timing))
    if request.trace:
        fields.append((b"traceparent", request.trace))
    await send({"type": "http.response.start", "status": answer.status, "headers": fields})
    await send({"type": "http.response.body", "body": answer.body})


async def _other(scope: Scope, receive: Receive, send: Send) -> None:
    """Start and end of the server are somebody else's business; there are no WebSockets."""
    if scope["type"] == "websocket":
        await send({"type": "websocket.close"})
        return
    while scope["type"] == "lifespan":
        message = await receive()
        await send({"type": f"{message['type']}.complete"})
        if message["type"] == "lifespan.shutdown":
            return

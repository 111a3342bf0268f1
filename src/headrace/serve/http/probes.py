"""Is it alive, is it ready: under every name the usual callers use."""

from __future__ import annotations

from headrace.errors import NotReady
from headrace.serve.engine.engine import Engine
from headrace.serve.http.exchange import Answer, Request, Route, error_answer, json_answer

LIVE = ("/livez", "/healthz", "/health", "/v2/health/live")
READY = ("/readyz", "/ping", "/v2/health/ready")


class Probes:
    """Reads the engine's readiness."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def live(self, request: Request) -> Answer:
        """200 while the process can answer at all."""
        return json_answer({"live": True})

    async def ready(self, request: Request) -> Answer:
        """200 when requests are served, else 503 and why."""
        readiness = self._engine.readiness
        if readiness.ready:
            return json_answer({"ready": True})
        return error_answer(request, NotReady(f"not ready: {readiness.reason}"))

    def routes(self) -> dict[str, Route]:
        """By path."""
        return {
            **{path: Route("probe", {"GET": self.live}) for path in LIVE},
            **{path: Route("probe", {"GET": self.ready}) for path in READY},
        }

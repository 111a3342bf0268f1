"""The Open Inference Protocol v2 (KServe, Triton) over HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from headrace.clock import monotonic_s
from headrace.errors import HeadraceError, InternalError, NotFound, NotReady, RequestError
from headrace.records.image import Encoded, Prediction
from headrace.records.recipe import RecipeFile
from headrace.serve.engine.engine import Engine
from headrace.serve.engine.job import Job
from headrace.serve.http.answers import MOST_VALUES
from headrace.serve.http.bodies import Bodies
from headrace.serve.http.bridge import Bridge, Group, last_finished
from headrace.serve.http.counters import Counters
from headrace.serve.http.exchange import Answer, Fields, Request, Route, json_answer
from headrace.serve.http.forms import MOST_ITEMS
from headrace.serve.http.oip_answers import infer_answer, wanted_outputs
from headrace.serve.http.oip_model import IMAGE, PREPARED, VERSION, ModelFacts
from headrace.serve.http.oip_tensors import InferRequest, encoded_images, parse_infer, prepared_images

LARGE_BYTES = 4 * 2**20
"""Binary requests above this are taken apart on another thread, JSON ones above an eighth of it."""

Items = list[dict[str, Any]]


class Protocol:
    """The handlers for one model."""

    def __init__(
        self,
        engine: Engine,
        file: RecipeFile,
        name: str,
        *,
        bodies: Bodies,
        bridge: Bridge,
        counters: Counters,
    ) -> None:
        self._engine = engine
        self._card = file.model
        self._name = name
        self._bodies = bodies
        self._bridge = bridge
        self._counters = counters
        self._facts = ModelFacts(engine, file, name)
        self._fields: Fields = ((b"x-headrace-emulated", b"true"),) if engine.runner.emulated else ()

    def routes(self) -> dict[str, Route]:
        """By path; the model's own paths with and without its version."""
        routes = {
            "/v2": _metadata("GET", self._server),
            "/v2/models/stats": _metadata("GET", self._stats),
            "/v2/repository/index": _metadata("POST", self._index),
        }
        for base in (f"/v2/models/{self._name}", f"/v2/models/{self._name}/versions/{VERSION}"):
            routes[base] = _metadata("GET", self._model)
            routes[f"{base}/config"] = _metadata("GET", self._config)
            routes[f"{base}/stats"] = _metadata("GET", self._stats)
            routes[f"{base}/ready"] = Route("probe", {"GET": self._ready})
            routes[f"{base}/infer"] = Route("infer", {"POST": self.infer})
        return routes

    def not_found(self, path: str) -> NotFound:
        """Says which model there is, where a path names another."""
        if path.startswith("/v2/models/"):
            return NotFound(
                f"there is nothing at {path[:200]}: the one model here is {self._name!r}, version {VERSION}"
            )
        return NotFound(f"there is nothing at {path[:200]}")

    async def infer(self, request: Request) -> Answer:
        """`POST .../infer`: all images of a request succeed, or it fails and names the one that did not."""
        self._engine.admit()
        body = await self._bodies.read(request)
        asked, items = await self._take_apart(request, bytes(body))
        wanted = wanted_outputs(asked, self._engine.runner.output_names)
        group = self._bridge.group(request.receive, request.deadline_s(asked.timeout_s))
        self._submit(group, request, items)
        await self._bridge.wait(group)
        timeline = last_finished(group.jobs).timeline
        timeline.reply_start_s = monotonic_s()
        predictions = [_prediction(job, at, len(items)) for at, job in enumerate(group.jobs)]
        head = self._head(asked)
        if _heavy(predictions):
            answer = await asyncio.to_thread(infer_answer, head, predictions, wanted, self._card)
        else:
            answer = infer_answer(head, predictions, wanted, self._card)
        timeline.replied_s = monotonic_s()
        return answer._replace(fields=answer.fields + self._fields, timeline=timeline, images=len(items))

    async def _take_apart(self, request: Request, body: bytes) -> tuple[InferRequest, Items]:
        header_length = request.fields.get(b"inference-header-content-length")
        most = min(MOST_ITEMS, request.settings.door_max_inside)
        large = len(body) > (LARGE_BYTES if header_length else LARGE_BYTES // 8)
        if large:
            return await asyncio.to_thread(self._parsed, body, header_length, most)
        return self._parsed(body, header_length, most)

    def _parsed(self, body: bytes, header_length: bytes | None, most: int) -> tuple[InferRequest, Items]:
        asked = parse_infer(body, header_length)
        if len(asked.inputs) != 1 or asked.inputs[0].name not in (IMAGE, PREPARED):
            names = ", ".join(repr(tensor.name[:40]) for tensor in asked.inputs[:4])
            raise RequestError(
                f"one input is to be given, {IMAGE!r} or {PREPARED!r}; the request has {names or 'none'}"
            )
        tensor = asked.inputs[0]
        if tensor.name == IMAGE:
            return asked, [{"encoded": Encoded(image)} for image in encoded_images(tensor, most)]
        return asked, [{"prepared": row} for row in prepared_images(tensor, self._facts.prepared_shape, most)]

    def _submit(self, group: Group, request: Request, items: Items) -> None:
        fetched_s = monotonic_s()
        for at, item in enumerate(items):
            try:
                group.submit(self._engine, request.arrived_s, fetched_s, **item)
            except HeadraceError as error:
                group.abandon()
                raise _named(error, at, len(items)) from None

    def _head(self, asked: InferRequest) -> dict[str, Any]:
        head: dict[str, Any] = {"model_name": self._name, "model_version": VERSION}
        if asked.id:
            head["id"] = asked.id
        if self._engine.runner.emulated:
            head["parameters"] = {"emulated": True}
        return head

    async def _server(self, request: Request) -> Answer:
        return json_answer(self._facts.server())

    async def _model(self, request: Request) -> Answer:
        return json_answer(await self._facts.metadata())

    async def _config(self, request: Request) -> Answer:
        return json_answer(await self._facts.config())

    async def _stats(self, request: Request) -> Answer:
        return json_answer(self._facts.statistics(self._counters))

    async def _index(self, request: Request) -> Answer:
        return json_answer(self._facts.index())

    async def _ready(self, request: Request) -> Answer:
        readiness = self._engine.readiness
        if not readiness.ready:
            raise NotReady(f"not ready: {readiness.reason}")
        return json_answer({"name": self._name, "ready": True})


def _metadata(method: str, handler: Callable[[Request], Awaitable[Answer]]) -> Route:
    return Route("metadata", {method: handler})


def _prediction(job: Job, at: int, count: int) -> Prediction:
    if job.prediction is None:
        raise _named(job.error or InternalError("the engine gave no answer"), at, count)
    return job.prediction


def _named(error: HeadraceError, at: int, count: int) -> HeadraceError:
    """The same error, saying which image it is about. Never the one the engine shares among the jobs of a batch."""
    return type(error)(f"image {at} of {count}: {error}" if count > 1 else str(error))


def _heavy(predictions: Sequence[Prediction]) -> bool:
    size = sum(array.size for array in predictions[0].outputs.values())
    return size * len(predictions) > 16 * MOST_VALUES

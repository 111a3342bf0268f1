"""`POST /predict`: one image or several, as they are, in a form or in JSON."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from headrace.clock import monotonic_s
from headrace.errors import HeadraceError, NotReady, Overloaded, RequestError, UnsupportedMedia
from headrace.records.image import Encoded, Prediction
from headrace.serve.engine.engine import Engine
from headrace.serve.engine.job import Job
from headrace.serve.http.answers import NPY, PNG, Answers, Outcome, View
from headrace.serve.http.bodies import Bodies
from headrace.serve.http.bridge import Bridge, Group, last_finished
from headrace.serve.http.counters import Counters
from headrace.serve.http.exchange import JSON, Answer, Request, as_json, error_answer, json_answer
from headrace.serve.http.forms import MOST_ITEMS, Form, images_in_form, images_in_json
from headrace.serve.http.negotiate import choose

MOST_TOP_K = 1000
LARGE_BYTES = 512 * 1024
"""A form or JSON above this is taken apart on another thread."""


class Predict:
    """Answers predictions."""

    def __init__(
        self, engine: Engine, answers: Answers, *, bodies: Bodies, bridge: Bridge, counters: Counters
    ) -> None:
        self._engine = engine
        self._counters = counters
        self._answers = answers
        self._bodies = bodies
        self._bridge = bridge

    async def post(self, request: Request) -> Answer:
        """The handler."""
        kind = _kind(request.fields.get(b"content-type"))
        view = self._view(request)
        deadline_s = request.deadline_s()
        self._engine.admit()
        body = await self._bodies.read(request)
        if kind == "image":
            return await self._one(request, Encoded(body), view, deadline_s)
        form = await self._take_apart(request, bytes(body), kind)
        if form.single:
            item = form.items[0]
            if isinstance(item, HeadraceError):
                return error_answer(request, item)
            return await self._one(request, item, view, deadline_s)
        return await self._many(request, form.items, view, deadline_s)

    def _view(self, request: Request) -> View:
        media = choose(request.fields.get(b"accept"), self._answers.offered)
        if not request.query:
            return View(media)
        queries = request.queries()
        return View(media, _top_k(queries), queries.get("values", "false") in ("true", "1"))

    async def _take_apart(self, request: Request, body: bytes, kind: str) -> Form:
        most = min(MOST_ITEMS, request.settings.door_max_inside)
        content_type = request.fields.get(b"content-type", b"")
        if len(body) <= LARGE_BYTES:
            return images_in_form(body, content_type, most) if kind == "form" else images_in_json(body, most)
        work = (images_in_form, body, content_type, most) if kind == "form" else (images_in_json, body, most)
        return await asyncio.to_thread(*work)

    async def _one(self, request: Request, image: Encoded, view: View, deadline_s: float) -> Answer:
        group = self._bridge.group(request.receive, deadline_s)
        job = group.submit(self._engine, request.arrived_s, monotonic_s(), encoded=image)
        await self._bridge.wait(group)
        timeline = job.timeline
        if job.prediction is None:
            return error_answer(request, job.error or HeadraceError("no answer"), timeline=timeline)
        timeline.reply_start_s = monotonic_s()
        if self._answers.heavy(job.prediction, view):
            body = await asyncio.to_thread(self._body, request, job.prediction, view)
        else:
            body = self._body(request, job.prediction, view)
        timeline.replied_s = monotonic_s()
        return Answer(200, body, view.media, self._answers.fields, timeline, images=1)

    def _body(self, request: Request, prediction: Prediction, view: View) -> bytes:
        if view.media == PNG:
            return self._answers.picture(prediction)
        if view.media == NPY:
            return self._answers.numpy_file(prediction)
        return as_json(self._answers.one(prediction, request.id, view))

    async def _many(
        self, request: Request, items: list[Encoded | HeadraceError], view: View, deadline_s: float
    ) -> Answer:
        choose(request.fields.get(b"accept"), (JSON,))
        group = self._bridge.group(request.receive, deadline_s)
        fetched_s = monotonic_s()
        entries: list[Job | HeadraceError] = []
        for item in items:
            try:
                entries.append(
                    item
                    if isinstance(item, HeadraceError)
                    else group.submit(self._engine, request.arrived_s, fetched_s, encoded=item)
                )
            except (Overloaded, NotReady):
                group.abandon()
                raise
            except HeadraceError as error:
                entries.append(error)
        await self._bridge.wait(group)
        outcomes: list[Outcome] = [_outcome(entry) for entry in entries]
        self._counters.errors.update(
            outcome.code for outcome in outcomes if isinstance(outcome, HeadraceError)
        )
        if any(
            isinstance(outcome, Prediction) and self._answers.heavy(outcome, view) for outcome in outcomes
        ):
            return await asyncio.to_thread(self._many_built, request, outcomes, view, group)
        return self._many_built(request, outcomes, view, group)

    def _many_built(self, request: Request, outcomes: list[Outcome], view: View, group: Group) -> Answer:
        timeline = last_finished(group.jobs).timeline if group.jobs else None
        if timeline is not None:
            timeline.reply_start_s = monotonic_s()
        value = self._answers.many(outcomes, request.id, view, request.settings)
        images = sum(isinstance(outcome, Prediction) for outcome in outcomes)
        answer = json_answer(value, fields=self._answers.fields, timeline=timeline)._replace(images=images)
        if timeline is not None:
            timeline.replied_s = monotonic_s()
        return answer


def _outcome(entry: Job | HeadraceError) -> Outcome:
    if isinstance(entry, HeadraceError):
        return entry
    return entry.prediction or entry.error or HeadraceError("no answer")


def _kind(content_type: bytes | None) -> str:
    """`image`, `form` or `json`. Raises UnsupportedMedia."""
    if content_type is None:
        return "image"
    media = content_type.partition(b";")[0].strip().lower()
    if media.startswith(b"image/") or media in (
        b"",
        b"application/octet-stream",
        b"application/x-www-form-urlencoded",
    ):
        return "image"  # the last is what `curl --data-binary` says when nobody tells it
    if media == b"multipart/form-data":
        return "form"
    if media == JSON:
        return "json"
    raise UnsupportedMedia(
        f"Content-Type {media[:80].decode('latin-1')!r} is not read here: send an image as it is, multipart/form-data or application/json"
    )


def _top_k(queries: Mapping[str, Any]) -> int:
    text = queries.get("top_k", "5")
    if text.isascii() and text.isdigit() and 1 <= int(text[:8]) <= MOST_TOP_K:
        return int(text[:8])
    raise RequestError(f"top_k={text[:40]!r} is no whole number from 1 to {MOST_TOP_K}")

"""One request and one answer, as the handlers see them."""

from __future__ import annotations

import itertools
import re
import secrets
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NamedTuple
from urllib.parse import parse_qs

import orjson

from headrace.errors import HeadraceError, Overloaded, RequestError
from headrace.records.settings import Settings
from headrace.records.timeline import Timeline
from headrace.serve.http_protocol import Receive, Scope

JSON = b"application/json"

Fields = tuple[tuple[bytes, bytes], ...]
"""Header fields to send."""

_REQUEST_ID = re.compile(rb"[\x21-\x7e]{1,128}")
_TRACEPARENT = re.compile(rb"[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")
_MOST_QUERY_FIELDS = 16

_prefix = secrets.token_hex(6)
_numbers = itertools.count(1)


class Answer(NamedTuple):
    """What goes back."""

    status: int
    body: bytes
    media: bytes = JSON
    fields: Fields = ()
    timeline: Timeline | None = None
    """Of the image that was finished last."""
    code: str = ""
    """Of the error, if it is one."""
    images: int = 0
    """Predicted."""


class Request:
    """What came in; its body is read by the handler. The settings are those of the moment it came."""

    __slots__ = (
        "arrived_s",
        "fields",
        "id",
        "method",
        "path",
        "query",
        "receive",
        "room_bytes",
        "scope",
        "settings",
        "trace",
    )

    def __init__(self, scope: Scope, receive: Receive, settings: Settings, arrived_s: float) -> None:
        self.scope = scope
        self.receive = receive
        self.settings = settings
        self.arrived_s = arrived_s
        self.room_bytes = 0
        """What its body takes of `door.max_inside_bytes`."""
        self.method: str = scope["method"]
        self.path: str = scope["path"]
        self.query: bytes = scope["query_string"]
        self.fields: dict[bytes, bytes] = dict(scope["headers"])
        self.trace = _valid_trace(self.fields)
        self.id = _request_id(self.fields, self.trace)

    def deadline_s(self, timeout_s: float | None = None) -> float:
        """When nobody waits any more: the setting, the client's header and `timeout_s`, whichever comes first.

        Raises RequestError for a header that is no time.
        """
        wait_s = self.settings.request_timeout_ms / 1e3
        if timeout_s is not None:
            wait_s = min(wait_s, timeout_s)
        text = self.fields.get(b"x-request-timeout-ms")
        if text is not None:
            wait_s = min(wait_s, _milliseconds(text) / 1e3)
        return self.arrived_s + wait_s

    def queries(self) -> Mapping[str, str]:
        """The fields after the `?`; the last of each name. Raises RequestError."""
        if not self.query:
            return {}
        try:
            pairs = parse_qs(self.query.decode("ascii"), max_num_fields=_MOST_QUERY_FIELDS)
        except ValueError as problem:
            raise RequestError(f"the query of the URL cannot be read: {problem}") from None
        return {name: values[-1] for name, values in pairs.items()}


Handler = Callable[[Request], Awaitable[Answer]]


class Route(NamedTuple):
    """What a path can do. `family` names it in figures: a handful of words, whatever clients ask for."""

    family: str
    methods: Mapping[str, Handler]


def _valid_trace(fields: Mapping[bytes, bytes]) -> bytes:
    text = fields.get(b"traceparent")
    return text if text is not None and _TRACEPARENT.fullmatch(text) else b""


def _request_id(fields: Mapping[bytes, bytes], trace: bytes) -> str:
    given = fields.get(b"x-request-id")
    if given is not None and _REQUEST_ID.fullmatch(given):
        return given.decode("ascii")
    return trace[3:35].decode("ascii") if trace else f"{_prefix}-{next(_numbers)}"


def _milliseconds(text: bytes) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 < value < 1e12:
        raise RequestError(
            f"X-Request-Timeout-Ms is {text[:40].decode('latin-1')!r}: give milliseconds above 0"
        )
    return value


def as_json(value: Any) -> bytes:
    """JSON; numbers that it cannot say become null."""
    return orjson.dumps(value, option=orjson.OPT_SERIALIZE_NUMPY)


def json_answer(
    value: Any, status: int = 200, *, fields: Fields = (), timeline: Timeline | None = None
) -> Answer:
    """`value` as JSON."""
    return Answer(status, as_json(value), JSON, fields, timeline)


def status_of(error: HeadraceError, settings: Settings) -> int:
    """The HTTP status of an error under these settings."""
    return settings.door_overload_status if isinstance(error, Overloaded) else error.http_status


def error_answer(
    request: Request, error: HeadraceError, *, fields: Fields = (), timeline: Timeline | None = None
) -> Answer:
    """The one shape of an error."""
    if error.retry_after_s is not None:
        fields = (*fields, (b"retry-after", b"%d" % -(-error.retry_after_s // 1)))
    body = orjson.dumps({"error": str(error), "code": error.code, "request_id": request.id})
    return Answer(status_of(error, request.settings), body, JSON, fields, timeline, error.code)

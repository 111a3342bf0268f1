"""One HTTP/1.1 connection of the load tester: a request out, an answer in, and the next.

Below it asyncio's (or uvloop's) transport, beside it llhttp through httptools: no task, no queue and no copy of the body per request.
"""

from __future__ import annotations

import asyncio
from typing import Protocol, cast

import httptools

from headrace.clock import monotonic_s
from headrace.load.engine.request import Answer, Request

PIECE_BYTES = 256 * 1024
"""Bodies up to this size leave with their head in one write. Larger ones follow in pieces, each once the socket has taken the last:
asyncio copies what a socket does not take at once."""

OVERHEAD_MAX_BYTES = 64 * 1024
OVERHEAD_PER_BYTE = 8
"""An answer may have this many bytes beside its body: heads, interim answers, trailers, and 6 for the chunk of a single byte."""


class Owner(Protocol):
    """Whoever hands out requests. Told once of the end of each request, and once of the end of each connection."""

    def opened(self, connection: Connection, first: Request) -> bool:
        """False: the request was given up meanwhile, and the connection is not wanted."""
        ...

    def ended(self, connection: Connection, request: Request, error: str | None) -> None:
        """`error` None: `request.answer` is there. Whether the connection can be used again is told by `usable`."""
        ...

    def lost(self, connection: Connection) -> None: ...


class Connection(asyncio.Protocol):
    """Carries one request at a time: the first one as soon as it is open, others by `send` while it is `usable`."""

    def __init__(self, owner: Owner, first: Request, answer_max_bytes: int) -> None:
        self._owner = owner
        self._answer_max_bytes = answer_max_bytes
        self._request: Request | None = first
        self._transport: asyncio.Transport | None = None
        self._parser: httptools.HttpResponseParser | None = None
        self._unwritten = memoryview(b"")
        self._write_paused = False
        self.answered = 0
        """Answers so far; with 1 or more, the service may close it at any moment without harm meant."""
        self._reset()

    def _reset(self) -> None:
        self._headers: list[tuple[bytes, bytes]] = []
        self._body: list[bytes] = []
        self._wire_bytes = 0
        self._body_bytes = 0
        self._status = 0
        self._in_body = False
        self._complete = False
        self._keep_alive = False
        self._surplus = False

    @property
    def usable(self) -> bool:
        return self._request is None and self._transport is not None and not self._transport.is_closing()

    def send(self, request: Request) -> None:
        """Starts the next request. Only while `usable`."""
        self._reset()
        self._request = request
        self._write(request)

    def abort(self) -> None:
        """Closes at once and forgets the request: its owner knows."""
        self._request = None
        self._unwritten = memoryview(b"")
        if self._transport is not None:
            self._transport.abort()

    # --- writing ---------------------------------------------------------------------------------------------------------

    def _write(self, request: Request) -> None:
        assert self._transport is not None
        request.sent_s = monotonic_s()
        shot = request.shot
        if len(shot.body) <= PIECE_BYTES:
            self._transport.write(shot.wire + shot.body)
            return
        self._transport.write(shot.wire)
        self._unwritten = memoryview(shot.body)
        self._write_pieces()

    def _write_pieces(self) -> None:
        while self._unwritten and not self._write_paused and self._transport is not None:
            piece, self._unwritten = self._unwritten[:PIECE_BYTES], self._unwritten[PIECE_BYTES:]
            self._transport.write(piece)

    def pause_writing(self) -> None:
        self._write_paused = True

    def resume_writing(self) -> None:
        self._write_paused = False
        self._write_pieces()

    def _all_written(self) -> bool:
        return (
            not self._unwritten
            and self._transport is not None
            and not self._transport.get_write_buffer_size()
        )

    # --- the transport's calls -------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._parser = httptools.HttpResponseParser(self)
        first = cast(Request, self._request)
        if self._owner.opened(self, first):
            self._write(first)
        else:
            self.abort()

    def data_received(self, data: bytes) -> None:
        now_s = monotonic_s()
        if self._request is None or self._parser is None:
            self.abort()  # bytes that nobody asked for
            return
        self._wire_bytes += len(data)
        error = None
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            error = "bad_http"
        if self._body_bytes > self._answer_max_bytes:
            self._end_failed("answer_too_large")
        elif self._complete:
            self._keep_alive = self._keep_alive and error is None
            self._end_answered(now_s)
        elif error or self._overhead_bytes() > OVERHEAD_MAX_BYTES:
            self._end_failed("bad_http")

    def _overhead_bytes(self) -> int:
        """Beside the body; each byte of a body may take `OVERHEAD_PER_BYTE` on the wire, in the worst chunks."""
        return self._wire_bytes - (1 + OVERHEAD_PER_BYTE) * self._body_bytes

    def connection_lost(self, error: Exception | None) -> None:
        if self._request is not None:
            if error is None and self._in_body and self._ends_with_connection():
                self._end_answered(monotonic_s())
            elif self._wire_bytes:
                self._end_failed("half_answer")
            else:
                self._end_failed("closed" if error is None else "reset")
        self._transport = self._parser = None  # breaks the circle with the parser's callbacks
        self._owner.lost(self)

    # --- the parser's calls ----------------------------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        self._surplus = self._complete

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._in_body and not self._complete:  # trailers tell nothing
            self._headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        if not self._complete:
            self._in_body = True
            self._status = cast(httptools.HttpResponseParser, self._parser).get_status_code()

    def on_body(self, data: bytes) -> None:
        if self._complete or self._request is None:
            return
        self._body_bytes += len(data)
        if self._request.shot.judge is not None and self._body_bytes <= self._answer_max_bytes:
            self._body.append(data)

    def on_message_complete(self) -> None:
        if self._complete:
            return
        self._in_body = False
        if self._status < 200:  # an interim answer: the real one follows
            self._headers.clear()
            return
        self._complete = True
        self._keep_alive = cast(httptools.HttpResponseParser, self._parser).should_keep_alive()

    # --- the end of a request --------------------------------------------------------------------------------------------

    def _ends_with_connection(self) -> bool:
        """RFC 9112, 6.3: a body without a length and not chunked ends when the connection does."""
        headers = dict(self._headers)
        chunked = headers.get(b"transfer-encoding", b"").lower().endswith(b"chunked")
        return b"content-length" not in headers and not chunked

    def _end_answered(self, now_s: float) -> None:
        request = cast(Request, self._request)
        request.done_s = now_s
        request.answer = Answer(self._status, self._headers, b"".join(self._body))
        self.answered += 1
        # An answer that came before the whole body had left is right, but the rest of the body is in the way.
        self._end(None, keep=self._keep_alive and not self._surplus and self._all_written())

    def _end_failed(self, error: str) -> None:
        self._end(error, keep=False)

    def _end(self, error: str | None, *, keep: bool) -> None:
        request = cast(Request, self._request)
        request.received_bytes = self._body_bytes
        self._request = None
        if not keep:
            self.abort()
        self._owner.ended(self, request, error)

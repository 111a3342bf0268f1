"""Request bodies: bounded in bytes and in time, asked for only after the door has agreed."""

from __future__ import annotations

import asyncio

from headrace.errors import BodyTooLarge, ClientGone, Overloaded, RequestError, SlowSender, UnsupportedMedia
from headrace.records.image import Data
from headrace.records.settings import Settings
from headrace.serve.http.exchange import Request
from headrace.serve.http.ticks import Patience, Ticker
from headrace.serve.http_protocol import DIRECT_MIN_BYTES, read_body
from headrace.units import format_bytes


class Bodies:
    """Reads bodies, and knows how many bytes of them are inside, arriving or held by requests."""

    def __init__(self, ticker: Ticker) -> None:
        self._ticker = ticker
        self._inside_bytes = 0
        self._arriving: set[Patience] = set()

    def hurry(self, deadline_s: float) -> None:
        """The server is going: bodies that have not arrived by then are given up."""
        for patience in self._arriving:
            patience.hurry(deadline_s)

    async def read(self, request: Request) -> Data:
        """The whole body. Raises BodyTooLarge, SlowSender, ClientGone, Overloaded.

        The room it takes is the request's until `leave`.
        """
        settings = request.settings
        length = announced(request, settings)
        wait_s = settings.request_body_timeout_ms / 1e3
        patience = Patience(asyncio.current_task(), request.arrived_s + wait_s)
        self._ticker.add(patience)
        self._arriving.add(patience)
        try:
            if length is not None and length > DIRECT_MIN_BYTES:
                return await self._read_large(request, length)
            return await self._read_pieces(request)
        except asyncio.CancelledError:
            if not patience.spent:
                raise
            patience.take_back()
            raise SlowSender(
                f"the body did not arrive within {settings.request_body_timeout_ms:g} ms (request.body_timeout_ms)"
            ) from None
        finally:
            self._arriving.discard(patience)
            self._ticker.remove(patience)

    def leave(self, request: Request) -> None:
        """The request is answered or gone."""
        self._inside_bytes -= request.room_bytes
        request.room_bytes = 0

    async def _read_large(self, request: Request, length: int) -> bytearray:
        self._make_room(request, length)
        body = bytearray(length)
        with memoryview(body) as view:
            size = await read_body(request.scope, request.receive, view)
        if size < length:
            del body[size:]
        return body

    async def _read_pieces(self, request: Request) -> bytes:
        """A small body, mostly in one piece, or one of unknown length. What is small takes no room."""
        pieces: list[bytes] = []
        size, most_bytes = 0, request.settings.limits_max_body_bytes
        while True:
            message = await request.receive()
            if message["type"] == "http.disconnect":
                raise ClientGone("the client went away before its body was complete")
            piece: bytes = message.get("body", b"")
            if size + len(piece) > most_bytes:
                raise too_large("more", most_bytes)
            size += len(piece)
            pieces.append(piece)
            if size - request.room_bytes > DIRECT_MIN_BYTES:
                self._make_room(request, size - request.room_bytes)
            if not message.get("more_body", False):
                return piece if len(pieces) == 1 else b"".join(pieces)

    def _make_room(self, request: Request, more_bytes: int) -> None:
        most_bytes = request.settings.door_max_inside_bytes
        if self._inside_bytes + more_bytes > most_bytes:
            raise Overloaded(
                f"bodies of {format_bytes(self._inside_bytes)} are inside, {format_bytes(more_bytes)} more do not fit into "
                f"door.max_inside_bytes = {format_bytes(most_bytes)}; try again"
            )
        self._inside_bytes += more_bytes
        request.room_bytes += more_bytes


def announced(request: Request, settings: Settings) -> int | None:
    """The body's length as announced. Raises BodyTooLarge, or UnsupportedMedia for a compressed one, before a byte of it is read."""
    coding = request.fields.get(b"content-encoding", b"identity")
    if coding.lower() != b"identity":
        raise UnsupportedMedia(
            f"Content-Encoding {coding[:40].decode('latin-1')!r} is not read here: send the body as it is"
        )
    text = request.fields.get(b"content-length")
    if text is None:
        return None
    if not text.isdigit() or len(text) > 18:
        raise RequestError("Content-Length is no number")
    length = int(text)
    if length > settings.limits_max_body_bytes:
        raise too_large(f"{format_bytes(length)}", settings.limits_max_body_bytes)
    return length


def too_large(size: str, most_bytes: int) -> BodyTooLarge:
    """The error, saying what is allowed."""
    return BodyTooLarge(f"the body has {size}, limits.max_body_bytes allows {format_bytes(most_bytes)}")

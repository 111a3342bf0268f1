"""Request bodies: bounded in bytes and in time, asked for only after the door has agreed."""

from __future__ import annotations

import asyncio

from headrace.errors import BodyTooLarge, ClientGone, Overloaded, RequestError, SlowSender, UnsupportedMedia
from headrace.records.settings import Settings
from headrace.serve.http.exchange import Request
from headrace.serve.http.ticks import Patience, Ticker
from headrace.serve.http_protocol import DIRECT_MIN_BYTES, Receive, read_body
from headrace.units import format_bytes

KEPT_BUFFERS = 4
KEPT_BYTES = 16 * 2**20
"""Of one buffer: a rare giant is given back to the system."""
LARGEST_AT_ONCE = 8
"""The bodies on their way at once may have as many bytes as so many of the largest."""


class Bodies:
    """Reads bodies. Large ones go through a few buffers that are used again."""

    def __init__(self, ticker: Ticker) -> None:
        self._ticker = ticker
        self._free: list[bytearray] = []
        self._arriving_bytes = 0

    async def read(self, request: Request) -> bytes:
        """The whole body. Raises BodyTooLarge, SlowSender, ClientGone, Overloaded."""
        settings = request.settings
        length = announced(request, settings)
        wait_s = settings.request_body_timeout_ms / 1e3
        patience = Patience(asyncio.current_task(), request.arrived_s + wait_s)
        self._ticker.add(patience)
        try:
            if length is not None and length > DIRECT_MIN_BYTES:
                return await self._read_large(request, length, settings)
            return await self._read_pieces(request.receive, settings)
        except asyncio.CancelledError:
            if not patience.spent:
                raise
            patience.take_back()
            raise SlowSender(
                f"the body did not arrive within {settings.request_body_timeout_ms:g} ms (request.body_timeout_ms)"
            ) from None
        finally:
            self._ticker.remove(patience)

    async def _read_large(self, request: Request, length: int, settings: Settings) -> bytes:
        self._make_room(length, settings)
        buffer = self._take(length)
        try:
            with memoryview(buffer) as view:
                size = await read_body(request.scope, request.receive, view[:length])
                return bytes(view[:size])
        finally:
            self._arriving_bytes -= length
            self._give_back(buffer)

    async def _read_pieces(self, receive: Receive, settings: Settings) -> bytes:
        """A small body, mostly in one piece, or one of unknown length. What is small takes no room."""
        pieces: list[bytes] = []
        size, taken, most_bytes = 0, 0, settings.limits_max_body_bytes
        try:
            while True:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise ClientGone("the client went away before its body was complete")
                piece: bytes = message.get("body", b"")
                if size + len(piece) > most_bytes:
                    raise too_large("more", most_bytes)
                size += len(piece)
                pieces.append(piece)
                if size - taken > DIRECT_MIN_BYTES:
                    self._make_room(size - taken, settings)
                    taken = size
                if not message.get("more_body", False):
                    return piece if len(pieces) == 1 else b"".join(pieces)
        finally:
            self._arriving_bytes -= taken

    def _make_room(self, size: int, settings: Settings) -> None:
        if self._arriving_bytes + size > LARGEST_AT_ONCE * settings.limits_max_body_bytes:
            raise Overloaded(
                f"bodies of {format_bytes(self._arriving_bytes)} are arriving, {format_bytes(size)} more do not fit; try again"
            )
        self._arriving_bytes += size

    def _take(self, length: int) -> bytearray:
        for index, buffer in enumerate(self._free):
            if len(buffer) >= length:
                return self._free.pop(index)
        return bytearray(length)

    def _give_back(self, buffer: bytearray) -> None:
        if len(buffer) <= KEPT_BYTES:
            self._free.append(buffer)
            self._free.sort(key=len)
            del self._free[:-KEPT_BUFFERS]


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

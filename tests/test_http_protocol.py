"""The protocol under uvicorn, on real sockets and both event loops; and the names inside uvicorn that it leans on."""

from __future__ import annotations

import asyncio
import hashlib
import inspect
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import httptools
import pytest
import uvicorn
import uvloop
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

from headrace.errors import BodyTooLarge, ClientGone
from headrace.serve.http_protocol import (
    DIRECT_MIN_BYTES,
    EXTENSION,
    BodyProtocol,
    BoundedHeadProtocol,
    read_body,
)

PATIENCE_S = 30.0
LOOPS = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}
SIZES = (
    0,
    1,
    20_000,
    DIRECT_MIN_BYTES - 1,
    DIRECT_MIN_BYTES,
    DIRECT_MIN_BYTES + 1,
    DIRECT_MIN_BYTES + 4096,
    3_500_000,
)
HEAD = b"POST / HTTP/1.1\r\nHost: x\r\n"


def noise(size: int, seed: int = 0) -> bytes:
    """Bytes in which a shift, a gap or a repetition shows."""
    return hashlib.shake_128(b"%d" % seed).digest(size)


def post(body: bytes, *fields: bytes) -> bytes:
    return b"%bContent-Length: %d\r\n%b\r\n%b" % (HEAD, len(body), b"".join(fields), body)


# --- what is leaned on -------------------------------------------------------------------------------------------------------


def test_the_names_inside_uvicorn_are_where_they_were() -> None:
    parameters = inspect.signature(RequestResponseCycle.__init__).parameters
    assert {"scope", "transport", "flow", "message_event", "expect_100_continue", "keep_alive"} <= set(
        parameters
    )
    cycle = a_cycle()
    assert cycle.body == bytearray() and isinstance(cycle.body, bytearray)
    assert cycle.more_body is True
    assert cycle.response_complete is False
    assert cycle.keep_alive is True
    assert cycle.disconnected is False
    assert cycle.waiting_for_100_continue is True
    assert isinstance(cycle.message_event, asyncio.Event)


def a_cycle() -> RequestResponseCycle:
    given: dict[str, Any] = dict.fromkeys(inspect.signature(RequestResponseCycle).parameters)
    return RequestResponseCycle(
        **{**given, "message_event": asyncio.Event(), "expect_100_continue": True, "keep_alive": True}
    )


@pytest.mark.parametrize(
    "method",
    [
        "connection_made",
        "connection_lost",
        "data_received",
        "on_headers_complete",
        "on_response_complete",
        "pause_writing",
        "resume_writing",
    ],
)
def test_the_callbacks_of_the_protocol_are_where_they_were(method: str) -> None:
    assert callable(getattr(HttpToolsProtocol, method))


def test_the_state_of_a_connection_is_where_it_was() -> None:
    with asyncio.Runner() as runner:
        protocol = runner.run(a_protocol())
    for name in ("loop", "parser", "scope", "cycle", "transport", "flow", "headers"):
        assert hasattr(protocol, name), name
    assert protocol.scope is None and protocol.cycle is None
    assert hasattr(protocol.parser, "set_dangerous_leniencies")
    assert isinstance(protocol.parser, httptools.HttpRequestParser)


async def a_protocol() -> HttpToolsProtocol:
    return HttpToolsProtocol(uvicorn.Config(answer_length), ServerState(), {})


def test_flow_control_is_the_one_gate_of_reading() -> None:
    class Transport:
        def __init__(self) -> None:
            self.calls: list[str] = []

        def pause_reading(self) -> None:
            self.calls.append("pause")

        def resume_reading(self) -> None:
            self.calls.append("resume")

    transport = Transport()
    flow = FlowControl(transport)  # type: ignore[arg-type]
    flow.pause_reading()
    flow.pause_reading()
    flow.resume_reading()
    flow.resume_reading()
    assert transport.calls == ["pause", "resume"]


def test_the_scope_gets_its_method_when_the_head_is_complete() -> None:
    with asyncio.Runner() as runner:
        protocol = runner.run(a_protocol())
    protocol.on_message_begin()
    assert protocol.scope is not None and "method" not in protocol.scope


# --- a server around an application ------------------------------------------------------------------------------------------

App = Callable[[Any, Any, Any], Awaitable[None]]


class Place:
    """A listening server, and connections to it."""

    def __init__(self, port: int, state: ServerState) -> None:
        self.port = port
        self.state = state
        self._writers: list[asyncio.StreamWriter] = []

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        self._writers.append(writer)
        return reader, writer

    async def close(self) -> None:
        for writer in self._writers:
            writer.close()
        while self.state.connections or self.state.tasks:
            await asyncio.sleep(0.001)


def on(
    loop: str,
    app: App,
    visit: Callable[[Place], Coroutine[Any, Any, None]],
    protocol: type[HttpToolsProtocol] = BodyProtocol,
) -> None:
    """Runs `visit` against `app`; every connection and task of the server must end after it."""

    async def main() -> None:
        config = uvicorn.Config(app, ws="none", lifespan="off", log_config=None)
        config.load()
        state = ServerState()
        server = await asyncio.get_running_loop().create_server(
            lambda: protocol(config, state, {}), "127.0.0.1", 0
        )
        place = Place(server.sockets[0].getsockname()[1], state)
        try:
            await asyncio.wait_for(visit(place), PATIENCE_S)
            await asyncio.wait_for(place.close(), PATIENCE_S)
        finally:
            server.close()

    with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
        runner.run(main())


async def respond(send: Any, body: bytes, status: int = 200) -> None:
    fields = [(b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": status, "headers": fields})
    await send({"type": "http.response.body", "body": body})


async def answer_length(scope: Any, receive: Any, send: Any) -> None:
    """Reads the body into a buffer that is larger, and answers with its digest."""
    buffer = bytearray(b"\xaa" * 4_000_000)
    with memoryview(buffer) as view:
        length = await read_body(scope, receive, view)
    assert buffer[length : length + 64] == b"\xaa" * 64, "written past the end"
    await respond(send, digest(bytes(buffer[:length])))


def digest(body: bytes) -> bytes:
    return b"%d %b" % (len(body), hashlib.sha256(body).hexdigest().encode())


async def read_answer(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    head = await reader.readuntil(b"\r\n\r\n")
    status = int(head.split(b" ", 2)[1])
    if status == 100:
        return status, b""
    fields = dict(line.lower().split(b": ", 1) for line in head.split(b"\r\n")[1:-2])
    return status, await reader.readexactly(int(fields[b"content-length"]))


@pytest.fixture(params=list(LOOPS))
def loop(request: pytest.FixtureRequest) -> str:
    return str(request.param)


# --- bodies ------------------------------------------------------------------------------------------------------------------


def test_bodies_of_all_sizes_arrive_as_sent_on_one_connection(loop: str) -> None:
    async def visit(place: Place) -> None:
        reader, writer = await place.connect()
        for seed, size in enumerate(SIZES + SIZES[::-1]):
            body = noise(size, seed)
            writer.write(post(body))
            assert await read_answer(reader) == (200, digest(body)), size

    on(loop, answer_length, visit)


@pytest.mark.parametrize("piece", [17_001, 65_536, 262_147])
def test_bodies_in_odd_pieces(loop: str, piece: int) -> None:
    async def visit(place: Place) -> None:
        reader, writer = await place.connect()
        for size in (DIRECT_MIN_BYTES + 1, 700_001):
            body = noise(size)
            request = post(body)
            for cut in (0, 1, 20, len(request) - size - 1, len(request) - size, len(request) - size + 1):
                await send_in_pieces(writer, request, cut, piece)
                assert await read_answer(reader) == (200, digest(body)), (size, cut)

    on(loop, answer_length, visit)


async def send_in_pieces(writer: asyncio.StreamWriter, request: bytes, cut: int, piece: int) -> None:
    """First `cut` bytes, then pieces; the loop turns after each, so that the server sees some of them alone."""
    for start, end in [(0, cut), *((at, at + piece) for at in range(cut, len(request), piece))]:
        writer.write(request[start:end])
        await writer.drain()
        await asyncio.sleep(0)


@pytest.mark.parametrize("first", [20_000, DIRECT_MIN_BYTES + 1, 3_500_000])
@pytest.mark.parametrize("second", [0, 20_000, 300_000])
def test_requests_pipelined_behind_a_body(loop: str, first: int, second: int) -> None:
    bodies = [noise(first, 1), noise(second, 2), noise(second, 3)]

    async def visit(place: Place) -> None:
        reader, writer = await place.connect()
        writer.write(b"".join(map(post, bodies)))
        for body in bodies:
            assert await read_answer(reader) == (200, digest(body))
        writer.write(post(bodies[0]))
        assert await read_answer(reader) == (200, digest(bodies[0]))

    on(loop, answer_length, visit)


def test_the_direct_way_is_taken_above_the_threshold_only(loop: str) -> None:
    async def tell(scope: Any, receive: Any, send: Any) -> None:
        direct = EXTENSION in scope.get("extensions", {})
        with memoryview(bytearray(DIRECT_MIN_BYTES + 1)) as view:
            await read_body(scope, receive, view)
        assert "extensions" not in scope, "the scope would keep the connection alive"
        await respond(send, b"direct" if direct else b"stock")

    async def visit(place: Place) -> None:
        reader, writer = await place.connect()
        for extra, expected in ((0, b"stock"), (1, b"direct"), (0, b"stock")):
            writer.write(post(noise(DIRECT_MIN_BYTES + extra)))
            assert await read_answer(reader) == (200, expected)

    on(loop, tell, visit)


@pytest.mark.parametrize("size", [5, 20_000, 300_000])
def test_chunked_bodies(loop: str, size: int) -> None:
    body = noise(size)
    pieces = [body[at : at + 7_777] for at in range(0, size, 7_777)]
    chunks = b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces)

    async def visit(place: Place) -> None:
        reader, writer = await place.connect()
        for _ in range(2):
            writer.write(HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + chunks + b"0\r\n\r\n")
            assert await read_answer(reader) == (200, digest(body))

    on(loop, answer_length, visit)


@pytest.mark.parametrize("size", [20_000, 300_000])
def test_a_client_that_waits_for_100_continue(loop: str, size: int) -> None:
    body = noise(size)

    async def visit(place: Place) -> None:
        reader, writer = await place.connect()
        for _ in range(2):
            head, _, _ = post(body, b"Expect: 100-continue\r\n").partition(b"\r\n\r\n")
            writer.write(head + b"\r\n\r\n")
            assert await read_answer(reader) == (100, b"")
            writer.write(body)
            assert await read_answer(reader) == (200, digest(body))

    on(loop, answer_length, visit)


def test_a_refused_body_is_not_asked_for(loop: str) -> None:
    async def refuse(scope: Any, receive: Any, send: Any) -> None:
        await respond(send, b"no", 413)

    async def visit(place: Place) -> None:
        reader, writer = await place.connect()
        head, _, _ = post(noise(300_000), b"Expect: 100-continue\r\n").partition(b"\r\n\r\n")
        writer.write(head + b"\r\n\r\n")
        assert await read_answer(reader) == (413, b"no")

    on(loop, refuse, visit)


def test_a_body_that_is_refused_and_sent_all_the_same(loop: str) -> None:
    async def refuse_first(scope: Any, receive: Any, send: Any) -> None:
        if scope["path"] == "/refused":
            await respond(send, b"no", 413)
        else:
            await answer_length(scope, receive, send)

    async def visit(place: Place) -> None:
        reader, writer = await place.connect()
        writer.write(post(noise(3_000_000)).replace(b"POST /", b"POST /refused", 1))
        assert await read_answer(reader) == (413, b"no")
        writer.write(post(noise(300_000)))
        assert await read_answer(reader) == (200, digest(noise(300_000)))

    on(loop, refuse_first, visit)


@pytest.mark.parametrize("size", [20_000, 300_000])
@pytest.mark.parametrize("chunked", [False, True])
def test_a_body_larger_than_the_buffer(loop: str, size: int, chunked: bool) -> None:
    async def small_buffer(scope: Any, receive: Any, send: Any) -> None:
        buffer = bytearray(10_000)
        with memoryview(buffer) as view, pytest.raises(BodyTooLarge, match="10000"):
            await read_body(scope, receive, view[:10_000])
        await respond(send, b"too large", 413)

    async def visit(place: Place) -> None:
        reader, writer = await place.connect()
        body = noise(size)
        if chunked:
            writer.write(HEAD + b"Transfer-Encoding: chunked\r\n\r\n%x\r\n%b\r\n0\r\n\r\n" % (size, body))
        else:
            writer.write(post(body))
        assert await read_answer(reader) == (413, b"too large")
        writer.write(post(b""))

    on(loop, small_buffer, visit)


# --- clients that go away, readers that give up ------------------------------------------------------------------------------


@pytest.mark.parametrize("sent", [0, 1, 20_000, 299_999])
@pytest.mark.parametrize("abort", [False, True])
def test_a_client_that_goes_away_inside_its_body(loop: str, sent: int, abort: bool) -> None:
    async def visit(place: Place) -> None:
        _, writer = await place.connect()
        request = post(noise(300_000))
        writer.write(request[: len(request) - 300_000 + sent])
        await writer.drain()
        await asyncio.wait_for(started.wait(), PATIENCE_S)
        if abort:
            writer.transport.abort()
        else:
            writer.close()
        with pytest.raises(ClientGone):
            await asyncio.wait_for(asyncio.shield(reading[0]), PATIENCE_S)

    started = asyncio.Event()
    reading: list[asyncio.Future[int]] = []

    async def read(scope: Any, receive: Any, send: Any) -> None:
        with memoryview(bytearray(300_000)) as view:
            reading.append(asyncio.ensure_future(read_body(scope, receive, view)))
            started.set()
            await asyncio.wait(reading)

    on(loop, read, visit)


def test_a_client_that_went_away_before_its_body_was_asked_for(loop: str) -> None:
    began, gone, told = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def late(scope: Any, receive: Any, send: Any) -> None:
        began.set()
        await gone.wait()
        with memoryview(bytearray(300_000)) as view, pytest.raises(ClientGone):
            await read_body(scope, receive, view)
        told.set()

    async def visit(place: Place) -> None:
        _, writer = await place.connect()
        writer.write(post(noise(300_000))[:1000])
        await asyncio.wait_for(began.wait(), PATIENCE_S)
        writer.transport.abort()
        gone.set()
        await asyncio.wait_for(told.wait(), PATIENCE_S)

    on(loop, late, visit)


def test_a_connection_that_the_server_lost_before_the_body_was_asked_for(loop: str) -> None:
    began, lost, told = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def late(scope: Any, receive: Any, send: Any) -> None:
        began.set()
        await lost.wait()
        with memoryview(bytearray(300_000)) as view, pytest.raises(ClientGone, match="before its body"):
            await read_body(scope, receive, view)
        told.set()

    async def visit(place: Place) -> None:
        _, writer = await place.connect()
        writer.write(post(noise(300_000))[:1000])
        await asyncio.wait_for(began.wait(), PATIENCE_S)
        for connection in list(place.state.connections):
            connection.transport.abort()
        while place.state.connections:
            await asyncio.sleep(0.001)
        lost.set()
        await asyncio.wait_for(told.wait(), PATIENCE_S)

    on(loop, late, visit)


def test_receive_tells_of_the_disconnect_after_the_body(loop: str) -> None:
    began, told = asyncio.Event(), asyncio.Event()

    async def wait(scope: Any, receive: Any, send: Any) -> None:
        with memoryview(bytearray(300_000)) as view:
            await read_body(scope, receive, view)
        began.set()
        assert (await receive())["type"] == "http.disconnect"
        told.set()

    async def visit(place: Place) -> None:
        _, writer = await place.connect()
        writer.write(post(noise(300_000)))
        await asyncio.wait_for(began.wait(), PATIENCE_S)
        assert not told.is_set()
        writer.close()
        await asyncio.wait_for(told.wait(), PATIENCE_S)

    on(loop, wait, visit)


@pytest.mark.parametrize("sent", [0, 100_000])
def test_a_cancelled_read_never_writes_again_and_costs_the_connection(loop: str, sent: int) -> None:
    buffer = bytearray(300_000)
    view = memoryview(buffer)
    some, rest = asyncio.Event(), asyncio.Event()

    async def give_up(scope: Any, receive: Any, send: Any) -> None:
        with view[:] as whole:
            reading = asyncio.ensure_future(read_body(scope, receive, whole))
            while sent and not any(buffer[-50 + sent // 2 : sent // 2]):
                await asyncio.sleep(0.001)
            await asyncio.sleep(0)
            reading.cancel()
            await asyncio.wait([reading])
            assert reading.cancelled()
        buffer[:] = bytes(len(buffer))
        some.set()
        await rest.wait()
        for _ in range(20):
            await asyncio.sleep(0.001)
        assert not any(buffer), "written after the cancellation"
        await respond(send, b"gave up", 408)

    async def visit(place: Place) -> None:
        reader, writer = await place.connect()
        request = post(noise(300_000))
        head = len(request) - 300_000
        writer.write(request[: head + sent])
        await asyncio.wait_for(some.wait(), PATIENCE_S)
        writer.write(request[head + sent :])
        rest.set()
        answer = await reader.readuntil(b"\r\n\r\n")
        assert answer.startswith(b"HTTP/1.1 408 ") and b"connection: close" in answer
        try:
            assert await reader.read() == b"gave up"
        except ConnectionResetError:  # what was not read makes the kernel reset
            pass
        view.release()
        buffer.clear()  # raises while anybody still holds a part of it

    on(loop, give_up, visit)


def test_many_connections_at_once(loop: str) -> None:
    async def visit(place: Place) -> None:
        await asyncio.gather(*(converse(place, number) for number in range(12)))

    async def converse(place: Place, number: int) -> None:
        reader, writer = await place.connect()
        for turn in range(4):
            body = noise(50_000 + 40_000 * ((number + turn) % 4), number)
            writer.write(post(body))
            assert await read_answer(reader) == (200, digest(body))

    on(loop, answer_length, visit)


# --- heads -------------------------------------------------------------------------------------------------------------------


class Hasty(BodyProtocol):
    """Has no patience."""

    head_timeout_s = 0.05


@pytest.mark.parametrize(
    ("sent", "told"),
    [
        (b"", b""),
        (b"P", b"HTTP/1.1 408 "),
        (HEAD, b"HTTP/1.1 408 "),
        (HEAD + b"X-Slow: ye", b"HTTP/1.1 408 "),
    ],
)
def test_a_head_that_does_not_come(loop: str, sent: bytes, told: bytes) -> None:
    async def visit(place: Place) -> None:
        reader, writer = await place.connect()
        writer.write(sent)
        answer = await reader.read()
        assert answer.startswith(told) and bool(answer) == bool(told)

    on(loop, answer_length, visit, Hasty)


def test_a_second_head_that_does_not_come(loop: str) -> None:
    async def visit(place: Place) -> None:
        reader, writer = await place.connect()
        writer.write(post(b"abc"))
        assert await read_answer(reader) == (200, digest(b"abc"))
        writer.write(HEAD)
        assert (await reader.read()).startswith(b"HTTP/1.1 408 ")

    on(loop, answer_length, visit, Hasty)


def test_a_refused_body_that_does_not_come(loop: str) -> None:
    async def refuse(scope: Any, receive: Any, send: Any) -> None:
        await respond(send, b"no", 413)

    async def visit(place: Place) -> None:
        reader, writer = await place.connect()
        writer.write(post(noise(300_000))[:1000])
        assert await read_answer(reader) == (413, b"no")
        writer.write(b"x")
        assert await reader.read() == b""

    on(loop, refuse, visit, Hasty)


def test_a_slow_body_or_answer_is_not_the_heads_business(loop: str) -> None:
    async def slow(scope: Any, receive: Any, send: Any) -> None:
        await asyncio.sleep(4 * Hasty.head_timeout_s)
        await answer_length(scope, receive, send)

    async def visit(place: Place) -> None:
        for size in (20_000, 300_000):
            reader, writer = await place.connect()
            writer.write(post(noise(size)))
            assert await read_answer(reader) == (200, digest(noise(size)))

    on(loop, slow, visit, Hasty)


@pytest.mark.parametrize("protocol", [BoundedHeadProtocol, BodyProtocol])
def test_a_head_without_an_end(loop: str, protocol: type[HttpToolsProtocol]) -> None:
    async def visit(place: Place) -> None:
        reader, writer = await place.connect()
        answer = await flooded(reader, writer, HEAD, b"X-Filler: %b\r\n" % (b"y" * 1000))
        assert not answer or answer.startswith(b"HTTP/1.1 431 ")

    on(loop, answer_length, visit, protocol)


def test_one_field_without_an_end(loop: str) -> None:
    async def visit(place: Place) -> None:
        reader, writer = await place.connect()
        answer = await flooded(reader, writer, HEAD + b"X-Filler: ", b"y" * 1000)
        assert not answer or answer.startswith(b"HTTP/1.1 431 ")

    on(loop, answer_length, visit)


async def flooded(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, head: bytes, filler: bytes
) -> bytes:
    """Sends filler until the server has had enough; what it says, if its reset lets that through."""
    writer.write(head)
    sent = 0
    while not reader.at_eof() and not writer.is_closing():
        writer.write(filler)
        sent += len(filler)
        assert sent < 2 * 2**20, "the server takes any amount"
        try:
            await writer.drain()
        except ConnectionError:
            break
        await asyncio.sleep(0)
    try:
        return await reader.read()
    except ConnectionError:
        return b""


def test_431_is_told_to_a_client_that_stops(loop: str) -> None:
    async def visit(place: Place) -> None:
        reader, writer = await place.connect()
        writer.write(HEAD + b"X-Filler: " + b"y" * (BodyProtocol.head_max_bytes + 1))
        assert (await reader.read()).startswith(b"HTTP/1.1 431 ")

    on(loop, answer_length, visit)


def test_heads_below_the_limit_pass_again_and_again(loop: str) -> None:
    async def visit(place: Place) -> None:
        reader, writer = await place.connect()
        for _ in range(5):
            writer.write(post(b"abc", b"X-Filler: %b\r\n" % (b"y" * 40_000)))
            assert await read_answer(reader) == (200, digest(b"abc"))

    on(loop, answer_length, visit)


def test_works_without_the_protocol() -> None:
    async def visit(place: Place) -> None:
        reader, writer = await place.connect()
        for size in (20_000, 3_500_000):
            writer.write(post(noise(size)))
            assert await read_answer(reader) == (200, digest(noise(size)))

    on("uvloop", answer_length, visit, HttpToolsProtocol)


def test_the_server_uses_it() -> None:
    from headrace.serve.server import _uvicorn

    assert _uvicorn(answer_length, BodyProtocol).config.http is BodyProtocol


# --- what a parser would keep or misread -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("start", "filler"), [(b"0\r\n", b"a: %b\r\n" % (b"b" * 1000)), (b"", b"3;%b\r\nabc\r\n" % (b"x" * 1000))]
)
def test_trailers_and_chunk_extensions_are_bounded(loop: str, start: bytes, filler: bytes) -> None:
    async def visit(place: Place) -> None:
        reader, writer = await place.connect()
        await flooded(reader, writer, HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + start, filler)

    on(loop, gone_is_fine, visit)


async def gone_is_fine(scope: Any, receive: Any, send: Any) -> None:
    try:
        await answer_length(scope, receive, send)
    except ClientGone:
        pass


def test_an_upgrade_is_refused_and_its_body_is_no_request(loop: str) -> None:
    inner = b"GET /smuggled HTTP/1.1\r\nHost: x\r\n\r\n"

    async def visit(place: Place) -> None:
        reader, writer = await place.connect()
        fields = b"Upgrade: h2c\r\nConnection: Upgrade\r\nContent-Length: %d\r\n\r\n" % len(inner)
        writer.write(HEAD + fields + inner)
        answer = await reader.read()
        assert answer.startswith(b"HTTP/1.1 400 ") and answer.count(b"HTTP/1.1") == 1

    on(loop, answer_length, visit)

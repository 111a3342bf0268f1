"""The load tester's HTTP client against real servers that answer well, badly, oddly, late or not at all."""

from __future__ import annotations

import asyncio
import errno
import shutil
import socket
import ssl
import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.load_support import (
    QUICK,
    Exchange,
    Seen,
    answer,
    check_books,
    every,
    run_open,
    serving,
    shots,
    well,
)

from headrace.errors import UsageError
from headrace.load.engine.pool import failure_to_connect
from headrace.load.preflight import ask_once
from headrace.load.run import Limits, Phase, drive, open_loop
from headrace.load.shot import Headers, Shot, Target

CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3;x=y\r\nabc\r\n1\r\nd\r\n0\r\nT: v\r\n\r\n"
UNTIL_CLOSE = b"HTTP/1.1 200 OK\r\nServer: x\r\n\r\nabcd"


def _wants_abcd(status: int, headers: Headers, body: bytes) -> str | None:
    """Trailers are no headers."""
    right = status == 200 and body == b"abcd" and not any(name == b"t" for name, _ in headers)
    return None if right else "wrong_answer"


# --- answers, whole and cut ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("whole", [answer(b"abcd"), CHUNKED], ids=["length", "chunked"])
def test_an_answer_cut_at_any_byte_fails_as_half_an_answer(whole: bytes) -> None:
    async def cut(exchange: Exchange) -> None:
        exchange.write(whole[: exchange.number])
        exchange.close = True

    count = len(whole) + 1
    seen = run_open(cut, every(0.001, count), shots=shots(judge=_wants_abcd))
    expected = {0: "closed", **dict.fromkeys(range(1, count - 1), "half_answer"), count - 1: None}
    assert seen.errors == expected


def test_an_answer_that_ends_with_its_connection_is_whole_once_its_head_is() -> None:
    async def cut(exchange: Exchange) -> None:
        exchange.write(UNTIL_CLOSE[: exchange.number])
        exchange.close = True

    head = UNTIL_CLOSE.index(b"\r\n\r\n") + 4
    seen = run_open(cut, every(0.001, len(UNTIL_CLOSE) + 1), shots=shots(judge=_wants_abcd))
    assert [seen.errors[n] for n in range(1, head)] == ["half_answer"] * (head - 1)
    assert [seen.errors[n] for n in range(head, head + 5)] == ["wrong_answer"] * 4 + [None]


@pytest.mark.parametrize("whole", [answer(b"abcd"), CHUNKED], ids=["length", "chunked"])
def test_answers_in_pieces_of_any_size_are_read(whole: bytes) -> None:
    async def dribble(exchange: Exchange) -> None:
        for at in range(0, len(whole), exchange.number + 1):
            exchange.write(whole[at : at + exchange.number + 1])
            await asyncio.sleep(0)

    seen = run_open(dribble, every(0.001, 30), shots=shots(judge=_wants_abcd))
    assert set(seen.errors.values()) == {None}
    assert {row.received_bytes for row in seen.rows} == {4}


def test_an_interim_answer_is_passed_over() -> None:
    async def interim(exchange: Exchange) -> None:
        exchange.write(b"HTTP/1.1 100 Continue\r\n\r\n" * exchange.number + answer(b"abcd"))

    seen = run_open(interim, every(0.001, 4), shots=shots(judge=_wants_abcd))
    assert [(row.error, row.status) for row in seen.rows] == [(None, 200)] * 4


@pytest.mark.parametrize(
    ("sent", "kind"),
    [
        (b"SSH-2.0-OpenSSH_9\r\n\r\n", "bad_http"),
        (b"\x00" * 100, "bad_http"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n", "bad_http"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999\r\n\r\n", "bad_http"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", "bad_http"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", "bad_http"),
        (b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n", "bad_http"),
        (b"HTTP/1.1 200 OK\r\nX: " + b"a" * 100_000, "bad_http"),
        (b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 20_000, "bad_http"),
        (b"HTTP/1.1 100 Continue\r\n\r\n" * 5_000, "bad_http"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n" + b"T: y\r\n" * 20_000, "bad_http"),
        (answer(b"x" * 5000), "answer_too_large"),
        (b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * 5000, "answer_too_large"),
        (answer(status=404), "http_404"),
        (answer(status=503), "http_503"),
        (answer(status=302), "http_302"),
        (answer(status=999), "http_999"),
        (b"HTTP/1.1 204 No Content\r\n\r\n", None),
        (b"HTTP/1.0 200 OK\r\nContent-Length: 1\r\n\r\nx", None),
    ],
)
def test_each_bad_answer_has_its_kind_and_harms_only_its_request(sent: bytes, kind: str | None) -> None:
    async def behaviour(exchange: Exchange) -> None:
        exchange.write(sent if exchange.number == 1 else answer())

    limits = Limits(answer_max_bytes=4000, timeout_s=5.0, grace_s=5.0)
    seen = run_open(behaviour, every(0.002, 4), limits=limits)
    assert seen.errors == {0: None, 1: kind, 2: None, 3: None}


def test_surplus_bytes_end_the_connection_and_reach_no_other_request() -> None:
    async def twice(exchange: Exchange) -> None:
        exchange.write(answer(b"abcd") + answer(b"evil", status=500))

    seen = run_open(twice, every(0.001, 20), shots=shots(judge=_wants_abcd), limits=Limits(connections=1))
    assert set(seen.errors.values()) == {None}
    assert seen.figures is not None and seen.figures.connections_opened == 20


# --- connections -----------------------------------------------------------------------------------------------------------


def test_a_connection_is_kept_and_used_again() -> None:
    seen = run_open(well, every(0.01, 30), limits=Limits(connections=1))
    assert seen.figures is not None and seen.figures.connections_opened == 1


@pytest.mark.parametrize("extra", [b"Connection: close\r\n", b""], ids=["announced", "not announced"])
def test_a_server_that_closes_after_each_answer_costs_a_connection_each(extra: bytes) -> None:
    async def closes(exchange: Exchange) -> None:
        exchange.write(answer(extra=extra))
        exchange.close = True

    seen = run_open(closes, every(0.005, 40))
    assert set(seen.errors.values()) == {None}
    assert seen.figures is not None and seen.figures.connections_opened == 40


def test_a_request_that_met_the_closing_of_an_idle_connection_is_sent_once_more() -> None:
    async def hangs_up_on_the_second(exchange: Exchange) -> None:
        exchange.close = exchange.served == 1
        if not exchange.close:
            exchange.write(answer())

    seen = run_open(hangs_up_on_the_second, every(0.02, 10), limits=Limits(connections=1))
    assert set(seen.errors.values()) == {None}
    assert seen.figures is not None and seen.figures.retried == seen.figures.phases[0].again == 9
    assert seen.figures.connections_opened == 10


def test_a_request_is_sent_once_more_only_once_and_not_after_half_an_answer() -> None:
    async def behaviour(exchange: Exchange) -> None:
        if exchange.number == 0:
            exchange.write(answer())
        elif exchange.number == 1 or exchange.served == 1:
            exchange.close = True
        elif exchange.number == 2:
            exchange.write(answer())
        else:
            exchange.write(b"HTTP/1.1 200")
            exchange.close = True

    seen = run_open(behaviour, every(0.05, 4), limits=Limits(connections=1))
    assert [seen.errors[n] for n in (0, 1, 2)] == [None, "closed", None]
    assert seen.figures is not None and seen.figures.retried == 2
    assert seen.errors[3] == "half_answer"


def test_sending_once_more_opens_no_more_connections_than_allowed() -> None:
    writers: set[asyncio.StreamWriter] = set()
    most = 0

    async def hangs_up_on_the_second(exchange: Exchange) -> None:
        nonlocal most
        writers.add(exchange.writer)
        most = max(most, sum(not writer.is_closing() for writer in writers))
        exchange.close = exchange.served == 1
        if not exchange.close:
            exchange.write(answer())

    seen = run_open(hangs_up_on_the_second, [0.0] * 30, limits=Limits(connections=2))
    assert set(seen.errors.values()) == {None}
    assert seen.figures is not None and seen.figures.retried > 0
    assert most == 2


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (ConnectionRefusedError(errno.ECONNREFUSED, ""), "refused"),
        (OSError(errno.EMFILE, ""), "no_socket"),
        (OSError(errno.EADDRNOTAVAIL, ""), "no_socket"),
        (OSError(errno.EHOSTUNREACH, ""), "unreachable"),
        (TimeoutError(errno.ETIMEDOUT, ""), "unreachable"),
        (ConnectionResetError(errno.ECONNRESET, ""), "reset"),
        (ssl.SSLError(1, ""), "tls"),
    ],
)
def test_connections_that_did_not_come_to_be_have_their_kinds(error: OSError, kind: str) -> None:
    assert failure_to_connect(error) == kind


def test_a_reset_is_told_from_a_close() -> None:
    async def resets(exchange: Exchange) -> None:
        if exchange.number % 2:
            exchange.write(answer(b"x" * 50)[:-10])
            await asyncio.sleep(0.02)
        exchange.reset()

    seen = run_open(resets, every(0.005, 6))
    assert [seen.errors[n] for n in (0, 2, 4)] == ["reset"] * 3
    assert {seen.errors[n] for n in (1, 3, 5)} == {"half_answer"}
    assert seen.figures is not None and seen.figures.retried == 0, "fresh connections were not idle"


def test_nobody_listening_is_refused_and_nothing_was_sent() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound and not listening
        seen = Seen()
        seen.figures = drive(
            open_loop(
                Target("127.0.0.1", taken.getsockname()[1]),
                iter(every(0.001, 20)),
                shots(),
                phases=[Phase("run", 1.0)],
                sink=seen.sink,
            )
        )
    check_books(seen)
    assert seen.figures.phases[0].failed == {"refused": 20}
    assert {(row.sent_s, row.sent_bytes) for row in seen.rows} == {(None, 0)}
    assert (seen.figures.connections_opened, seen.figures.connections_failed) == (0, 20)


def test_an_unknown_host_is_a_usage_error() -> None:
    with pytest.raises(UsageError, match="no-such-host"):
        drive(
            open_loop(
                Target("no-such-host.invalid", 80),
                iter([0.0]),
                shots(),
                phases=[Phase("run", 1.0)],
                sink=print,
            )
        )


# --- bodies ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [0, 1, 256 * 1024, 256 * 1024 + 1, 5_000_001])
def test_bodies_arrive_as_they_are(size: int) -> None:
    body = bytes(range(256)) * (size // 256 + 1)
    wanted = memoryview(body)[:size]

    async def compares(exchange: Exchange) -> None:
        exchange.write(answer(status=200 if exchange.body == wanted else 400))

    seen = run_open(compares, every(0.001, 3), shots=shots(wanted))
    assert set(seen.errors.values()) == {None}
    assert {row.sent_bytes for row in seen.rows} == {size}


def test_an_answer_before_the_body_has_left_counts_and_ends_the_connection() -> None:
    async def early() -> Seen:
        seen = Seen()

        async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(answer(status=429))
            await writer.drain()
            while await reader.read(65536):  # takes the rest, as a careful server does
                pass
            writer.close()

        server = await asyncio.start_server(refuse, "127.0.0.1", 0)
        target = Target("127.0.0.1", server.sockets[0].getsockname()[1])
        body = memoryview(bytes(40_000_000))
        seen.figures = await open_loop(
            target, iter([0.0, 0.4]), shots(body), phases=[Phase("run", 5.0)], sink=seen.sink, limits=QUICK
        )
        server.close()
        await server.wait_closed()
        return seen

    seen = asyncio.run(early())
    check_books(seen)
    assert [row.error for row in seen.rows] == ["http_429"] * 2
    assert seen.figures is not None and seen.figures.connections_opened == 2


# --- TLS -------------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Key and self-signed certificate of 127.0.0.1."""
    if shutil.which("openssl") is None:
        pytest.skip("no openssl command to make a certificate with")
    folder = tmp_path_factory.mktemp("tls")
    key, cert = folder / "key.pem", folder / "cert.pem"
    curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    names = ["-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"]
    command = [
        "openssl",
        "req",
        "-x509",
        "-days",
        "2",
        *curve,
        "-keyout",
        str(key),
        "-out",
        str(cert),
        *names,
    ]
    subprocess.run(command, check=True, capture_output=True, timeout=30)
    return key, cert


@pytest.mark.parametrize("trusted", [True, False])
@pytest.mark.parametrize("plain_loop", [True, False], ids=["asyncio", "uvloop"])
def test_certificates_are_checked(
    certificate: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch, trusted: bool, plain_loop: bool
) -> None:
    key, cert = certificate
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)
    if trusted:
        monkeypatch.setenv("SSL_CERT_FILE", str(cert))
    body = bytes(1_000_000)
    seen = run_open(well, every(0.01, 5), shots=shots(body), tls=context, plain_loop=plain_loop)
    assert set(seen.errors.values()) == {None if trusted else "tls"}
    assert seen.figures is not None and seen.figures.sent_bytes == (5_000_000 if trusted else 0)


def test_a_certificate_that_is_not_trusted_is_told_before_the_load(certificate: tuple[Path, Path]) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate[1], certificate[0])

    async def ask() -> None:
        async with serving(well, ssl=context) as target:
            await asyncio.to_thread(ask_once, target._replace(tls=True), next(shots()), 5.0)

    with pytest.raises(
        UsageError, match=r"certificate of 127.0.0.1:\d+ is not trusted: self-signed.*SSL_CERT_FILE"
    ):
        asyncio.run(ask())


@pytest.mark.parametrize("plain_loop", [True, False], ids=["asyncio", "uvloop"])
def test_a_plain_server_is_no_tls_server(plain_loop: bool) -> None:
    async def scenario() -> Seen:
        seen = Seen()

        async def talks_plainly(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read(10)
            writer.write(answer(status=400))
            writer.close()

        server = await asyncio.start_server(talks_plainly, "127.0.0.1", 0)
        target = Target("127.0.0.1", server.sockets[0].getsockname()[1], tls=True)
        seen.figures = await open_loop(
            target, iter([0.0, 0.01]), shots(), phases=[Phase("run", 5.0)], sink=seen.sink, limits=QUICK
        )
        server.close()
        await server.wait_closed()
        return seen

    seen = asyncio.run(scenario()) if plain_loop else drive(scenario())
    assert list(seen.errors.values()) == ["tls", "tls"]


@pytest.mark.parametrize(
    ("url", "target"),
    [
        ("http://127.0.0.1:8000/predict", Target("127.0.0.1", 8000)),
        ("http://example.org", Target("example.org", 80)),
        ("https://example.org/x?y", Target("example.org", 443, True)),
        ("http://[::1]:9/", Target("::1", 9)),
    ],
)
def test_targets_are_read_from_urls(url: str, target: Target) -> None:
    assert Target.of(url) == target


@pytest.mark.parametrize(
    "url",
    ["", "localhost:80", "ftp://x", "http://", "http://x:0", "http://x:99999", "http://[::1", "http://x:y"],
)
def test_other_urls_are_usage_errors(url: str) -> None:
    with pytest.raises(UsageError):
        Target.of(url)


# --- anything --------------------------------------------------------------------------------------------------------------

GOOD = ("well", "closes", "chunked", "until close", "surplus", "interim")
BAD = st.one_of(
    st.tuples(st.just("garbage"), st.binary(min_size=1, max_size=60)),
    st.tuples(st.just("cut"), st.integers(0, len(CHUNKED) - 1)),
    st.tuples(st.just("status"), st.sampled_from([302, 400, 429, 500, 503])),
    st.tuples(st.sampled_from(["reset", "never", "wrong"]), st.none()),
)


async def _misbehave(exchange: Exchange, what: tuple[str, object]) -> None:
    kind, detail = what
    wire = {
        "well": answer(b"abcd"),
        "closes": answer(b"abcd"),
        "chunked": CHUNKED,
        "until close": UNTIL_CLOSE,
        "surplus": answer(b"abcd") + b"HTTP/1.1 500 X\r\nContent-Length: 0\r\n\r\n",
        "interim": b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" + answer(b"abcd"),
        "wrong": answer(b"dcba"),
        "never": b"",
    }.get(kind, b"")
    if kind == "garbage":
        assert isinstance(detail, bytes)
        wire = detail
    elif kind == "cut":
        assert isinstance(detail, int)
        wire = CHUNKED[:detail]
    elif kind == "status":
        assert isinstance(detail, int)
        wire = answer(status=detail)
    exchange.close = kind in ("closes", "until close", "cut", "garbage")
    if kind == "reset":
        exchange.reset()
    else:
        exchange.write(wire)


@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(st.one_of(st.tuples(st.sampled_from(GOOD), st.none()), BAD), min_size=1, max_size=25),
    st.booleans(),
)
def test_whatever_the_server_does_the_books_balance_and_good_answers_stay_good(
    script: list[tuple[str, object]], plain_loop: bool
) -> None:
    async def behaviour(exchange: Exchange) -> None:
        await _misbehave(exchange, script[exchange.number])

    seen = run_open(
        behaviour,
        every(0.001, len(script)),
        shots=shots(judge=_wants_abcd),
        limits=Limits(timeout_s=0.25, grace_s=1.0, connections=8),
        plain_loop=plain_loop,
    )
    for number, (kind, detail) in enumerate(script):
        error = seen.errors[number]
        if kind in GOOD:
            assert error is None or (error in ("timeout", "unsent") and ("never", None) in script)
        elif kind == "status":
            assert error in (f"http_{detail}", "timeout", "unsent")
        else:
            assert error is not None


def test_a_shot_is_not_copied() -> None:
    body = memoryview(bytes(10))
    assert Shot(0, b"", body).body is body

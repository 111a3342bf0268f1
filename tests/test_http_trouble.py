"""Refusals, slow and vanishing clients, faults of our own: the right answer, and books that balance."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest

from headrace.serve.http.app import App
from http_support import SIZE, GateRunner, Live, picture, read_from, seen_colour, serving, until

IMAGE = picture((9, 8, 7))


def head(length: int | None, *fields: str, path: str = "/predict") -> bytes:
    size = "transfer-encoding: chunked" if length is None else f"content-length: {length}"
    return "\r\n".join((f"POST {path} HTTP/1.1", "host: x", size, *fields, "", "")).encode()


def balanced(app: App) -> bool:
    counters = app.counters
    return counters.seen == counters.answered + counters.gone and counters.open == 0


def test_unknown_paths_and_methods() -> None:
    with serving() as live:
        assert live.get("/nope").is_error(404, "not_found")
        assert live.get("/predict").is_error(405, "method_not_allowed")
        assert live.get("/predict").headers["allow"] == "POST"
        assert live.ask("DELETE", "/livez").headers["allow"] == "GET, HEAD"
        assert live.get("/%00%ff..//predict").is_error(404, "not_found")
        assert live.app.counters.answers["predict", 405] == 2 and balanced(live.app)


@pytest.mark.parametrize("path", ["/livez", "/healthz", "/health", "/v2/health/live"])
def test_live_while_not_ready(path: str) -> None:
    with serving(start=False) as live:
        assert live.get(path).status == live.ask("HEAD", path).status == 200
        assert live.ask("HEAD", path).body == b""


@pytest.mark.parametrize("path", ["/readyz", "/ping", "/v2/health/ready", "/v2/models/demo/ready"])
def test_ready_says_why_not(path: str) -> None:
    with serving(start=False) as live:
        reply = live.get(path)
        assert reply.is_error(503, "not_ready") and "warming" in reply.json["error"]
        assert live.post(IMAGE).is_error(503, "not_ready")
    with serving() as live:
        assert live.get(path).status == 200
        live.engine.drain(0.0)
        assert "draining" in live.get(path).json["error"]


def test_too_large_is_told_before_the_body_is_read() -> None:
    with serving(limits_max_body_bytes=100_000) as live, live.connect() as connection:
        connection.sendall(head(10**17))
        assert read_from(connection).is_error(413, "body_too_large")
        assert live.app.counters.errors["body_too_large"] == 1 and balanced(live.app)


def test_an_endless_chunked_body_is_cut_off() -> None:
    with serving(limits_max_body_bytes=100_000) as live, live.connect() as connection:
        connection.sendall(
            head(None) + b"C350\r\n" + b"x" * 50_000 + b"\r\nC352\r\n" + b"x" * 50_002 + b"\r\n"
        )
        assert read_from(connection).is_error(413, "body_too_large")


def test_chunks_are_put_together() -> None:
    with serving() as live, live.connect() as connection:
        pieces = [IMAGE[at : at + 7] for at in range(0, len(IMAGE), 7)]
        connection.sendall(head(None))
        for piece in pieces:
            connection.sendall(b"%x\r\n%b\r\n" % (len(piece), piece))
        connection.sendall(b"0\r\n\r\n")
        assert seen_colour(read_from(connection).json) == (9, 8, 7)


@pytest.mark.parametrize("length", [1000, 200_000])
def test_a_slow_sender_is_408(length: int) -> None:
    with serving(request_body_timeout_ms=50.0) as live, live.connect() as connection:
        connection.sendall(head(length) + b"only this")
        reply = read_from(connection)
        assert reply.is_error(408, "body_timeout") and reply.headers["connection"] == "close"
        assert connection.recv(1) == b""
        assert balanced(live.app)


@pytest.mark.parametrize("length", [1000, 200_000])
def test_a_client_that_leaves_in_the_middle_of_its_body(length: int) -> None:
    with serving() as live:
        with live.connect() as connection:
            connection.sendall(head(length) + b"only this")
            until(lambda: live.app.counters.open == 1)
        until(lambda: live.app.counters.gone == 1)
        assert balanced(live.app) and live.engine.inside == 0


@pytest.mark.parametrize("size", [SIZE, 400])
def test_a_client_that_leaves_while_it_waits_frees_its_place(size: int) -> None:
    image = picture((1, 2, 3), "BMP", size)
    with serving() as live:
        live.runner.gate.clear()
        with live.connect() as connection:
            connection.sendall(head(len(image)) + image)
            until(lambda: live.engine.inside == 1)
        until(lambda: live.app.counters.gone == 1)
        live.runner.gate.set()
        until(lambda: live.engine.inside == 0)
        assert balanced(live.app) and live.post(IMAGE).status == 200


@pytest.mark.parametrize("status", [429, 503])
def test_a_full_house_refuses_at_the_door(status: int) -> None:
    with serving(door_max_inside=2, door_overload_status=status) as live:
        live.runner.gate.clear()
        waiting = [live.connect() for _ in range(2)]
        for connection in waiting:
            connection.sendall(head(len(IMAGE)) + IMAGE)
        until(lambda: live.engine.inside == 2)
        with live.connect() as connection:
            connection.sendall(head(10**6, "expect: 100-continue"))  # no body: it is refused before
            reply = read_from(connection)
        assert reply.is_error(status, "overloaded") and reply.headers["retry-after"] == "1"
        live.runner.gate.set()
        assert [read_from(connection).status for connection in waiting] == [200, 200]
        for connection in waiting:
            connection.close()
        assert balanced(live.app)


def test_several_images_never_fit_a_smaller_house() -> None:
    with serving(door_max_inside=2) as live:
        body = json.dumps({"images": ["", "", ""]}).encode()
        assert live.post(body, content_type="application/json").is_error(400, "bad_request")


@pytest.mark.parametrize("by_header", [True, False])
def test_the_deadline_is_504_and_the_work_is_dropped(by_header: bool) -> None:
    with serving(request_timeout_ms=60_000.0 if by_header else 50.0) as live:
        live.runner.gate.clear()
        fields = {"X-Request-Timeout-Ms": "40"} if by_header else {}
        assert live.ask("POST", "/predict", IMAGE, fields).is_error(504, "deadline_exceeded")
        live.runner.gate.set()
        until(lambda: live.engine.inside == 0)
        assert live.app.counters.totals.failed == 1 and balanced(live.app)


@pytest.mark.parametrize("text", ["0", "-1", "x", "nan", "inf", "1e99"])
def test_a_deadline_that_is_none(text: str) -> None:
    with serving() as live:
        assert live.post(IMAGE, x_request_timeout_ms=text).is_error(400, "bad_request")


def test_a_model_that_fails_is_500_without_a_traceback() -> None:
    with serving() as live:
        live.runner.fails = True
        reply = live.post(IMAGE)
        assert reply.is_error(500, "inference_failed") and b"Traceback" not in reply.body


def test_a_fault_of_our_own_is_500_and_in_the_log(monkeypatch: Any, caplog: Any) -> None:
    with serving() as live, caplog.at_level(logging.ERROR):
        monkeypatch.setattr(live.engine, "admit", lambda: 1 // 0)
        reply = live.post(IMAGE, x_request_id="find-me")
        assert reply.is_error(500, "internal") and b"division" not in reply.body
        assert any("find-me" in record.getMessage() and record.exc_info for record in caplog.records)
        assert balanced(live.app)


def test_pipelined_requests_are_answered_in_order() -> None:
    with serving() as live, live.connect() as connection:
        colours = [(10 * at, 0, 255 - at) for at in range(6)]
        images = [picture(colour) for colour in colours]
        connection.sendall(b"".join(head(len(image)) + image for image in images))
        stream = connection.makefile("rb")
        seen = []
        for _ in colours:
            length = 0
            while (line := stream.readline()) != b"\r\n":
                if line.lower().startswith(b"content-length:"):
                    length = int(line.split(b":")[1])
            seen.append(seen_colour(json.loads(stream.read(length))))
        assert seen == colours


@pytest.mark.parametrize("size", [SIZE, 400])
def test_expect_100_continue(size: int) -> None:
    image = picture((1, 2, 3), "BMP", size)
    with serving() as live, live.connect() as connection:
        connection.sendall(head(len(image), "expect: 100-continue"))
        assert connection.recv(25, 256) == b"HTTP/1.1 100 Continue\r\n\r\n"
        connection.sendall(image)
        assert seen_colour(read_from(connection).json) == (1, 2, 3)


def test_huge_claims_do_not_add_up() -> None:
    """Bodies that are announced and never come take bounded memory: the ninth of the largest is refused."""
    largest = 200_000
    with serving(limits_max_body_bytes=largest, door_max_inside_bytes=8 * largest) as live:
        waiting = [live.connect() for _ in range(8)]
        for connection in waiting:
            connection.sendall(head(largest))
        until(lambda: live.app.counters.open == 8)
        assert live.post(b"x" * largest).is_error(429, "overloaded")
        assert live.post(IMAGE).status == 200
        with live.connect() as connection:
            connection.sendall(head(None) + b"186A0\r\n" + b"x" * 100_000 + b"\r\n")
            assert read_from(connection).is_error(429, "overloaded")
        for connection in waiting:
            connection.close()
        until(lambda: balanced(live.app))
        assert live.post(b"x" * largest).is_error(415, "unsupported_media")


def test_the_figures_of_a_few_requests() -> None:
    with serving(GateRunner()) as live:
        for _ in range(3):
            live.post(IMAGE)
        live.post(b"rubbish")
        counters = live.app.counters
        assert counters.answers == {("predict", 200): 3, ("predict", 415): 1}
        assert counters.errors == {"unsupported_media": 1}
        assert counters.latency_s.count == counters.fetch_s.count == counters.reply_s.count == 3
        assert counters.totals.images == 3 and counters.totals.failed == 1
        assert isinstance(live, Live)

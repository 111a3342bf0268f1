"""POST /predict: what may be sent, what comes back."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator

import pytest

from headrace.records.recipe import Recipe, RecipeFile
from headrace.records.settings import Settings
from headrace.serve.engine.engine import open_engine
from headrace.serve.http.app import App
from http_support import Live, picture, seen_colour, serving

RED, BLUE = (200, 10, 20), (5, 6, 230)
BOMB_GIF = (
    b"GIF89a\xff\xff\xff\xff\x00\x00\x00" + b"\x2c\0\0\0\0\xff\xff\xff\xff\0" + b"\x02\x02\x4c\x01\0\x3b"
)


@pytest.fixture(scope="module")
def live() -> Iterator[Live]:
    with serving() as live:
        yield live


def form(*files: tuple[str, bytes], boundary: str = "edge") -> tuple[bytes, dict[str, str]]:
    parts = [
        f'--{boundary}\r\nContent-Disposition: form-data; name="file"; filename="{name}"\r\n\r\n'.encode()
        + data
        + b"\r\n"
        for name, data in files
    ]
    body = b"".join((*parts, f"--{boundary}--\r\n".encode()))
    return body, {"Content-Type": f"multipart/form-data; boundary={boundary}"}


@pytest.mark.parametrize("kind", ["PNG", "BMP", "GIF", "WEBP", "TIFF"])
@pytest.mark.parametrize("content_type", ["image/jpeg", "application/octet-stream", "", None])
def test_an_image_as_it_is_whatever_its_type_claims(live: Live, kind: str, content_type: str | None) -> None:
    headers = {} if content_type is None else {"Content-Type": content_type}
    reply = live.ask("POST", "/predict", picture(RED, kind), headers)
    assert reply.status == 200, reply
    assert max(abs(a - b) for a, b in zip(seen_colour(reply.json), RED, strict=True)) <= 3
    assert reply.json["model"] == "demo" and reply.json["path"] == "staged"
    assert reply.json["request_id"] == reply.headers["x-request-id"]
    assert "emulated" not in reply.json


def test_a_large_body_arrives_whole(live: Live) -> None:
    padded = picture(BLUE, "BMP", 700)
    assert len(padded) > 1_000_000
    for _ in range(3):
        assert seen_colour(live.post(padded).json) == BLUE


@pytest.mark.parametrize("body", [b"", b"hello", b"<html></html>", b"\0" * 100_000])
def test_what_is_no_image_is_415(live: Live, body: bytes) -> None:
    assert live.post(body).is_error(415, "unsupported_media")


@pytest.mark.parametrize(
    "content_type", ["text/html", "application/xml", "video/mp4", "multipart/mixed", "/"]
)
def test_a_wrong_content_type_is_415(live: Live, content_type: str) -> None:
    assert live.post(picture(RED), content_type=content_type).is_error(415, "unsupported_media")
    assert live.post(picture(RED), content_encoding="gzip").is_error(415, "unsupported_media")


def test_a_broken_image_is_422(live: Live) -> None:
    whole = picture(RED, "JPEG", 64)
    assert live.post(whole[: len(whole) // 2]).is_error(422, "undecodable")


def test_bombs_are_refused_unread(live: Live) -> None:
    assert live.post(BOMB_GIF).is_error(422, "image_too_large")
    png = bytearray(picture(RED))
    png[16:24] = (16384).to_bytes(4, "big") * 2
    assert live.post(bytes(png)).is_error(422, "image_too_large")


def test_a_form_with_one_file_is_answered_like_one_image(live: Live) -> None:
    body, headers = form(("a.png", picture(BLUE)))
    reply = live.ask("POST", "/predict", body, headers)
    assert reply.status == 200 and seen_colour(reply.json) == BLUE


def test_a_form_with_several_files_answers_each(live: Live) -> None:
    body, headers = form(("a.png", picture(RED)), ("b.png", b"nothing"), ("c.png", picture(BLUE)))
    reply = live.ask("POST", "/predict", body, headers)
    first, bad, last = reply.json["predictions"]
    assert reply.status == 200 and seen_colour(first) == RED and seen_colour(last) == BLUE
    assert bad["code"] == "unsupported_media" and bad["status"] == 415 and bad["error"]


@pytest.mark.parametrize("boundary", ["edge", "b" * 70])
def test_a_large_form_is_taken_apart_elsewhere(live: Live, boundary: str) -> None:
    large = picture(RED, "BMP", 500)
    body, headers = form(("a.bmp", large), ("b.bmp", picture(BLUE, "BMP", 500)), boundary=boundary)
    assert [seen_colour(one) for one in live.ask("POST", "/predict", body, headers).json["predictions"]] == [
        RED,
        BLUE,
    ]


def test_forms_that_are_none(live: Live) -> None:
    body, headers = form(("a.png", picture(RED)))
    assert live.ask("POST", "/predict", body[:-20], headers).is_error(400, "bad_request")
    assert live.ask("POST", "/predict", b"", headers).is_error(400, "bad_request")
    assert live.ask("POST", "/predict", b"rubbish" * 9, headers).is_error(400, "bad_request")
    assert live.ask("POST", "/predict", body, {"Content-Type": "multipart/form-data"}).is_error(
        400, "bad_request"
    )
    many, headers = form(*[("a.png", b"x")] * 65)
    assert live.ask("POST", "/predict", many, headers).is_error(400, "bad_request")


def test_json_with_one_image_and_with_several(live: Live) -> None:
    red, blue = (base64.b64encode(picture(colour)).decode() for colour in (RED, BLUE))
    one = live.post(
        json.dumps({"image": f"data:image/png;base64,{red}"}).encode(), content_type="application/json"
    )
    assert seen_colour(one.json) == RED
    several = live.post(
        json.dumps({"images": [blue, "AAAA", 7]}).encode(), content_type="application/json; charset=utf-8"
    )
    first, second, third = several.json["predictions"]
    assert seen_colour(first) == BLUE
    assert second["code"] == "unsupported_media" and third["code"] == "bad_request"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        "{",
        '{"image": 1}',
        '{"images": []}',
        '{"images": "x"}',
        '{"image": "", "images": []}',
        '{"image": "A"}',
    ],
)
def test_json_that_is_none(live: Live, text: str) -> None:
    assert live.post(text.encode(), content_type="application/json").is_error(400, "bad_request")


@pytest.mark.parametrize(
    "query",
    [
        "top_k=0",
        "top_k=-1",
        "top_k=x",
        "top_k=1e3",
        "top_k=99999999999",
        "&".join("a=1" for _ in range(40)),
        "a=%zz&top_k=%ff",
    ],
)
def test_queries_that_are_none(live: Live, query: str) -> None:
    assert live.post(picture(RED), f"/predict?{query}").is_error(400, "bad_request")


def test_who_asked_and_how_long_it_took(live: Live) -> None:
    trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    reply = live.post(picture(RED), x_request_id="mine", traceparent=trace)
    assert reply.headers["x-request-id"] == "mine" and reply.headers["traceparent"] == trace
    assert live.post(picture(RED), traceparent=trace).headers["x-request-id"] == trace.split("-")[1]
    bad = live.post(
        picture(RED), x_request_id="a" * 129, traceparent="00-" + "0" * 32 + "-00f067aa0ba902b7-01"
    )
    assert len(bad.headers["x-request-id"]) < 40 and "traceparent" not in bad.headers
    assert "decode;dur=" in reply.headers["server-timing"] and "infer;dur=" in reply.headers["server-timing"]
    ids = {live.post(picture(RED)).headers["x-request-id"] for _ in range(5)}
    assert len(ids) == 5


def test_types_the_model_cannot_answer_in_are_406(live: Live) -> None:
    assert live.post(picture(RED), accept="text/html").is_error(406, "not_acceptable")
    assert live.post(picture(RED), accept="image/png").is_error(406, "not_acceptable")
    assert live.post(picture(RED), accept="text/html, */*;q=0.1").status == 200


def test_what_is_emulated_says_so() -> None:
    file = RecipeFile(recipe=Recipe(width=32, height=32))
    engine = open_engine(None, file, Settings(accelerator="emulated:1ms+0.5ms"))
    with serving(engine.runner, file) as live:
        reply = live.post(picture(RED))
        assert reply.json["emulated"] is True and reply.headers["x-headrace-emulated"] == "true"
        assert isinstance(live.app, App)

"""Any HTTP request, written as a file with holes for the image."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Callable, Sequence
from typing import NamedTuple
from urllib.parse import quote

import orjson

from headrace.errors import UsageError
from headrace.load.shot import Shot
from headrace.load.wire import Endpoint, Item, Maker, field_of, head

_HOLE = re.compile(rb"\{(image|image_base64|url|name|number)\}")


class Template(NamedTuple):
    """Any HTTP request with holes in it: `{image}`, `{image_base64}`, `{url}`, `{name}`, `{number}`. Other braces are left alone."""

    method: str
    path: str
    fields: Sequence[tuple[str, str]]
    body: bytes


def parse_template(text: bytes) -> Template:
    """A line `METHOD PATH`, header fields, an empty line, the body. One line end at the end is not part of the body. Raises UsageError."""
    found = re.search(rb"\r?\n\r?\n", text)
    top, body = (text[: found.start()], text[found.end() :]) if found else (text.rstrip(b"\r\n"), b"")
    try:
        first, *lines = top.decode("ascii").splitlines() or [""]
    except UnicodeDecodeError:
        raise UsageError("the template's head has bytes outside ASCII") from None
    words = first.split()
    if words and words[-1].startswith("HTTP/"):
        del words[-1]
    if len(words) != 2 or not re.fullmatch(r"[A-Z]+", words[0]) or not words[1].startswith("/"):
        raise UsageError(f"the template begins with {first[:80]!r}; write it like 'POST /predict'")
    if words[0] == "HEAD":
        raise UsageError("the template's method is HEAD, whose answers have no body; use GET")
    if re.search(rb"\{image(_base64)?\}", top):
        raise UsageError("the template has an image in its head; it belongs into the body")
    body = re.sub(rb"\r?\n\Z", b"", body)
    return Template(words[0], words[1], [field_of(line) for line in lines], body)


def as_template(endpoint: Endpoint, template: Template) -> Maker:
    """The template's request, to its own path."""
    holes = set(_HOLE.findall(f"{template.path} {template.fields}".encode() + template.body))
    wants = "bytes" if holes & {b"image", b"image_base64"} else "url" if b"url" in holes else "name"
    written = _written_in(template.fields)

    def make(item: Item) -> Shot:
        body = _HOLE.sub(
            lambda hole: written(_value(item, hole[1])) if hole[1] != b"image" else item.data, template.body
        )
        path = _in_head(template.path, item)
        fields = [(name, _in_head(value, item)) for name, value in template.fields]
        return Shot(
            item.source, head(endpoint, template.method, path, fields, len(body)), body, endpoint.judge
        )

    return Maker(make, wants)


def _value(item: Item, hole: bytes) -> str:
    if hole == b"image_base64":
        return b64encode(item.data).decode("ascii")
    return str(item.source) if hole == b"number" else item.name


def _in_head(text: str, item: Item) -> str:
    """Names percent-encoded, slashes of paths left as they are."""
    return _HOLE.sub(
        lambda hole: quote(_value(item, hole[1]), safe="" if hole[1] == b"url" else "/").encode("ascii"),
        text.encode("ascii"),
    ).decode("ascii")


def _written_in(fields: Sequence[tuple[str, str]]) -> Callable[[str], bytes]:
    """How a text is written in a body of the template's Content-Type."""
    media = next((value for name, value in fields if name.lower() == "content-type"), "").lower()
    if "json" in media:
        return lambda text: orjson.dumps(text)[1:-1]
    if "x-www-form-urlencoded" in media:
        return lambda text: quote(text, safe="").encode("ascii")
    return str.encode

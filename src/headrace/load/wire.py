"""Requests made of images: as a body, a form, a URL, or whatever a template says. Built once an image, sent many times."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from hashlib import blake2b
from typing import NamedTuple
from urllib.parse import quote, urlsplit

import orjson

from headrace import __version__
from headrace.core.image.header import read_header
from headrace.errors import HeadraceError, UsageError
from headrace.load.shot import Headers, Judge, Shot

SEARCHED_BYTES = 64 * 1024
"""As much of an answer is searched for an expected text."""


class Item(NamedTuple):
    """An image to be sent."""

    source: int
    name: str
    """Its file or URL."""
    data: bytes
    """Encoded; empty where only the name is wanted."""


class Maker(NamedTuple):
    """Makes requests."""

    make: Callable[[Item], Shot]
    wants: str
    """`bytes` or `url`: what an item has to have; or `name`."""


class Endpoint(NamedTuple):
    """Where requests go, and what they all have."""

    host: str
    """As in the Host field."""
    path: str
    """With the query."""
    fields: Sequence[tuple[str, str]] = ()
    """Given by the operator; they take the place of ours of the same name."""
    judge: Judge | None = None

    @classmethod
    def of(cls, url: str, fields: Sequence[str] = (), judge: Judge | None = None) -> Endpoint:
        """Of a URL that `Target.of` takes, and of fields written `Name: value`. Raises UsageError."""
        parts = urlsplit(url)
        if "@" in parts.netloc:
            raise UsageError(
                "the URL has a name or password in it; give it with --header 'Authorization: ...'"
            )
        if not parts.netloc.isascii():
            raise UsageError(
                f"the host of {url!r} has letters outside ASCII; write it as the DNS does (xn--...)"
            )
        path = quote(parts.path or "/", safe="/%:@!$&'()*+,;=~") + (
            f"?{quote(parts.query, safe=_IN_QUERY)}" if parts.query else ""
        )
        return cls(parts.netloc, path, [field_of(text) for text in fields], judge)

    def shot(self, source: int, method: str, body: bytes, media: str, *more: tuple[str, str]) -> Shot:
        """A request to the endpoint's path."""
        fields = [("Content-Type", media), *more]
        return Shot(source, head(self, method, self.path, fields, len(body)), body, self.judge)


_IN_QUERY = "/%:@!$&'()*+,;=~?"
_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_OURS = ("content-length", "transfer-encoding", "expect")


def head(endpoint: Endpoint, method: str, path: str, fields: Sequence[tuple[str, str]], length: int) -> bytes:
    """The head of a request, with the fields of the endpoint in the place of others of the same name."""
    given = {name.lower() for name, _ in endpoint.fields}
    ours = [("Host", endpoint.host), ("User-Agent", f"headrace/{__version__}"), ("Accept", "*/*"), *fields]
    last = {name.lower(): (name, value) for name, value in ours if name.lower() not in given}
    lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in last.values())]
    lines += [f"{name}: {value}" for name, value in endpoint.fields]
    if length or method not in ("GET", "DELETE"):
        lines.append(f"Content-Length: {length}")
    return "\r\n".join([*lines, "", ""]).encode("latin-1")


def as_body(endpoint: Endpoint) -> Maker:
    """The encoded image as it is."""
    return Maker(lambda item: endpoint.shot(item.source, "POST", item.data, media_of(item.data)), "bytes")


def as_form(endpoint: Endpoint, field: str = "file") -> Maker:
    """`multipart/form-data` with one file."""

    def make(item: Item) -> Shot:
        boundary = f"headrace-{blake2b(item.data, digest_size=12).hexdigest()}"
        file = quote(item.name.rpartition("/")[2], safe=" ")
        opening = (
            f'--{boundary}\r\nContent-Disposition: form-data; name="{quote(field, safe="[]")}"; filename="{file}"\r\n'
            f"Content-Type: {media_of(item.data)}\r\n\r\n"
        )
        body = b"".join((opening.encode("ascii"), item.data, f"\r\n--{boundary}--\r\n".encode("ascii")))
        return endpoint.shot(item.source, "POST", body, f"multipart/form-data; boundary={boundary}")

    return Maker(make, "bytes")


def as_url(endpoint: Endpoint, key: str = "url") -> Maker:
    """JSON with the image's URL."""
    return Maker(
        lambda item: endpoint.shot(item.source, "POST", orjson.dumps({key: item.name}), "application/json"),
        "url",
    )


def media_of(data: bytes) -> str:
    """The Content-Type of an image, by its first bytes."""
    try:
        return f"image/{read_header(data).format}"
    except HeadraceError:
        return "application/octet-stream"


def expecting(text: str) -> Judge:
    """A status such as `200`, or a regular expression that the first 64 KiB of the answer have to match somewhere. Raises UsageError."""
    if re.fullmatch(r"\d{3}", text):
        wanted = int(text)
        if not 200 <= wanted < 300:
            raise UsageError(
                f"--expect {text}: an answer with a status other than 2xx is a failure in any case"
            )
        return lambda status, headers, body: None if status == wanted else "wrong_status"
    try:
        pattern = re.compile(text.encode("utf-8"))
    except (re.error, UnicodeEncodeError) as problem:
        raise UsageError(
            f"--expect {text!r} is neither a status nor a regular expression: {problem}"
        ) from None

    def judge(status: int, headers: Headers, body: bytes) -> str | None:
        return None if pattern.search(body, 0, SEARCHED_BYTES) else "wrong_answer"

    return judge


def field_of(text: str) -> tuple[str, str]:
    """A header field written `Name: value`. Raises UsageError."""
    name, colon, value = text.partition(":")
    value = value.strip()
    if not colon or not _NAME.fullmatch(name) or not _fits(value):
        raise UsageError(f"{text!r} is no header field; write it like 'Authorization: Bearer abc'")
    if name.lower() in _OURS:
        raise UsageError(f"the field {name} is written by headrace and cannot be given")
    return name, value


def _fits(value: str) -> bool:
    """Whether a field may have this value: no line ends, nothing outside Latin-1."""
    return all(
        character == "\t" or (" " <= character <= "\xff" and character != "\x7f") for character in value
    )

"""Images inside other things: multipart forms and JSON. Pure; the bodies are bounded by whoever read them."""

from __future__ import annotations

import binascii
from typing import NamedTuple

from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header

from headrace.errors import HeadraceError, RequestError
from headrace.records.image import Encoded
from headrace.serve.http.json_text import parse_json

MOST_ITEMS = 64
"""Images in one request."""


MOST_PARTS = 256
"""In a form, those that are no files included: each costs time whatever its size."""


class Form(NamedTuple):
    """What a body holds, in order; an item that cannot be read is an error among the others."""

    items: list[Encoded | HeadraceError]
    single: bool
    """The answer is that of one image, and no list."""


def images_in_json(body: bytes, most: int) -> Form:
    """{"image": base64} or {"images": [base64, ...]}. Raises RequestError."""
    value = parse_json(body)
    if not isinstance(value, dict) or ("image" in value) == ("images" in value):
        raise RequestError('the JSON has to be {"image": base64} or {"images": [base64, ...]}')
    if "image" in value:
        return Form([_from_base64(value["image"], "image")], True)
    images = value["images"]
    if not isinstance(images, list) or not images:
        raise RequestError('"images" has to be a list of at least one base64 text')
    check_count(len(images), most)
    return Form([_from_base64(image, f"images[{at}]") for at, image in enumerate(images)], False)


def check_count(count: int, most: int) -> None:
    """Raises RequestError for more images than can ever be inside at once."""
    if count > most:
        raise RequestError(
            f"{count} images in one request, at most {most} are let in at once: send several requests"
        )


def _from_base64(text: object, where: str) -> Encoded | HeadraceError:
    if not isinstance(text, str):
        return RequestError(f"{where} is no text, but has to be the image in base64")
    if text.startswith("data:"):
        text = text.partition(",")[2]
    try:
        return Encoded(binascii.a2b_base64(text))
    except ValueError as problem:
        return RequestError(f"{where} is no valid base64: {problem}")


class _Parts:
    """Remembers where in the body the data of each part lies."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.items: list[Encoded | HeadraceError] = []
        self._parts = 0
        self._field = self._value = b""
        self._disposition = b""
        self._pieces: list[bytes] = []

    def on_part_begin(self) -> None:
        self._parts += 1
        if self._parts > MOST_PARTS:
            raise RequestError(f"the multipart form has more than {MOST_PARTS} parts")
        self._disposition = b""
        self._pieces = []

    def on_header_field(self, data: bytes, start: int, end: int) -> None:
        self._field += data[start:end]

    def on_header_value(self, data: bytes, start: int, end: int) -> None:
        self._value += data[start:end]

    def on_header_end(self) -> None:
        if self._field.lower() == b"content-disposition":
            self._disposition = self._value
        self._field = self._value = b""

    def on_part_data(self, data: bytes, start: int, end: int) -> None:
        self._pieces.append(data[start:end])

    def on_part_end(self) -> None:
        _, options = parse_options_header(self._disposition)
        if b"filename" not in options:
            return
        check_count(len(self.items) + 1, self.most)
        name = options[b"filename"].decode("utf-8", "replace")
        self.items.append(Encoded(b"".join(self._pieces), name))
        self._pieces = []


def images_in_form(body: bytes, content_type: bytes, most: int) -> Form:
    """The parts of a multipart form that are files. Raises RequestError."""
    _, options = parse_options_header(content_type)
    boundary = options.get(b"boundary", b"")
    if not 1 <= len(boundary) <= 200:
        raise RequestError("multipart/form-data needs a boundary of 1 to 200 characters in Content-Type")
    parts = _Parts(most)
    names = ("part_begin", "header_field", "header_value", "header_end", "part_data", "part_end")
    parser = MultipartParser(boundary, {f"on_{name}": getattr(parts, f"on_{name}") for name in names})  # type: ignore[arg-type]
    try:
        parser.write(body)
        parser.finalize()
    except FormParserError as problem:
        raise RequestError(f"the multipart form is broken: {problem}") from None
    if not parts.items:
        raise RequestError(
            "the multipart form has no part with a file (a part whose Content-Disposition has a filename)"
        )
    return Form(parts.items, len(parts.items) == 1)

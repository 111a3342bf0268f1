"""JSON from strangers. Pure."""

from __future__ import annotations

from typing import Any

import orjson

from headrace.errors import RequestError

MOST_ELEMENTS = 4_000_000
"""Each may take some 70 bytes of memory when three bytes of text make it."""


def parse_json(text: bytes) -> Any:
    """The value. Raises RequestError when it is no JSON, or has so many elements that it would fill the memory."""
    elements = text.count(b",") + text.count(b"[") + text.count(b"{")
    if elements > MOST_ELEMENTS:
        raise RequestError(
            f"the JSON has {elements} elements, at most {MOST_ELEMENTS} are read: send numbers as binary tensors"
        )
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError as problem:
        raise RequestError(f"the body is no valid JSON: {problem}") from None

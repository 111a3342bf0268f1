"""Which media type an answer takes (RFC 9110, `Accept`). Pure."""

from __future__ import annotations

from functools import lru_cache

from headrace.errors import NotAcceptable

_LONGEST = 2048


@lru_cache(maxsize=256)
def choose(accept: bytes | None, offered: tuple[bytes, ...]) -> bytes:
    """The offered type the client likes best; the first of `offered` among equals. Raises NotAcceptable that names what there is."""
    if accept is None or accept == b"*/*":
        return offered[0]
    ranges = _ranges(accept[:_LONGEST].lower())
    best = max(offered, key=lambda media: _liking(media, ranges))
    if _liking(best, ranges) > 0:
        return best
    names = ", ".join(media.decode("ascii") for media in offered)
    raise NotAcceptable(
        f"Accept: {accept[:200].decode('latin-1')} cannot be served; this can be had as {names}"
    )


def _ranges(accept: bytes) -> dict[bytes, float]:
    ranges = {}
    for part in accept.split(b","):
        media, *parameters = (piece.strip() for piece in part.split(b";"))
        ranges[media] = _quality(parameters)
    return ranges


def _quality(parameters: list[bytes]) -> float:
    for parameter in parameters:
        name, _, value = parameter.partition(b"=")
        if name.strip() == b"q":
            try:
                return min(1.0, max(0.0, float(value)))
            except ValueError:
                return 0.0
    return 1.0


def _liking(media: bytes, ranges: dict[bytes, float]) -> float:
    family = media.partition(b"/")[0] + b"/*"
    for known in (media, family, b"*/*"):
        if known in ranges:
            return ranges[known]
    return 0.0

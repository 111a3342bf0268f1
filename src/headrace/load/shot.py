"""What is sent, and to whom."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol, TypeAlias
from urllib.parse import urlsplit

from headrace.errors import UsageError

Headers: TypeAlias = Sequence[tuple[bytes, bytes]]
"""Names in lower case, in the order they came."""


class Judge(Protocol):
    """Decides whether an answer with a 2xx status is right. Other answers are failures without asking.

    Runs in the event loop, once an answer: keep it well under 0.1 ms. Whatever the body holds, it must not raise.
    """

    def __call__(self, status: int, headers: Headers, body: bytes) -> str | None:
        """None, or a kind of failure such as `wrong_answer`."""
        ...


class Shot(NamedTuple):
    """One request, ready for the wire. Built once and sent many times: nothing of it is copied or changed."""

    source: int
    """Number of its image, as in the capture's `images`."""
    wire: bytes
    """The complete HTTP/1.1 head, blank line included, with the body's Content-Length. Connections are kept alive unless it says
    `Connection: close`. Neither HEAD nor `Expect: 100-continue`: the body follows at once, and answers are read as those of GET or POST."""
    body: bytes | memoryview = b""
    judge: Judge | None = None
    """None: every 2xx is right, and the answer's body is thrown away as it comes."""


class Target(NamedTuple):
    """Whom to ask. With `tls`, the certificate is checked against the system's (or SSL_CERT_FILE's) authorities."""

    host: str
    port: int
    tls: bool = False

    @classmethod
    def of(cls, url: str) -> Target:
        """The target of `http://HOST[:PORT]/...` or `https://...`; path and query are for the shots. Raises UsageError."""
        try:
            parts = urlsplit(url)
            host, port = parts.hostname, parts.port
            url.encode("utf-8")
        except ValueError as error:
            raise UsageError(f"{url!r} is no URL: {error}") from error
        if parts.scheme not in ("http", "https") or not host or port == 0:
            raise UsageError(f"{url!r} cannot be asked; write it like http://127.0.0.1:8000/predict")
        tls = parts.scheme == "https"
        return cls(host, port or (443 if tls else 80), tls)

"""One request before the load: whoever measures a wrong address measures how fast it refuses."""

from __future__ import annotations

import http.client
import socket
import ssl
from typing import NamedTuple

from headrace.errors import UsageError
from headrace.load.shot import Headers, Shot, Target

_MOST_BODY_BYTES = 64 * 2**20


class Reply(NamedTuple):
    """An answer, whole up to 64 MiB of its body."""

    status: int
    headers: Headers
    body: bytes

    def field(self, name: bytes) -> str | None:
        """The header field of that name in lower case, or None."""
        return next((value.decode("latin-1") for key, value in self.headers if key == name), None)

    def failure(self, shot: Shot) -> str | None:
        """What is wrong with it, with its beginning; None when it is as it should be."""
        kind = None
        if not 200 <= self.status < 300:
            kind = "a failure"
        elif shot.judge is not None:
            kind = shot.judge(self.status, self.headers, self.body)
        if kind is None:
            return None
        shown = self.body[:200].decode("utf-8", "replace").strip()
        return f"{self.status} ({kind.replace('_', ' ')}){f': {shown}' if shown else ''}"


def ask_once(target: Target, shot: Shot, timeout_s: float) -> Reply:
    """Sends it on a connection of its own. Raises UsageError when nobody answers in HTTP."""
    try:
        with socket.create_connection((target.host, target.port), timeout_s) as plain:
            connection = (
                ssl.create_default_context().wrap_socket(plain, server_hostname=target.host)
                if target.tls
                else plain
            )
            with connection:
                return _exchange(connection, shot)
    except TimeoutError:
        raise UsageError(
            f"{_place(target)} did not answer within {timeout_s:g} s; nothing was measured"
        ) from None
    except ssl.SSLCertVerificationError as problem:
        raise UsageError(
            f"the certificate of {_place(target)} is not trusted: {problem.verify_message}; name the authority that signed it with "
            "SSL_CERT_FILE=FILE in the environment; nothing was measured"
        ) from None
    except (OSError, http.client.HTTPException, UnicodeError) as problem:
        said = getattr(problem, "strerror", None) or str(problem) or type(problem).__name__
        raise UsageError(f"{_place(target)} does not answer: {said}; nothing was measured") from None


def _place(target: Target) -> str:
    return f"[{target.host}]:{target.port}" if ":" in target.host else f"{target.host}:{target.port}"


def _exchange(connection: socket.socket, shot: Shot) -> Reply:
    method = shot.wire.split(b" ", 1)[0].decode("ascii")
    try:
        connection.sendall(shot.wire)
        connection.sendall(shot.body)
    except (BrokenPipeError, ConnectionResetError):
        pass  # it may have answered before the end, as servers do that refuse a body
    with http.client.HTTPResponse(connection, method=method) as answer:
        answer.begin()
        headers = [
            (name.lower().encode("latin-1", "replace"), value.encode("latin-1", "replace"))
            for name, value in answer.getheaders()
        ]
        return Reply(answer.status, headers, answer.read(_MOST_BODY_BYTES))

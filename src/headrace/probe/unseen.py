"""What a probe could not see, each thing told once."""

from __future__ import annotations

from headrace.core.watching.secrets import without_secrets
from headrace.records.capture import Unseen

MOST = 64
"""A machine with thousands of processes must not fill a capture with what was not seen of each."""


class UnseenOnce:
    """Keeps the first `MOST` different things, in the order they came up."""

    def __init__(self, probe: str) -> None:
        self._probe = probe
        self._told: dict[Unseen, None] = {}

    def add(self, what: str, why: str) -> None:
        if len(self._told) < MOST:
            self._told.setdefault(Unseen(self._probe, _harmless(what), _harmless(why)))

    def all(self) -> tuple[Unseen, ...]:
        return tuple(self._told)


def _harmless(text: str) -> str:
    """Names of groups, files and pages are in it, and it is printed."""
    return "".join(sign if sign.isprintable() else "?" for sign in without_secrets(text))

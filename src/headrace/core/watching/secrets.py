"""Passwords and their like in command lines and addresses: captures are sent to others."""

from __future__ import annotations

import re
from collections.abc import Iterable

HIDDEN = "***"

_NAME = r"[\w.\-]*(?:password|passwd|passphrase|pwd|secret|token|key|credential|authorization)[\w.\-]*"
_FLAG = re.compile(rf"--?{_NAME}", re.IGNORECASE)
_WHOLE = re.compile(rf"(-{{0,2}}{_NAME}=).+", re.IGNORECASE | re.DOTALL)
"""An argument that is one assignment: its value may hold blanks and quotes."""
_INSIDE = re.compile(
    rf"""([?&;\s'"{{,]|^)(["']?{_NAME}["']?\s*[=:]\s*|--?{_NAME}\s+(?!-))("[^"]*"|'[^']*'|[^\s&;,'"}}]+)""",
    re.IGNORECASE,
)
"""An assignment or a flag within a longer text: a script for a shell, the query of an address, JSON."""
_SCHEME = re.compile(r"\b(bearer|basic)\s+[\w.~+/=\-]+", re.IGNORECASE)
_USER = re.compile(r"(://)[^/\s]*@")


def without_secrets(text: str) -> str:
    """Values of names that sound like a secret, user and password of addresses, and what follows `Bearer` become `***`."""
    text = _USER.sub(rf"\1{HIDDEN}@", text)
    text = _SCHEME.sub(rf"\1 {HIDDEN}", text)
    return _INSIDE.sub(rf"\1\2{HIDDEN}", text)


def command_without_secrets(arguments: Iterable[str]) -> str:
    """A command line with blanks between its arguments. The argument after a flag that sounds like a secret is hidden too."""
    told: list[str] = []
    after_flag = False
    for argument in arguments:
        if after_flag and not argument.startswith("-"):
            told.append(HIDDEN)
        elif (whole := _WHOLE.fullmatch(argument)) is not None:
            told.append(whole[1] + HIDDEN)
        else:
            told.append(without_secrets(argument))
        after_flag = _FLAG.fullmatch(argument) is not None
    return " ".join(told)

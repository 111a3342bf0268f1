"""One screen that is drawn again in place; on anything that is no terminal, nothing until the end."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from typing import TextIO

_UP = "\x1b[{}A"
_CLEAR_BELOW = "\x1b[J"


class Screen:
    """Draws over its last picture. Lines longer than the terminal are cut, so that the picture keeps its height."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stderr
        self.live = self._stream.isatty()
        """Whether anybody sees it."""
        self._height = 0

    def draw(self, lines: Sequence[str]) -> None:
        if not self.live:
            return
        size = shutil.get_terminal_size()
        shown = [line[: size.columns - 1] for line in lines[: size.lines - 1]]
        up = _UP.format(self._height) if self._height else ""
        self._stream.write(up + _CLEAR_BELOW + "\n".join(shown) + "\n")
        self._stream.flush()
        self._height = len(shown)

    def clear(self) -> None:
        """Takes the picture away, for the result to stand in its place."""
        self.draw([])
        self._height = 0

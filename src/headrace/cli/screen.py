"""One screen that is drawn again in place; on anything that is no terminal, nothing until the end."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import TextIO

_UP = "\x1b[{}A"
_HOME_AND_CLEAR = "\x1b[H\x1b[2J"
_CLEAR_BELOW = "\x1b[J"
_CLEAR_REST_OF_LINE = "\x1b[K"
_USUAL_SIZE = os.terminal_size((80, 24))
_NO_WRAP, _WRAP = "\x1b[?7l", "\x1b[?7h"


class Screen:
    """Draws over its last picture. Lines longer than the terminal are cut, so that the picture keeps its height.

    Each line is written over the old one and then what is left of that is cleared: a picture that is cleared first would flicker.
    """

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream: TextIO | None = stream or sys.stderr
        self.live = self._stream is not None and self._stream.isatty()
        """Whether anybody sees it. False from the moment on that the terminal is gone."""
        self._height = 0
        self._size: os.terminal_size | None = None

    def draw(self, lines: Sequence[str]) -> None:
        if not self.live or self._stream is None:
            return
        size = self._terminal_size()
        # A terminal of a new size breaks lines anew: nobody knows where the old picture lies.
        moved = self._height > 0 and size != self._size
        start = _HOME_AND_CLEAR if moved else _UP.format(self._height) if self._height else ""
        shown = [line[: size.columns - 1] for line in lines[: size.lines - 1]]
        text = "".join(f"{line}{_CLEAR_REST_OF_LINE}\n" for line in shown)
        try:
            # Characters of double width make a line longer than it counts; without wrapping the terminal cuts it.
            self._stream.write(f"{start}\r{_NO_WRAP}{text}{_CLEAR_BELOW}{_WRAP}")
            self._stream.flush()
        except OSError:
            self.live = False
        self._height, self._size = len(shown), size

    def _terminal_size(self) -> os.terminal_size:
        """Of the terminal that is drawn on: standard output may lead elsewhere."""
        try:
            size = os.get_terminal_size(self._stream.fileno() if self._stream else -1)
        except (OSError, ValueError):
            return _USUAL_SIZE
        return size if min(size) > 0 else _USUAL_SIZE

    def clear(self) -> None:
        """Takes the picture away, for the result to stand in its place."""
        self.draw([])
        self._height = 0

"""The live screen on a real pseudo-terminal, seen by a small model of one; and wishes to end."""

from __future__ import annotations

import fcntl
import io
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

import pytest
from tests.server_process import PATIENCE_S

from headrace.cli.screen import Screen
from headrace.cli.stopping import stopping

_TOKEN = re.compile(r"\x1b\[(\??\d*)([A-Za-z])|([\r\n])|([^\x1b\r\n])")


class Terminal:
    """What a person sees. Wide characters take two places; a line breaks at the edge unless that is switched off."""

    def __init__(self, columns: int, lines: int, shown: str = "") -> None:
        self.columns, self.height = columns, lines
        self.cells = [[" "] * columns for _ in range(lines)]
        self.row = self.column = 0
        self.wraps = True
        self.feed(shown)

    def feed(self, text: str) -> None:
        for code, command, move, sign in _TOKEN.findall(text):
            if command:
                self._command(code, command)
            elif move:
                self.column = 0
                self._down() if move == "\n" else None
            else:
                self._write(sign)

    def _write(self, sign: str) -> None:
        for part in (sign, "") if ord(sign) > 0x2E80 else (sign,):
            if self.column >= self.columns:
                if not self.wraps:
                    self.column = self.columns - 1
                else:
                    self.column = 0
                    self._down()
            self.cells[self.row][self.column] = part
            self.column += 1

    def _down(self) -> None:
        if self.row + 1 < self.height:
            self.row += 1
        else:
            self.cells = [*self.cells[1:], [" "] * self.columns]

    def _command(self, code: str, command: str) -> None:
        if command == "A":
            self.row = max(0, self.row - int(code or 1))
        elif command == "H":
            self.row = self.column = 0
        elif (command, code) in (("J", ""), ("J", "2"), ("K", "")):
            first = 0 if code == "2" else self.row
            last = self.row if command == "K" else self.height - 1
            for row in range(first, last + 1):
                start = self.column if row == self.row and code != "2" else 0
                self.cells[row][start:] = [" "] * (self.columns - start)
        elif (command, code) in (("l", "?7"), ("h", "?7")):
            self.wraps = command == "h"
        else:
            raise AssertionError(f"a sequence nobody expects: {code}{command}")

    @property
    def text(self) -> list[str]:
        """Its lines, without empty ones at the end."""
        lines = ["".join(row).rstrip() for row in self.cells]
        while lines and not lines[-1]:
            lines.pop()
        return lines


class Pair:
    """A pseudo-terminal; `take` gives what was written to it."""

    def __init__(self) -> None:
        self.master, slave = pty.openpty()
        attributes = termios.tcgetattr(slave)
        attributes[1] &= ~termios.OPOST
        termios.tcsetattr(slave, termios.TCSANOW, attributes)
        self.stream: TextIO = os.fdopen(slave, "w", encoding="utf-8")

    def resize(self, columns: int, lines: int) -> None:
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def take(self) -> str:
        return os.read(self.master, 1 << 16).decode()


@contextmanager
def terminal(columns: int, lines: int) -> Iterator[Pair]:
    pair = Pair()
    pair.resize(columns, lines)
    try:
        yield pair
    finally:
        pair.stream.close()
        os.close(pair.master)


@pytest.mark.parametrize(("columns", "lines"), [(80, 24), (40, 10), (200, 50), (10, 3)])
def test_each_picture_replaces_the_last_and_leaves_what_was_there(columns: int, lines: int) -> None:
    with terminal(columns, lines) as pair:
        screen, seen = Screen(pair.stream), Terminal(columns, lines, "$ run\n")
        for picture in (["one", "x" * 300, "three"], ["four", "y"], ["z" * columns, "v", "w"]):
            screen.draw(picture)
            seen.feed(pair.take())
            shown = [line[: columns - 1] for line in picture][: lines - 1]
            assert seen.text == (["$ run", *shown] if len(shown) + 1 < lines else shown)
        screen.clear()
        seen.feed(pair.take())
        assert seen.text in (["$ run"], [])


def test_wide_characters_do_not_break_the_picture() -> None:
    with terminal(20, 8) as pair:
        screen, seen = Screen(pair.stream), Terminal(20, 8, "$ run\n")
        for _ in range(3):
            screen.draw(["a", "漢" * 19, "b"])
            seen.feed(pair.take())
        assert [line[:1] for line in seen.text] == ["$", "a", "漢", "b"]


def test_nothing_is_left_over_when_the_terminal_changes_its_size() -> None:
    with terminal(80, 24) as pair:
        screen = Screen(pair.stream)
        screen.draw(["x" * 79] * 6)
        pair.take()
        pair.resize(40, 10)
        screen.draw(["a", "b"])
        seen = Terminal(40, 10, "x" * 79 * 6)  # broken anew, as terminals do
        seen.feed(pair.take())
        assert seen.text == ["a", "b"]


def test_no_line_is_blank_between_two_pictures() -> None:
    """Flicker: at no moment while the second picture is written is a line of the first gone without its successor."""
    with terminal(30, 10) as pair:
        screen, seen = Screen(pair.stream), Terminal(30, 10)
        screen.draw(["head", "line"])
        seen.feed(pair.take())
        screen.draw(["HEAD", "LINE"])
        for token in _TOKEN.finditer(pair.take()):
            seen.feed(token[0])
            assert len(seen.text) >= 2 and all(len(line) == 4 for line in seen.text)


def test_a_terminal_that_is_gone_is_drawn_on_no_more() -> None:
    pair = Pair()
    screen = Screen(pair.stream)
    assert screen.live
    os.close(pair.master)
    screen.draw(["a"])
    assert not screen.live
    screen.clear()


@pytest.mark.parametrize("stream", [io.StringIO(), None])
def test_where_nobody_looks_nothing_is_drawn(stream: TextIO | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", None)
    screen = Screen(stream)
    screen.draw(["a"])
    assert not screen.live and (stream is None or stream.getvalue() == "")  # type: ignore[attr-defined]


# --- wishes to end -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_the_first_signal_is_a_wish_the_second_an_order(number: signal.Signals) -> None:
    before = signal.getsignal(number)
    with stopping() as stop:
        signal.raise_signal(number)
        assert stop.is_set()
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(number)
    assert signal.getsignal(number) == before


def test_under_nohup_a_closed_terminal_is_no_wish() -> None:
    code = (
        "import signal; from headrace.cli.stopping import stopping\n"
        "signal.signal(signal.SIGHUP, signal.SIG_IGN)\n"
        "with stopping() as stop:\n    signal.raise_signal(signal.SIGHUP); print(stop.is_set())"
    )
    told = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=PATIENCE_S
    )
    assert told.stdout == "False\n"

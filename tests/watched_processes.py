"""Small programs to watch: started, told by a line on standard input what to do, and ended."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from tests.server_process import PATIENCE_S

from headrace.probe.probe import Probe

Row = TypeVar("Row")

_PROLOGUE = "import os, socket, subprocess, sys, threading, time\ndef say(*what): print(*what, flush=True)\n"


class Program:
    """A Python program under watch. `ask(line)` writes a line to it and gives back the line that it answers."""

    def __init__(self, code: str, **options: Any) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", _PROLOGUE + code],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            **options,
        )
        self.pid = self.process.pid

    def ask(self, line: str = "") -> str:
        assert self.process.stdin is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        return self.hear()

    def hear(self) -> str:
        assert self.process.stdout is not None
        answer = self.process.stdout.readline()
        assert answer, "the watched program ended"
        return answer.strip()


@contextmanager
def program(code: str, **options: Any) -> Iterator[Program]:
    """`code` has `os`, `socket`, `subprocess`, `sys`, `threading`, `time` imported, and `say(...)`."""
    running = Program(code, **options)
    try:
        yield running
    finally:
        running.process.kill()
        running.process.communicate()


class Reading:
    """Reads a probe again and again, on the real clock."""

    def __init__(self, probe: Probe) -> None:
        self.probe = probe
        self._began_s = time.monotonic()
        self.rows: list[Any] = []

    def once(self) -> list[Any]:
        rows = list(self.probe.read(time.monotonic() - self._began_s))
        self.rows += rows
        return rows

    def until(self, row_class: type[Row], enough: Any, what: str) -> list[Row]:
        """Reads until `enough(rows of that class)`; gives those rows."""
        end = time.monotonic() + PATIENCE_S
        while time.monotonic() < end:
            self.once()
            found = [row for row in self.rows if isinstance(row, row_class)]
            if enough(found):
                return found
            time.sleep(0.05)
        raise AssertionError(f"not within {PATIENCE_S:.0f} s: {what}; there was {self.rows[-5:]}")


class Pids:
    """Watched processes that never change by themselves."""

    def __init__(self, *pids: int) -> None:
        self.pids = frozenset(pids)

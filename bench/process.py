"""Contestants are processes that wait for `run SECONDS` on standard input; what they cost is read from /proc."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

TICK_S = 1 / os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Cost:
    """Totals of one process and its children."""

    cpu_s: float
    minor_faults: int


def cost(pid: int) -> Cost:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return Cost((int(fields[11]) + int(fields[12])) * TICK_S, int(fields[7]))


def reset_peak(pid: int) -> None:
    """Lets VmHWM start again from what is resident now (proc(5), clear_refs)."""
    Path(f"/proc/{pid}/clear_refs").write_text("5")


def peak_bytes(pid: int) -> int:
    return _status(pid, "VmHWM") * 1024


def resident_bytes(pid: int) -> int:
    return _status(pid, "VmRSS") * 1024


def threads(pid: int) -> int:
    return _status(pid, "Threads")


def files(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


def _status(pid: int, name: str) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(name + ":"):
            return int(line.split()[1])
    raise KeyError(name)


class Worker:
    """A process of `python -m MODULE ARGS` that prints one JSON line when it is up and one for each order."""

    def __init__(self, module: str, *arguments: str, environment: dict[str, str] | None = None) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", module, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | (environment or {}),
        )
        self.hello = self._read()

    @property
    def pid(self) -> int:
        return self._process.pid

    def order(self, line: str) -> dict[str, Any]:
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()
        return self._read()

    def _read(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"{self._process.args!r} ended with {self._process.wait()}")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def close(self) -> None:
        self._process.terminate()
        self._process.wait(30)

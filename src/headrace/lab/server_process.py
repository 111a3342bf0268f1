"""A real `headrace serve` in a process of its own, for demonstrations and tests."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from headrace.errors import HeadraceError

_ADDRESS = re.compile(r"headrace serves \S+ on http://\S+:(\d+)/predict")
_FIGURES = re.compile(r"figures on http://\S+:(\d+)/metrics")


@dataclass(frozen=True, slots=True)
class RunningServer:
    """Where it listens."""

    pid: int
    port: int
    metrics_port: int


@contextmanager
def running_server(*arguments: str) -> Iterator[RunningServer]:
    """Serves while the block runs, on free ports; drained afterwards.

    Raises HeadraceError with what the server said when it does not start.
    """
    command = [sys.executable, "-m", "headrace.cli.main", "serve", *arguments, *_FREE_PORTS]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        port, metrics_port = _announced(process, command)
        yield RunningServer(process.pid, port, metrics_port)
    finally:
        process.terminate()
        try:
            process.communicate(timeout=30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()


_FREE_PORTS = ("--server-port", "0", "--server-metrics-port", "0")


def _announced(process: subprocess.Popen[str], command: Sequence[str]) -> tuple[int, int]:
    assert process.stdout is not None
    port = None
    for line in process.stdout:
        if found := _ADDRESS.match(line):
            port = int(found[1])
        elif (found := _FIGURES.match(line)) and port is not None:
            return port, int(found[1])
    raise HeadraceError(f"the server did not start: {process.communicate()[1].strip()} ({' '.join(command)})")

"""A whole server in a process of its own, and what it says of itself.

`python -m headrace.workflows.isolation.own_server JSON` is that process: it prints one line of JSON when it is ready or cannot start, and
stops when its standard input ends, so that it never outlives whoever started it.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Thread
from typing import Any

import orjson

from headrace.errors import HeadraceError, InternalError, UsageError
from headrace.probe.metrics_page import PageError, fetch, parse
from headrace.records.settings import TABLE, Settings, changed
from headrace.workflows.isolation.meter import Reading
from headrace.workflows.serve import Announcement, serve

END_S = 30.0
_BUSY, _CPU = "headrace_device_busy_seconds_total", "process_cpu_seconds_total"
_HERE: dict[str, Any] = {"server.host": "127.0.0.1", "server.port": 0, "server.metrics_port": 0}


@dataclass(frozen=True, slots=True)
class OwnServer:
    """Where it listens, on the loopback."""

    port: int
    metrics_port: int

    def read(self) -> Reading:
        """Totals of its device and its process; None where its page cannot be had just now."""
        try:
            page = fetch(f"http://127.0.0.1:{self.metrics_port}/metrics")
        except PageError:
            return Reading(None, None)
        values = {sample.name: sample.value for sample in parse(page, (_BUSY, _CPU))}
        return Reading(values.get(_BUSY), values.get(_CPU))


@contextmanager
def own_server(model: Path | None, recipe: Path | None, settings: Settings) -> Iterator[OwnServer]:
    """Serves on free ports while the block runs. Raises UsageError with what the server said when it does not start."""
    values = {info.name: getattr(settings, info.attribute) for info in TABLE} | _HERE
    task = {"model": _text(model), "recipe": _text(recipe), "settings": values}
    process = subprocess.Popen(
        [sys.executable, "-m", __name__, orjson.dumps(task).decode()],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        yield _announced(process)
    finally:
        process.terminate()
        try:
            process.communicate(timeout=END_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()


def _text(path: Path | None) -> str | None:
    return None if path is None else str(path)


def _announced(process: subprocess.Popen[bytes]) -> OwnServer:
    assert process.stdout is not None
    line = process.stdout.readline()
    told: dict[str, Any] = orjson.loads(line) if line else {}
    if "port" in told:
        return OwnServer(told["port"], told["metrics_port"])
    if "error" in told:
        raise UsageError(f"the server in a process of its own does not start: {told['error']}")
    raise InternalError(
        f"the server in a process of its own ended with {process.wait(END_S)}; `headrace serve` says why"
    )


def main(task: dict[str, Any]) -> None:
    """Serves as told, until standard input ends."""

    def announce(found: Announcement) -> None:
        _say({"port": found.port, "metrics_port": found.metrics_port})

    Thread(target=_end_with_input, daemon=True).start()
    model, recipe = (Path(task[name]) if task[name] else None for name in ("model", "recipe"))
    try:
        serve(model, recipe, changed(Settings(), task["settings"]), announce)
    except HeadraceError as problem:
        _say({"error": str(problem)})


def _say(value: dict[str, Any]) -> None:
    sys.stdout.write(orjson.dumps(value).decode() + "\n")
    sys.stdout.flush()


def _end_with_input() -> None:
    sys.stdin.read()
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    main(orjson.loads(sys.argv[1]))

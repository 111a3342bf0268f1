"""Real `headrace` processes: started, watched until something is true, told to stop."""

from __future__ import annotations

import http.client
import json
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

COMMAND = Path(sys.executable).with_name("headrace")
PATIENCE_S = 60.0
"""How long a condition may take to come true on a busy machine; passing takes a fraction."""


def picture_bytes(size: int = 48) -> bytes:
    """A small JPEG."""
    buffer = BytesIO()
    Image.new("RGB", (size, size), (200, 90, 30)).save(buffer, "JPEG")
    return buffer.getvalue()


def until(condition: Callable[[], Any], what: str) -> Any:
    """Polls until the condition gives something true, and returns that."""
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end:
        if found := condition():
            return found
        time.sleep(0.01)
    pytest.fail(f"not within {PATIENCE_S:.0f} s: {what}")


def free_port(host: str = "127.0.0.1") -> int:
    with socket.socket() as found:
        found.bind((host, 0))
        return int(found.getsockname()[1])


def ask(
    port: int, method: str, path: str, body: bytes | None = None, host: str = "127.0.0.1"
) -> tuple[int, bytes]:
    """One request on a connection of its own: status and body."""
    connection = http.client.HTTPConnection(host, port, timeout=PATIENCE_S)
    try:
        connection.request(method, path, body)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def ask_json(port: int, path: str) -> tuple[int, Any]:
    status, body = ask(port, "GET", path)
    return status, json.loads(body)


def run(*arguments: str | Path, **options: Any) -> subprocess.CompletedProcess[str]:
    """`headrace ARGUMENTS` to its end."""
    return subprocess.run(
        [COMMAND, *arguments], capture_output=True, text=True, timeout=PATIENCE_S, check=False, **options
    )


class Serving:
    """`headrace serve ARGUMENTS`, not necessarily ready."""

    def __init__(self, *arguments: str | Path) -> None:
        self.process = subprocess.Popen(
            [COMMAND, "serve", *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        self.announced: list[str] = []

    def wait_announced(self) -> tuple[int, int]:
        """Port and metrics port, from the lines it greets with."""
        assert self.process.stdout is not None
        ports = []
        for _ in range(2):
            line = self.process.stdout.readline()
            found = re.search(r"http://(?:\[[^]]*\]|[^:/]+):(\d+)/", line)
            if found is None:
                self.process.kill()
                pytest.fail(
                    f"no port announced but {line!r}; standard error: {self.process.communicate()[1]}"
                )
            self.announced.append(line)
            ports.append(int(found[1]))
        return ports[0], ports[1]

    def stop(self, number: signal.Signals = signal.SIGTERM) -> tuple[int, str, str]:
        """Exit code, standard output and standard error."""
        self.process.send_signal(number)
        return self.wait_ended()

    def wait_ended(self) -> tuple[int, str, str]:
        assert self.process.stdout is not None and self.process.stderr is not None
        code = self.process.wait(PATIENCE_S)
        return code, self.process.stdout.read(), self.process.stderr.read()


@contextmanager
def serving(*arguments: str | Path) -> Iterator[Serving]:
    """A server that does not outlive the test."""
    server = Serving(*arguments)
    try:
        yield server
    finally:
        if server.process.poll() is None:
            server.process.kill()
        server.process.communicate()


def inside(metrics_port: int) -> int:
    """Images inside the engine, by the server's own figures."""
    text = ask(metrics_port, "GET", "/metrics")[1].decode()
    found = re.search(r"^headrace_requests_inside\{[^}]*\} ([0-9.e+]+)$", text, re.MULTILINE)
    assert found is not None, text
    return int(float(found[1]))

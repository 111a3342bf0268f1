"""A server on a real socket, in a thread, and the smallest clients that can misbehave."""

from __future__ import annotations

import http.client
import json
import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from io import BytesIO
from typing import Any

import numpy as np
import uvicorn
from PIL import Image

from headrace.errors import InferenceFailed
from headrace.models.emulated import fingerprint
from headrace.models.runner import DeviceBusy
from headrace.records.recipe import ModelCard, Recipe, RecipeFile
from headrace.records.settings import Settings
from headrace.serve.engine.engine import Engine
from headrace.serve.http.app import App
from headrace.serve.http_protocol import BodyProtocol

SIZE = 32
WAIT_S = 20.0
"""For things that happen at once unless something is broken."""


class GateRunner:
    """Answers fingerprints, or what `outputs` makes of a batch; a closed gate holds every run back."""

    name = "gate"
    device = "cpu"
    emulated = False
    max_batch: int | None = None
    notes = ()
    input_dtype: np.dtype[Any] = np.dtype(np.uint8)
    image_shape = (SIZE, SIZE, 3)

    def __init__(self, outputs: Any = None) -> None:
        self._outputs = outputs or (lambda batch: {"fingerprint": fingerprint(batch, "nhwc")})
        self.output_names = tuple(self._outputs(np.zeros((1, *self.image_shape), np.uint8)))
        self.gate = threading.Event()
        self.gate.set()
        self.entered = threading.Semaphore(0)
        self.fails = False

    def allocate(self, shape: tuple[int, ...]) -> Any:
        return np.zeros(shape, np.uint8)

    def run(self, batch: Any) -> dict[str, Any]:
        self.entered.release()
        assert self.gate.wait(WAIT_S)
        if self.fails:
            raise InferenceFailed("planted")
        outputs: dict[str, Any] = self._outputs(batch.copy())
        return outputs

    def busy(self) -> DeviceBusy:
        return DeviceBusy(0.0, 0, 0)

    def close(self) -> None:
        pass


@dataclass
class Live:
    """A server that listens."""

    port: int
    app: App
    engine: Engine
    runner: Any
    quiet: threading.Condition = field(default_factory=threading.Condition)

    def post(self, body: bytes, path: str = "/predict", **headers: str) -> Reply:
        return self.ask(
            "POST", path, body, {name.replace("_", "-"): value for name, value in headers.items()}
        )

    def get(self, path: str, **headers: str) -> Reply:
        return self.ask("GET", path, None, {name.replace("_", "-"): value for name, value in headers.items()})

    def ask(self, method: str, path: str, body: Any = None, headers: Mapping[str, str] = {}) -> Reply:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=WAIT_S)
        try:
            connection.request(method, path, body, dict(headers))
            return read_reply(connection.getresponse())
        finally:
            connection.close()

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=WAIT_S)


@dataclass(frozen=True)
class Reply:
    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    def is_error(self, status: int, code: str) -> bool:
        """The one shape of an error: nothing less, nothing more."""
        table = self.json
        assert (self.status, table["code"]) == (status, code), self
        assert set(table) == {"error", "code", "request_id"} and table["error"]
        assert table["request_id"] == self.headers["x-request-id"]
        assert ("retry-after" in self.headers) == (status in (429, 503))
        return True


def read_reply(response: http.client.HTTPResponse) -> Reply:
    body = response.read()
    return Reply(response.status, {name.lower(): value for name, value in response.getheaders()}, body)


def read_from(connection: socket.socket, method: str = "POST") -> Reply:
    """One answer from a socket somebody wrote to by hand."""
    response = http.client.HTTPResponse(connection, method=method)
    response.begin()
    return read_reply(response)


def recipe_file(**card: Any) -> RecipeFile:
    return RecipeFile(recipe=Recipe(width=SIZE, height=SIZE, filter="nearest"), model=ModelCard(**card))


@contextmanager
def serving(
    runner: Any = None, file: RecipeFile | None = None, *, start: bool = True, **settings: Any
) -> Iterator[Live]:
    """`start=False` leaves the engine warming up for ever."""
    runner, file = runner or GateRunner(), file or recipe_file()
    settings = {"batch_window_ms": 0.0, "decode_workers": 1, "resize_workers": 1, **settings}
    engine = Engine(runner, file.recipe, Settings(**settings), 1)
    if start:
        engine.start()
        assert engine.wait_ready(WAIT_S).ready
    app = App(engine, file, "demo")
    with listening(app) as port:
        try:
            yield Live(port, app, engine, runner)
        finally:
            if isinstance(runner, GateRunner):
                runner.gate.set()
            if start:
                engine.close()


@contextmanager
def listening(app: Any) -> Iterator[int]:
    config = uvicorn.Config(
        app, http=BodyProtocol, ws="none", lifespan="off", log_level="critical", access_log=False
    )
    server = uvicorn.Server(config)
    bound = socket.socket()
    bound.bind(("127.0.0.1", 0))
    bound.listen(128)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [bound]})
    thread.start()
    try:
        yield int(bound.getsockname()[1])
    finally:
        server.should_exit = True
        thread.join()


def picture(colour: tuple[int, int, int], kind: str = "PNG", size: int = SIZE) -> bytes:
    """One colour all over: its fingerprint is the colour."""
    file = BytesIO()
    Image.new("RGB", (size, size), colour).save(file, kind)
    return file.getvalue()


def seen_colour(reply: Mapping[str, Any]) -> tuple[int, ...]:
    return tuple(round(value) for value in reply["outputs"]["fingerprint"]["values"])


def until(condition: Any) -> None:
    """Waits for something another thread is about to do."""
    pause = threading.Event()
    for _ in range(int(WAIT_S / 0.01)):
        if condition():
            return
        pause.wait(0.01)
    raise AssertionError("it did not happen")

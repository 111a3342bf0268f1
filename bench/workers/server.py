"""A server to be loaded: headrace under given settings, or a bare echo application on the same ASGI server."""

from __future__ import annotations

import json
import sys
from typing import Any

from bench.inputs import RECIPES
from bench.workers.bare import serve_bare
from headrace.records.recipe import Recipe, RecipeFile
from headrace.serve.engine.engine import open_engine
from headrace.serve.engine.memory import keep_freed_memory
from headrace.serve.http_protocol import BodyProtocol, read_body
from headrace.serve.server import Server
from headrace.store.settings_files import load_settings, split_assignment


async def echo(scope: Any, receive: Any, send: Any) -> None:
    """Reads the body as headrace does and sends it back."""
    length = next((int(value) for name, value in scope["headers"] if name == b"content-length"), 0)
    buffer = bytearray(length)
    with memoryview(buffer) as view:
        await read_body(scope, receive, view)
    headers = [(b"content-length", b"%d" % length), (b"content-type", b"image/jpeg")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": bytes(buffer)})


def serve_headrace(recipe: Recipe, assignments: list[str]) -> None:
    settings = load_settings(None, {}, dict(split_assignment(text) for text in assignments))
    if settings.memory_keep:
        keep_freed_memory()
    server = Server("127.0.0.1", 0, 0)
    recipe_file = RecipeFile(recipe=recipe)
    engine = open_engine(None, recipe_file, settings)
    server.run(
        engine,
        recipe_file,
        "bench",
        on_ready=lambda: print(
            json.dumps({"port": server.port, "metrics_port": server.metrics_port}), flush=True
        ),
    )


def main() -> None:
    kind, recipe = sys.argv[1], RECIPES[sys.argv[2]]
    if kind == "echo":
        serve_bare(echo, BodyProtocol)
    else:
        serve_headrace(recipe, sys.argv[3:])


if __name__ == "__main__":
    main()

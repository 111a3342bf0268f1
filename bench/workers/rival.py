"""The honest rival: what a good engineer writes in an afternoon with FastAPI and a thread pool.

The very same decoder, resizer, batch window, batch size and emulated device as headrace; freed memory kept as well.
One pool of threads prepares, an asyncio task collects batches, a second pool runs them.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from threading import local
from typing import Any

import numpy as np
from fastapi import FastAPI, HTTPException, Request

from bench.inputs import RECIPES
from bench.workers.bare import serve_bare
from headrace.core.image.canvas import FreshCanvas
from headrace.core.image.decode import decode
from headrace.core.image.decode_plan import Limits, plan_decode
from headrace.core.image.header import read_header
from headrace.core.image.resize import Resizer
from headrace.errors import RequestError
from headrace.models.opening import open_runner
from headrace.records.image import Encoded, Uint8Array
from headrace.records.recipe import Recipe, RecipeFile
from headrace.records.settings import Settings
from headrace.serve.engine.cores import usable_cores
from headrace.serve.engine.memory import keep_freed_memory

SETTINGS = Settings()
LIMITS = Limits(SETTINGS.limits_max_pixels, SETTINGS.limits_max_decode_bytes)


class Service:
    def __init__(self, recipe: Recipe, accelerator: str, max_items: int = SETTINGS.batch_max_items) -> None:
        self.max_items = max_items
        self.recipe = recipe
        self.runner = open_runner(None, RecipeFile(recipe=self.recipe), accelerator=accelerator, threads=1)
        self.pool = ThreadPoolExecutor(usable_cores())
        self.device = ThreadPoolExecutor(SETTINGS.batch_in_flight)
        self.mine = local()
        self.waiting: asyncio.Queue[tuple[Uint8Array, asyncio.Future[Any]]] = asyncio.Queue()

    def prepare(self, data: bytes) -> Uint8Array:
        if not hasattr(self.mine, "resizer"):
            self.mine.resizer = Resizer(self.recipe)
        header = read_header(data)
        plan = plan_decode(header, self.recipe, "fast", True, LIMITS)
        pixels = decode(Encoded(data), header, plan, self.recipe, FreshCanvas)
        prepared = np.empty((self.recipe.height, self.recipe.width, 3), np.uint8)
        self.mine.resizer.write(pixels, prepared)
        return prepared

    async def predict(self, data: bytes) -> Any:
        loop = asyncio.get_running_loop()
        prepared = await loop.run_in_executor(self.pool, self.prepare, data)
        answer: asyncio.Future[Any] = loop.create_future()
        await self.waiting.put((prepared, answer))
        return await answer

    async def collect(self) -> None:
        loop = asyncio.get_running_loop()
        room = asyncio.Semaphore(SETTINGS.batch_in_flight)
        while True:
            batch = [await self.waiting.get()]
            end = loop.time() + SETTINGS.batch_window_ms / 1e3
            while len(batch) < self.max_items and (left := end - loop.time()) > 0:
                try:
                    batch.append(await asyncio.wait_for(self.waiting.get(), left))
                except TimeoutError:
                    break
            await room.acquire()
            task = asyncio.create_task(self.run(batch))
            task.add_done_callback(lambda _: room.release())

    async def run(self, batch: list[tuple[Uint8Array, asyncio.Future[Any]]]) -> None:
        stacked = np.stack([prepared for prepared, _ in batch])
        outputs = await asyncio.get_running_loop().run_in_executor(self.device, self.runner.run, stacked)
        for row, (_, answer) in enumerate(batch):
            answer.set_result({name: array[row].tolist() for name, array in outputs.items()})


def application(service: Service) -> FastAPI:
    @asynccontextmanager
    async def life(_: FastAPI) -> AsyncIterator[None]:
        task = asyncio.create_task(service.collect())
        yield
        task.cancel()

    app = FastAPI(lifespan=life)

    @app.post("/predict")
    async def predict(request: Request) -> Any:
        try:
            return await service.predict(await request.body())
        except RequestError as problem:
            raise HTTPException(problem.http_status, str(problem)) from None

    return app


def main() -> None:
    keep_freed_memory()
    most = int(sys.argv[3]) if len(sys.argv) > 3 else SETTINGS.batch_max_items
    serve_bare(application(Service(RECIPES[sys.argv[1]], sys.argv[2], most)), "httptools", "on")


if __name__ == "__main__":
    main()

"""What the Open Inference Protocol tells about server and model: metadata, configuration, statistics."""

from __future__ import annotations

import asyncio
from typing import Any

from headrace import __version__
from headrace.records.recipe import RecipeFile
from headrace.serve.engine.engine import Engine
from headrace.serve.http.counters import Counters
from headrace.serve.http.forms import MOST_ITEMS
from headrace.serve.http.oip_tensors import datatype

VERSION = "1"
IMAGE = "image"
PREPARED = "prepared"
EXTENSIONS = (
    "binary_tensor_data",
    "classification",
    "statistics",
    "model_configuration",
    "model_repository",
    "schedule_policy",
)


class ModelFacts:
    """Knows the model's inputs, learns its outputs from one run."""

    def __init__(self, engine: Engine, file: RecipeFile, name: str) -> None:
        self._engine = engine
        self._name = name
        recipe = file.recipe
        self.prepared_shape = (recipe.height, recipe.width, recipe.channels)
        self._outputs: list[tuple[str, str, list[int]]] = []

    def server(self) -> dict[str, Any]:
        """`GET /v2`."""
        return {"name": "headrace", "version": __version__, "extensions": list(EXTENSIONS)}

    async def metadata(self) -> dict[str, Any]:
        """`GET /v2/models/{m}`. One of the two inputs is to be given."""
        return {
            "name": self._name,
            "versions": [VERSION],
            "platform": "headrace",
            "inputs": [
                {"name": IMAGE, "datatype": "BYTES", "shape": [-1, 1]},
                {"name": PREPARED, "datatype": "UINT8", "shape": [-1, *self.prepared_shape]},
            ],
            "outputs": [
                {"name": name, "datatype": kind, "shape": [-1, *shape]}
                for name, kind, shape in await self._known_outputs()
            ],
            "parameters": {"emulated": self._engine.runner.emulated, "device": self._engine.runner.device},
        }

    async def config(self) -> dict[str, Any]:
        """`GET /v2/models/{m}/config`, as far as it can be said of a server that is not Triton."""
        settings = self._engine.settings
        window_us = int(settings.batch_window_ms * 1e3)
        return {
            "name": self._name,
            "platform": "headrace",
            "backend": "headrace",
            "version_policy": {"latest": {"num_versions": 1}},
            "max_batch_size": MOST_ITEMS,
            "input": [
                {"name": IMAGE, "data_type": "TYPE_STRING", "dims": [1], "optional": True},
                {
                    "name": PREPARED,
                    "data_type": "TYPE_UINT8",
                    "dims": list(self.prepared_shape),
                    "optional": True,
                },
            ],
            "output": [
                {"name": name, "data_type": "TYPE_" + kind.replace("BYTES", "STRING"), "dims": shape or [1]}
                for name, kind, shape in await self._known_outputs()
            ],
            "instance_group": [{"name": self._name, "count": settings.batch_in_flight, "kind": self._kind()}],
            "dynamic_batching": {
                "preferred_batch_size": [settings.batch_max_items],
                "max_queue_delay_microseconds": window_us,
            },
        }

    def index(self) -> list[dict[str, str]]:
        """`POST /v2/repository/index`."""
        readiness = self._engine.readiness
        state = {"ready": "READY", "warming": "LOADING", "failed": "UNAVAILABLE", "draining": "UNLOADING"}[
            readiness.state
        ]
        return [{"name": self._name, "version": VERSION, "state": state, "reason": readiness.reason}]

    def statistics(self, counters: Counters) -> dict[str, Any]:
        """`GET /v2/models/{m}/stats`, cumulative, in Triton's words."""
        totals = counters.totals
        batches = self._engine.inference.batches()
        return {
            "model_stats": [
                {
                    "name": self._name,
                    "version": VERSION,
                    "last_inference": int(totals.last_wall_s * 1e3),
                    "inference_count": totals.images,
                    "execution_count": sum(count for count, _ in batches.values()),
                    "inference_stats": totals.as_triton(),
                    "response_stats": {},
                    "batch_stats": [_batch_entry(images, *batches[images]) for images in sorted(batches)],
                    "memory_usage": [],
                }
            ]
        }

    def _kind(self) -> str:
        return "KIND_GPU" if self._engine.runner.device.startswith("cuda") else "KIND_CPU"

    async def _known_outputs(self) -> list[tuple[str, str, list[int]]]:
        if not self._outputs:
            self._outputs = await asyncio.to_thread(self._run_once)
        return self._outputs

    def _run_once(self) -> list[tuple[str, str, list[int]]]:
        runner = self._engine.runner
        outputs = runner.run(runner.allocate((1, *runner.image_shape)))
        return [(name, datatype(array.dtype), list(array.shape[1:])) for name, array in outputs.items()]


def _batch_entry(images: int, count: int, total_s: float) -> dict[str, Any]:
    """Triton's words for the batches of one size; copying is part of the run here."""
    nothing = {"count": 0, "ns": 0}
    run = {"count": count, "ns": int(total_s * 1e9)}
    return {"batch_size": images, "compute_input": nothing, "compute_infer": run, "compute_output": nothing}

"""The naive service with OpenCV: FastAPI, one preparation thread, full decode, cvtColor, INTER_LINEAR, float normalise, transpose."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import cv2
import numpy as np

from bench.inputs import RECIPES
from bench.workers.bare import serve_bare
from bench.workers.rival import Service, application
from headrace.records.recipe import Recipe
from headrace.serve.engine.memory import keep_freed_memory


class Naive(Service):
    def __init__(self, recipe: Recipe, accelerator: str) -> None:
        super().__init__(recipe, accelerator)
        self.pool = ThreadPoolExecutor(1)

    def prepare(self, data: bytes) -> Any:
        decoded: Any = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR)
        image = cv2.cvtColor(decoded, cv2.COLOR_BGR2RGB)
        image = cv2.resize(image, (self.recipe.width, self.recipe.height), interpolation=cv2.INTER_LINEAR)
        values = (image.astype(np.float32) / 255.0 - 0.5) / 0.5
        np.ascontiguousarray(values.transpose(2, 0, 1))
        return image


def main() -> None:
    cv2.setNumThreads(1)
    if sys.argv[3] == "tuned":
        keep_freed_memory()
    serve_bare(application(Naive(RECIPES[sys.argv[1]], sys.argv[2])), "httptools", "on")


if __name__ == "__main__":
    main()

"""Preparation in process: the engine without HTTP, an accelerator that is never the limit, 16 jobs inside."""

from __future__ import annotations

import json
import sys
import threading
import time

from bench.inputs import RECIPES, workload
from headrace.clock import monotonic_s
from headrace.records.image import Encoded
from headrace.records.recipe import RecipeFile
from headrace.records.settings import Settings
from headrace.records.timeline import Timeline
from headrace.serve.engine.engine import Engine, open_engine
from headrace.serve.engine.job import Job
from headrace.serve.engine.memory import keep_freed_memory

CONCURRENCY = 16


def run(engine: Engine, files: list[bytes], seconds: float) -> dict[str, float]:
    room, failed = threading.Semaphore(CONCURRENCY), [0]

    def done(job: Job) -> None:
        failed[0] += job.error is not None
        room.release()

    start, sent = time.perf_counter(), 0
    while time.perf_counter() - start < seconds:
        room.acquire()
        now_s = monotonic_s()
        job = Job(
            timeline=Timeline(now_s),
            deadline_s=now_s + 60,
            done=done,
            encoded=Encoded(files[sent % len(files)]),
        )
        engine.submit(job)
        sent += 1
    for _ in range(CONCURRENCY):
        room.acquire()
    return {"images": sent - failed[0], "seconds": time.perf_counter() - start}


def main() -> None:
    name, recipe, accelerator = sys.argv[1], RECIPES[sys.argv[2]], sys.argv[3]
    keep_freed_memory()
    files = workload(name)
    engine = open_engine(None, RecipeFile(recipe=recipe), Settings(accelerator=accelerator))
    engine.start()
    engine.wait_ready(60)
    print(json.dumps({"ready": True}), flush=True)
    for line in sys.stdin:
        print(json.dumps(run(engine, files, float(line.split()[1]))), flush=True)


if __name__ == "__main__":
    main()

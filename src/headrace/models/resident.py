"""Running a model on input that already lies where it computes: what it can do when nothing has to reach it."""

from __future__ import annotations

from collections.abc import Callable

from headrace.models.ort import OrtRunner
from headrace.models.runner import Runner
from headrace.records.image import AnyArray


def resident_run(runner: Runner, batch: AnyArray) -> Callable[[], object]:
    """A call that computes `batch`, see `OrtRunner.resident`; of a runner without memory of its own it is `run` itself."""
    return runner.resident(batch) if isinstance(runner, OrtRunner) else lambda: runner.run(batch)

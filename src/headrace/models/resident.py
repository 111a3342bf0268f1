"""Running a model on input that already lies where it computes: what it can do when nothing has to reach it."""

from __future__ import annotations

from collections.abc import Callable

import onnxruntime

from headrace.errors import InferenceFailed
from headrace.models.ort import OrtRunner
from headrace.models.runner import Runner
from headrace.records.image import AnyArray


def resident_run(runner: Runner, batch: AnyArray) -> Callable[[], object]:
    """A call that computes `batch` as `Runner.run` does, for one thread at a time.

    On a GPU the batch (of at most `max_batch`) is copied there now, once, and the outputs stay there; elsewhere it is `run` itself, for
    the model computes in the host's memory. Counts as busy time. Raises InferenceFailed when the device cannot take the batch.
    """
    if not isinstance(runner, OrtRunner) or runner.device == "cpu":
        return lambda: runner.run(batch)
    session, meter = runner._session, runner._meter
    try:
        binding = session.io_binding()
        binding.bind_ortvalue_input(runner._input, onnxruntime.OrtValue.ortvalue_from_numpy(batch, "cuda", 0))
        for name in runner.output_names:
            binding.bind_output(name, "cuda", 0)
    except Exception as error:  # ONNX Runtime's classes share no base of their own
        raise InferenceFailed(f"a batch of {len(batch)} cannot be kept on the device: {error}") from error

    def run() -> None:
        with meter.run(len(batch)):
            session.run_with_iobinding(binding)
            binding.synchronize_outputs()

    return run

"""ONNX Runtime on the CPU or a GPU."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime

from headrace.clock import monotonic_s
from headrace.errors import InferenceFailed, ModelError, SettingError
from headrace.models.busy import BusyMeter
from headrace.models.pinned import pinned_zeros
from headrace.models.runner import DeviceBusy
from headrace.records.image import AnyArray

PROVIDERS = {
    "cpu": "CPUExecutionProvider",
    "cuda": "CUDAExecutionProvider",
    "tensorrt": "TensorrtExecutionProvider",
}
_OPTIONS: dict[str, dict[str, str]] = {
    # Batches vary in size: an exhaustive search for the fastest convolution would run anew for each size, and an
    # arena that doubles keeps memory for sizes that never come again.
    "CUDAExecutionProvider": {
        "cudnn_conv_algo_search": "HEURISTIC",
        "arena_extend_strategy": "kSameAsRequested",
    },
}


def choose_device(accelerator: str, available: Sequence[str] | None = None) -> str:
    """`auto` -> `cuda` where ONNX Runtime offers it, else `cpu`; others unchanged if they can be had.

    Raises SettingError for an unknown name and ModelError for one this installation does not offer.
    """
    offered = onnxruntime.get_available_providers() if available is None else list(available)
    if accelerator == "auto":
        return "cuda" if PROVIDERS["cuda"] in offered else "cpu"
    if accelerator not in PROVIDERS:
        raise SettingError(
            f"accelerator={accelerator!r} is unknown; use auto, {', '.join(PROVIDERS)} or emulated:BASE_MS+PER_IMAGE_MS"
        )
    if PROVIDERS[accelerator] not in offered:
        usable = ", ".join(name for name, provider in PROVIDERS.items() if provider in offered)
        raise ModelError(
            f"accelerator={accelerator} needs {PROVIDERS[accelerator]}, which the installed onnxruntime does not offer "
            f"(it offers {usable}): install onnxruntime-gpu in place of onnxruntime, or choose another accelerator"
        )
    return accelerator


class OrtRunner:
    """A `Runner` on ONNX Runtime. `run` is safe from several threads at once; each computes on its own."""

    emulated = False

    def __init__(
        self,
        serialized: bytes,
        *,
        name: str,
        device: str,
        threads: int,
        image_shape: tuple[int, int, int],
        weights_folder: Path | None = None,
        batch: int | None = None,
        notes: tuple[str, ...] = (),
        required: bool = True,
        clock_s: Callable[[], float] = monotonic_s,
    ) -> None:
        """`serialized` is the model with exactly one input; `device` one of PROVIDERS; `batch` the only size it takes.

        Raises ModelError when ONNX Runtime refuses the model. When it cannot start `device` and falls back to another,
        that is a ModelError if the device is `required` and a note if not.
        """
        self.name = name
        self.max_batch = batch
        self.image_shape = image_shape
        self._session = _open_session(serialized, device, threads, weights_folder)
        fallen = _fallback(self._session, device)
        if fallen and required:
            raise ModelError(fallen)
        self.notes = (*notes, fallen) if fallen else notes
        self.device = "cpu" if fallen or device == "cpu" else "cuda:0"
        image = self._session.get_inputs()[0]
        self._input: str = image.name
        self.input_dtype: np.dtype[Any] = np.dtype(_numpy_name(image.type))
        self.output_names: tuple[str, ...] = tuple(output.name for output in self._session.get_outputs())
        self._meter = BusyMeter(clock_s)

    def allocate(self, shape: tuple[int, ...]) -> AnyArray:
        """Zeros of `input_dtype`, page-locked for a GPU where that can be had."""
        pinned = pinned_zeros(shape, self.input_dtype) if self.device != "cpu" else None
        return np.zeros(shape, self.input_dtype) if pinned is None else pinned

    def run(self, batch: AnyArray) -> dict[str, AnyArray]:
        """See `Runner.run`. On a GPU the time counted busy includes both transfers."""
        if self.max_batch is None:
            return self._compute(batch)
        size = self.max_batch
        parts = [self._compute_filled(batch[start : start + size]) for start in range(0, len(batch), size)]
        return {name: np.concatenate([part[name] for part in parts]) for name in self.output_names}

    def resident(self, batch: AnyArray) -> Callable[[], object]:
        """A call that computes `batch`, of at most `max_batch`, from where it lies: on a GPU it is copied there now, once, and the outputs
        stay there. For one thread at a time; counts as busy time. Raises InferenceFailed when the device cannot take the batch."""
        if self.device == "cpu":
            return lambda: self.run(batch)
        try:
            binding = self._session.io_binding()
            binding.bind_ortvalue_input(
                self._input, onnxruntime.OrtValue.ortvalue_from_numpy(batch, "cuda", 0)
            )
            for name in self.output_names:
                binding.bind_output(name, "cuda", 0)
        except Exception as error:  # ONNX Runtime's classes share no base of their own
            raise InferenceFailed(f"a batch of {len(batch)} cannot be kept on the device: {error}") from error

        def run() -> None:
            with self._meter.run(len(batch)):
                self._session.run_with_iobinding(binding)
                binding.synchronize_outputs()

        return run

    def busy(self) -> DeviceBusy:
        """Totals up to now."""
        return self._meter.read()

    def close(self) -> None:
        """Drops the session and its memory."""
        self._session = None

    def _compute_filled(self, batch: AnyArray) -> dict[str, AnyArray]:
        """A fixed-size run: blank images fill the batch up, and their answers are dropped."""
        count, size = len(batch), self.max_batch or len(batch)
        if count == size:
            return self._compute(batch)
        full = np.zeros((size, *batch.shape[1:]), batch.dtype)
        full[:count] = batch
        return {name: output[:count] for name, output in self._compute(full, count).items()}

    def _compute(self, batch: AnyArray, images: int | None = None) -> dict[str, AnyArray]:
        with self._meter.run(len(batch) if images is None else images):
            try:
                arrays = self._on_cpu(batch) if self.device == "cpu" else self._on_gpu(batch)
            except Exception as error:  # ONNX Runtime's classes share no base of their own
                raise InferenceFailed(
                    f"the model failed on a batch of {len(batch)}: {_first_line(error)}"
                ) from error
        outputs = dict(zip(self.output_names, arrays, strict=True))
        for name, array in outputs.items():
            if array.ndim == 0 or len(array) != len(batch):
                raise InferenceFailed(
                    f"the output '{name}' has shape {list(array.shape)} for a batch of {len(batch)}, so it is not clear "
                    "which part belongs to which image: choose other outputs in [model]"
                )
        return outputs

    def _on_cpu(self, batch: AnyArray) -> list[AnyArray]:
        arrays: list[AnyArray] = self._session.run(None, {self._input: batch})
        return arrays

    def _on_gpu(self, batch: AnyArray) -> list[AnyArray]:
        binding = self._session.io_binding()
        binding.bind_cpu_input(self._input, batch)
        for name in self.output_names:
            binding.bind_output(name, "cpu")
        self._session.run_with_iobinding(binding)
        arrays: list[AnyArray] = binding.copy_outputs_to_cpu()
        return arrays


def _open_session(serialized: bytes, device: str, threads: int, weights_folder: Path | None) -> Any:
    wanted = PROVIDERS[device]
    chain = dict.fromkeys([wanted, *([PROVIDERS["cuda"]] if device == "tensorrt" else []), PROVIDERS["cpu"]])
    providers = [(provider, _OPTIONS.get(provider, {})) for provider in chain]
    options = _session_options(threads, weights_folder)
    try:
        return onnxruntime.InferenceSession(serialized, options, providers=providers)
    except Exception as error:  # ONNX Runtime's classes share no base of their own
        raise ModelError(f"ONNX Runtime refuses the model: {_first_line(error)}") from error


def _fallback(session: Any, device: str) -> str:
    """What happened when the session does not run on `device`; empty when it does."""
    used = session.get_providers()
    if PROVIDERS[device] in used:
        return ""
    return (
        f"accelerator={device} could not be started and ONNX Runtime fell back to {', '.join(used)}: check that the driver, "
        "CUDA and cuDNN fit this onnxruntime-gpu, or choose accelerator=cpu"
    )


def _session_options(threads: int, weights_folder: Path | None) -> Any:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    # A memory plan is kept for each batch size ever seen; without plans the peak is that of the largest batch.
    options.enable_mem_pattern = False
    # Threads that spin between runs would take the cores from decoding.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.add_session_config_entry("session.inter_op.allow_spinning", "0")
    if weights_folder is not None:
        options.add_session_config_entry(
            "session.model_external_initializers_file_folder_path", str(weights_folder)
        )
    return options


def _numpy_name(onnx_type: str) -> str:
    """`tensor(float16)` -> `float16`."""
    inner = onnx_type.removeprefix("tensor(").removesuffix(")")
    return {"float": "float32", "double": "float64"}.get(inner, inner)


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:400]

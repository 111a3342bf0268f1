"""From settings to a runner that has proved to run."""

from __future__ import annotations

from pathlib import Path

import onnx

from headrace.core.queueing.service_curve import parse_emulated
from headrace.errors import ModelError, SettingError
from headrace.models.emulated import EmulatedRunner
from headrace.models.files import load_model
from headrace.models.front import with_front, without_front
from headrace.models.graph import read_signature
from headrace.models.ort import OrtRunner, choose_device
from headrace.models.runner import Runner
from headrace.models.signature import Fit, fit
from headrace.models.trial import try_out
from headrace.records.recipe import Recipe, RecipeFile

HALVED = 32
"""Sides that are multiples of this can be halved five times, as detectors and depth models do."""


def open_runner(
    model: Path | None, recipe: RecipeFile, *, accelerator: str, threads: int, front: bool = True
) -> Runner:
    """A runner for `model` on `accelerator`, tried out with one image and with two.

    `front=True`: batches are uint8[n, H, W, C], normalised on the device. `front=False`: batches are in the model's own
    dtype and layout, already normalised. `model` may be None for an emulated accelerator only, which ignores it.
    Raises ModelError when the model cannot be read, does not fit the recipe or does not run; SettingError for the
    accelerator or threads.
    """
    if threads < 1:
        raise SettingError(f"model.threads={threads} is less than 1")
    if accelerator.startswith("emulated"):
        return _emulated(accelerator, recipe.recipe, front)
    device = choose_device(accelerator)
    if model is None:
        raise ModelError(
            f"accelerator={accelerator} needs a model: give --model FILE.onnx, or use an emulated accelerator"
        )
    try:
        serialized, fitted = _prepared(load_model(model), recipe, front)
        return _started(
            serialized, fitted, model, recipe.recipe, device, threads, front, accelerator != "auto"
        )
    except ModelError as error:
        if str(model) in str(error):
            raise
        raise ModelError(f"{model}: {error}") from error


def _prepared(model: onnx.ModelProto, file: RecipeFile, front: bool) -> tuple[bytes, Fit]:
    """The changed graph as bytes; the graphs themselves are dropped, so that large weights are not held three times."""
    fitted = fit(read_signature(model), file.recipe, file.model)
    ready = with_front(model, file.recipe, fitted) if front else without_front(model, file.recipe, fitted)
    return ready.SerializeToString(), fitted


def _started(
    serialized: bytes,
    fitted: Fit,
    path: Path,
    recipe: Recipe,
    device: str,
    threads: int,
    front: bool,
    required: bool,
) -> OrtRunner:
    try:
        runner = OrtRunner(
            serialized,
            name=path.stem,
            device=device,
            threads=threads,
            image_shape=image_shape(recipe, front),
            weights_folder=path.parent.resolve(),
            batch=fitted.batch,
            notes=fitted.notes,
            required=required,
        )
        trial = try_out(runner, recipe)
    except ModelError as error:
        raise ModelError(f"{error}{_size_hint(fitted, recipe)}") from error
    runner.max_batch = trial.max_batch
    runner.notes += trial.notes
    return runner


def _size_hint(fitted: Fit, recipe: Recipe) -> str:
    """A graph that takes any size on paper often needs sides that it can halve five times."""
    dims = fitted.input.dims
    free = fitted.unfreeze or dims is None or not all(isinstance(dim, int) for dim in dims[1:])
    if not free or (recipe.width % HALVED == 0 and recipe.height % HALVED == 0):
        return ""
    return (
        f" (the recipe's {recipe.width}x{recipe.height} is no multiple of {HALVED}, which many models of free size need: "
        "try another width and height in [recipe])"
    )


def image_shape(recipe: Recipe, front: bool) -> tuple[int, int, int]:
    """Shape of one image in a batch."""
    if front or recipe.layout == "nhwc":
        return (recipe.height, recipe.width, recipe.channels)
    return (recipe.channels, recipe.height, recipe.width)


def _emulated(accelerator: str, recipe: Recipe, front: bool) -> EmulatedRunner:
    if not accelerator.startswith("emulated:"):
        raise SettingError(f"accelerator={accelerator!r} lacks its times; write it like emulated:2ms+5ms")
    return EmulatedRunner(
        parse_emulated(accelerator),
        image_shape(recipe, front),
        layout="nhwc" if front else recipe.layout,
        dtype="uint8" if front else recipe.dtype,
    )

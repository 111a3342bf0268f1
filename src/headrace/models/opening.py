"""From settings to a runner that has proved to run."""

from __future__ import annotations

from pathlib import Path

from headrace.core.queueing.service_curve import parse_emulated
from headrace.errors import ModelError, SettingError
from headrace.models.emulated import EmulatedRunner
from headrace.models.files import load_model
from headrace.models.front import with_front, without_front
from headrace.models.graph import read_signature
from headrace.models.ort import OrtRunner, choose_device
from headrace.models.runner import Runner
from headrace.models.signature import fit
from headrace.models.trial import try_out
from headrace.records.recipe import Recipe, RecipeFile


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
    runner = _open(model, recipe, device, threads, front)
    trial = try_out(runner, recipe.recipe)
    runner.max_batch = trial.max_batch
    runner.notes += trial.notes
    return runner


def _open(path: Path, file: RecipeFile, device: str, threads: int, front: bool) -> OrtRunner:
    model = load_model(path)
    try:
        fitted = fit(read_signature(model), file.recipe, file.model)
        ready = with_front(model, file.recipe, fitted) if front else without_front(model, file.recipe, fitted)
        del model  # large models: never three copies of the weights at once
        serialized = ready.SerializeToString()
        del ready
        return OrtRunner(
            serialized,
            name=path.stem,
            device=device,
            threads=threads,
            image_shape=image_shape(file.recipe, front),
            weights_folder=path.parent.resolve(),
            batch=fitted.batch,
            notes=fitted.notes,
        )
    except ModelError as error:
        raise ModelError(f"{path}: {error}") from error


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

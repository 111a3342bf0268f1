"""Runners: the emulated one by its timetable, ONNX Runtime by its answers, and everything that is no model."""

from __future__ import annotations

import ctypes
import gc
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest

import tiny_models as tiny
from headrace.errors import InferenceFailed, ModelError, SettingError
from headrace.models.opening import open_runner
from headrace.models.ort import choose_device
from headrace.models.pinned import pinned_zeros
from headrace.models.runner import Runner
from headrace.records.recipe import ModelCard, Recipe, RecipeFile

SMALL = Recipe(width=4, height=4, scale=1.0)


def has_cuda() -> bool:
    return "CUDAExecutionProvider" in onnxruntime.get_available_providers()


def opened(
    model: Any, folder: Path, card: ModelCard | None = None, recipe: Recipe = SMALL, **options: Any
) -> Runner:
    path = tiny.saved(model, folder)
    file = RecipeFile(recipe=recipe, model=card or ModelCard())
    return open_runner(path, file, accelerator="cpu", threads=1, **options)


def images(count: int, recipe: Recipe = SMALL) -> Any:
    shape = (count, recipe.height, recipe.width, recipe.channels)
    return np.random.default_rng(count).integers(0, 256, shape, dtype=np.uint8)


def test_front_and_legacy_agree(tmp_path: Path) -> None:
    recipe = replace(SMALL, mean=(127.0,) * 3, std=(128.0,) * 3)
    model = tiny.convolution(["n", 3, 4, 4])
    staged, legacy = (
        opened(model, tmp_path, recipe=recipe),
        opened(model, tmp_path, recipe=recipe, front=False),
    )
    assert (staged.input_dtype, staged.image_shape) == (np.uint8, (4, 4, 3))
    assert (legacy.input_dtype, legacy.image_shape) == (np.float32, (3, 4, 4))
    assert staged.name == "model" and staged.device == "cpu" and not staged.emulated and staged.notes == ()
    batch = images(3)
    ready = np.ascontiguousarray(((batch.astype(np.float32) - 127) / 128).transpose(0, 3, 1, 2))
    np.testing.assert_allclose(staged.run(batch)["y"], legacy.run(ready)["y"], atol=1e-5)


def test_answers_are_the_callers_to_keep(tmp_path: Path) -> None:
    runner = opened(tiny.identity(["n", 3, 4, 4]), tmp_path)
    first = images(2)
    kept = runner.run(first)["y"]
    copy = kept.copy()
    first[:] = 0
    for count in (1, 5, 2):
        runner.run(images(count))
    runner.close()
    gc.collect()
    np.testing.assert_array_equal(kept, copy)


def test_two_threads_at_once(tmp_path: Path) -> None:
    runner = opened(tiny.convolution(["n", 3, 4, 4]), tmp_path)
    expected = {count: runner.run(images(count))["y"] for count in (1, 2, 3, 4)}
    before = runner.busy()
    wrong: list[int] = []

    def work(start: int) -> None:
        for step in range(40):
            count = (start + step) % 4 + 1
            if not np.array_equal(runner.run(images(count))["y"], expected[count]):
                wrong.append(count)

    threads = [threading.Thread(target=work, args=(start,)) for start in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    after = runner.busy()
    assert wrong == [] and after.launches - before.launches == 80 and after.images - before.images == 200
    assert after.busy_s > before.busy_s


def test_batches_of_one_where_the_graph_is_frozen_to_one(tmp_path: Path) -> None:
    runner = opened(tiny.convolution([1, 3, 4, 4]), tmp_path)
    free = opened(tiny.convolution(["n", 3, 4, 4]), tmp_path)
    assert runner.max_batch == 1 and "one by one" in runner.notes[0]
    batch = images(5)
    np.testing.assert_allclose(runner.run(batch)["y"], free.run(batch)["y"], atol=1e-5)
    assert runner.run(images(1))["y"].shape == (1, 2, 4, 4)


def test_fixed_batches_are_filled_up(tmp_path: Path) -> None:
    runner = opened(tiny.convolution([4, 3, 4, 4]), tmp_path)
    free = opened(tiny.convolution(["n", 3, 4, 4]), tmp_path)
    assert runner.max_batch == 4 and "filled up" in runner.notes[0]
    for count in (1, 4, 6):
        before = runner.busy().images
        np.testing.assert_allclose(runner.run(images(count))["y"], free.run(images(count))["y"], atol=1e-5)
        assert runner.busy().images - before == count


def test_unfreeze_runs_for_real(tmp_path: Path) -> None:
    model = tiny.convolution([10, 3, 32, 32])
    with pytest.raises(ModelError, match=r"model\.onnx: .*unfreeze = true"):
        opened(model, tmp_path)
    runner = opened(model, tmp_path, ModelCard(unfreeze=True))
    assert runner.max_batch is None and runner.run(images(3))["y"].shape == (3, 2, 4, 4)


def test_a_batch_that_is_free_on_paper_only(tmp_path: Path) -> None:
    runner = opened(tiny.fixed_reshape(), tmp_path)
    assert runner.max_batch == 1 and "not two at once" in runner.notes[-1]
    assert runner.run(images(3))["y"].shape == (3, 48)


def test_unfreezing_what_cannot_be_unfrozen(tmp_path: Path) -> None:
    nodes = [
        tiny.helper.make_node("Flatten", ["x"], ["flat"]),
        tiny.helper.make_node("MatMul", ["flat", "w"], ["y"]),
    ]
    dims = [10, 3, 32, 32]
    weights = {"w": np.zeros((3072, 2), np.float32)}
    model = tiny.graph(nodes, [("x", tiny.FLOAT, dims)], [("y", tiny.FLOAT, [10, 2])], weights)
    with pytest.raises(ModelError) as caught:
        opened(model, tmp_path, ModelCard(unfreeze=True))
    assert "model.onnx" in str(caught.value) and "\n" not in str(caught.value)


def test_sizes_that_a_free_graph_cannot_take(tmp_path: Path) -> None:
    nodes = [
        tiny.helper.make_node("MaxPool", ["x"], ["small"], kernel_shape=[2, 2], strides=[2, 2]),
        tiny.helper.make_node("Upsample", ["small", "scales"], ["large"]),
        tiny.helper.make_node("Add", ["x", "large"], ["y"]),
    ]
    dims = ["n", 3, "h", "w"]
    weights = {"scales": np.array([1, 1, 2, 2], np.float32)}
    model = tiny.graph(nodes, [("x", tiny.FLOAT, dims)], [("y", tiny.FLOAT, dims)], weights, opset=9)
    with pytest.raises(ModelError, match=r"model\.onnx: .*5x4 is no multiple of 32"):
        opened(model, tmp_path, recipe=replace(SMALL, width=5))
    assert opened(model, tmp_path).max_batch is None


def test_a_model_that_mixes_its_batch_is_pointed_out(tmp_path: Path) -> None:
    assert "changes with the other images" in opened(tiny.mixing(), tmp_path).notes[-1]


def test_twelve_outputs(tmp_path: Path) -> None:
    everything = opened(tiny.many_outputs(), tmp_path)
    assert len(everything.output_names) == 12 and "All 12" in everything.notes[0]
    chosen = opened(tiny.many_outputs(), tmp_path, ModelCard(outputs=("1953",)))
    assert chosen.output_names == ("1953",) and set(chosen.run(images(1))) == {"1953"}


def test_uint8_and_half_models(tmp_path: Path) -> None:
    recipe = replace(SMALL, layout="nhwc", dtype="uint8")
    small = opened(tiny.identity(["n", 4, 4, 3], tiny.UINT8), tmp_path, recipe=recipe)
    np.testing.assert_array_equal(small.run(images(2))["y"], images(2))
    half = opened(
        tiny.convolution(["n", 3, 4, 4], dtype=tiny.FLOAT16), tmp_path, recipe=replace(SMALL, dtype="float16")
    )
    assert half.notes == () and half.run(images(2))["y"].dtype == np.float16
    legacy = opened(tiny.identity(["n", 3, 4, 4], tiny.FLOAT16), tmp_path, front=False)
    assert legacy.input_dtype == np.float16


def test_a_batch_of_the_wrong_shape(tmp_path: Path) -> None:
    runner = opened(tiny.convolution(["n", 3, 4, 4]), tmp_path)
    with pytest.raises(InferenceFailed, match="failed on a batch of 2"):
        runner.run(np.zeros((2, 5, 4, 3), np.uint8))
    with pytest.raises(InferenceFailed):
        runner.run(np.zeros((2, 4, 4, 3), np.float32))
    assert runner.run(images(1))["y"].shape == (1, 2, 4, 4)


def test_an_operator_that_the_runtime_does_not_know(tmp_path: Path) -> None:
    model = tiny.identity(["n", 3, 4, 4])
    model.graph.node[0].op_type, model.graph.node[0].domain = "Sparkle", "com.example"
    model.opset_import.append(tiny.helper.make_opsetid("com.example", 1))
    with pytest.raises(ModelError, match=r"model\.onnx: ONNX Runtime refuses the model: .*Sparkle"):
        opened(model, tmp_path)


def test_devices() -> None:
    both = ["CUDAExecutionProvider", "CPUExecutionProvider"]
    assert choose_device("auto", both) == "cuda" and choose_device("auto", ["CPUExecutionProvider"]) == "cpu"
    assert choose_device("cuda", both) == "cuda"
    with pytest.raises(ModelError, match=r"TensorrtExecutionProvider.*offers cpu, cuda"):
        choose_device("tensorrt", both)
    with pytest.raises(SettingError, match="'gpu' is unknown"):
        choose_device("gpu", both)


@pytest.mark.skipif(has_cuda(), reason="a GPU that works does not fall back")
@pytest.mark.filterwarnings("ignore:Specified provider")
def test_a_gpu_that_does_not_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "headrace.models.ort.onnxruntime.get_available_providers",
        lambda: ["CUDAExecutionProvider", "CPUExecutionProvider"],
    )
    path, file = tiny.saved(tiny.convolution(["n", 3, 4, 4]), tmp_path), RecipeFile(recipe=SMALL)
    with pytest.raises(ModelError, match="fell back to CPUExecutionProvider"):
        open_runner(path, file, accelerator="cuda", threads=1)
    runner = open_runner(path, file, accelerator="auto", threads=1)
    assert runner.device == "cpu" and "could not be started" in runner.notes[0]


def test_settings_that_open_nothing() -> None:
    file = RecipeFile(recipe=SMALL)
    with pytest.raises(ModelError, match="needs a model"):
        open_runner(None, file, accelerator="cpu", threads=1)
    with pytest.raises(SettingError, match="lacks its times"):
        open_runner(None, file, accelerator="emulated", threads=1)
    with pytest.raises(SettingError, match=r"model\.threads=0"):
        open_runner(None, file, accelerator="emulated:1+1", threads=0)


@pytest.mark.gpu
@pytest.mark.skipif(not has_cuda(), reason="the installed onnxruntime offers no CUDAExecutionProvider")
def test_the_gpu_answers_as_the_cpu_does(tmp_path: Path) -> None:
    path = tiny.saved(tiny.convolution(["n", 3, 32, 32]), tmp_path)
    recipe = Recipe(width=32, height=32)
    runners = [
        open_runner(path, RecipeFile(recipe=recipe), accelerator=name, threads=1) for name in ("cuda", "cpu")
    ]
    assert runners[0].device == "cuda:0"
    for count in (1, 7, 3):
        batch = runners[0].allocate((count, 32, 32, 3))
        batch[:] = images(count, recipe)
        np.testing.assert_allclose(runners[0].run(batch)["y"], runners[1].run(batch)["y"], atol=1e-2)


@pytest.mark.gpu
@pytest.mark.skipif(not has_cuda(), reason="the installed onnxruntime offers no CUDAExecutionProvider")
def test_page_locked_memory_is_had_on_a_gpu() -> None:
    assert pinned_zeros((2, 3), np.dtype(np.uint8)) is not None


class FakeCuda:
    """Hands out ordinary memory and counts it."""

    def __init__(self, refuses: bool = False) -> None:
        self.refuses = refuses
        self.held: dict[int, Any] = {}

    def cudaHostAlloc(self, address: Any, size: ctypes.c_size_t, flags: ctypes.c_uint) -> int:
        if self.refuses:
            return 2
        memory = ctypes.create_string_buffer(b"\xff" * size.value, size.value)
        self.held[ctypes.addressof(memory)] = memory
        address._obj.value = ctypes.addressof(memory)
        return 0

    def cudaFreeHost(self, address: ctypes.c_void_p) -> int:
        del self.held[address.value or 0]
        return 0


@pytest.mark.parametrize("dtype", ["uint8", "float32", "float16"])
def test_page_locked_memory_lives_as_long_as_its_last_view(dtype: str) -> None:
    cuda = FakeCuda()
    array = pinned_zeros((2, 4, 3), np.dtype(dtype), cuda)
    assert array is not None and array.shape == (2, 4, 3) and array.dtype == dtype and not array.any()
    view = array[1]
    del array
    gc.collect()
    view[:] = 7
    assert len(cuda.held) == 1
    del view
    gc.collect()
    assert cuda.held == {}


def test_without_page_locked_memory_there_is_none() -> None:
    assert pinned_zeros((2,), np.dtype(np.uint8), FakeCuda(refuses=True)) is None
    assert pinned_zeros((0, 3), np.dtype(np.uint8), FakeCuda()) is None

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
from hypothesis import given
from hypothesis import strategies as st

import tiny_models as tiny
from headrace.core.image.outputs import activate, grey_picture, top_k
from headrace.core.queueing.service_curve import parse_emulated
from headrace.errors import InferenceFailed, ModelError, SettingError
from headrace.models.busy import BusyMeter
from headrace.models.emulated import EmulatedRunner, Timeline, fingerprint
from headrace.models.files import available_memory, load_model
from headrace.models.opening import open_runner
from headrace.models.ort import choose_device
from headrace.models.pinned import pinned_zeros
from headrace.models.runner import DeviceBusy, Runner
from headrace.records.recipe import ModelCard, Recipe, RecipeFile

SMALL = Recipe(width=4, height=4, scale=1.0)


class FakeTime:
    """A clock that only sleeping moves; oversleeps by a tenth to show that errors do not add up."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.slept: list[float] = []

    def clock(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now_s += seconds * 1.1


# --- busy time ---------------------------------------------------------------------------------------------------------------


def test_overlapping_runs_count_once() -> None:
    time = FakeTime()
    meter = BusyMeter(time.clock)
    with meter.run(8):
        time.now_s += 1.0
        with meter.run(4):
            time.now_s += 2.0
            assert meter.read() == DeviceBusy(busy_s=3.0, launches=2, images=12)
        time.now_s += 1.0
    time.now_s += 50.0
    with pytest.raises(KeyError), meter.run(1):
        time.now_s += 0.5
        raise KeyError
    assert meter.read() == DeviceBusy(busy_s=4.5, launches=3, images=13)


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 9)), max_size=40))
def test_busy_time_is_the_union(events: list[tuple[bool, int]]) -> None:
    time = FakeTime()
    meter = BusyMeter(time.clock)
    open_runs: list[Any] = []
    union = 0
    for begin, passed in events:
        if begin:
            open_runs.append(meter.run(1))
            open_runs[-1].__enter__()
        elif open_runs:
            open_runs.pop(0).__exit__(None, None, None)
        time.now_s += passed
        union += passed if open_runs else 0
        assert meter.read().busy_s == pytest.approx(union)


# --- the emulated accelerator -------------------------------------------------------------------------------------------------


def test_one_batch_computes_at_a_time_and_copies_overlap() -> None:
    line = Timeline(parse_emulated("emulated:10+0;copy=4;launch=1"))
    assert line.book(0.000, 1) == pytest.approx(0.015)
    assert line.book(0.000, 1) == pytest.approx(0.025), "its copy ran while the first computed"
    assert line.book(0.002, 1) == pytest.approx(0.035)
    assert line.read(0.010).busy_s == pytest.approx(0.005)
    assert line.read(0.030).busy_s == pytest.approx(0.025)
    assert line.book(0.100, 1) == pytest.approx(0.115), "an idle device starts at once"
    assert line.read(0.100) == DeviceBusy(busy_s=pytest.approx(0.030), launches=4, images=4)
    assert line.read(9.0).busy_s == pytest.approx(0.040)


def test_a_slow_copy_is_the_bottleneck() -> None:
    line = Timeline(parse_emulated("emulated:1+0;copy=5"))
    assert [line.book(0.0, 1) for _ in range(3)] == pytest.approx([0.006, 0.011, 0.016])


def test_a_booking_while_nobody_reads_keeps_the_books_short() -> None:
    line = Timeline(parse_emulated("emulated:1+0"))
    for second in range(1000):
        line.book(float(second), 2)
    assert line.read(2000.0) == DeviceBusy(busy_s=pytest.approx(1.0), launches=1000, images=2000)


@given(st.lists(st.tuples(st.floats(0, 0.1), st.integers(1, 9)), max_size=30), st.floats(0, 3))
def test_busy_never_exceeds_the_clock(calls: list[tuple[float, int]], later_s: float) -> None:
    line = Timeline(parse_emulated("emulated:3+2;copy=1+1;launch=2"))
    now_s = 0.0
    done_s = [0.0]
    for gap_s, images in calls:
        now_s += gap_s
        done_s.append(line.book(now_s, images))
        assert done_s[-1] >= done_s[-2] + 0.003
        assert line.read(now_s).busy_s <= now_s + 1e-9
    assert line.read(now_s + later_s).busy_s <= now_s + later_s + 1e-9
    total_s = sum(0.003 + 0.002 * images for _, images in calls)
    assert line.read(done_s[-1] + 1).busy_s == pytest.approx(total_s)


def test_the_emulated_runner_sleeps_to_its_deadline() -> None:
    time = FakeTime()
    runner = EmulatedRunner(parse_emulated("emulated:2+5"), (4, 4, 3), clock_s=time.clock, sleep=time.sleep)
    batch = runner.allocate((2, 4, 4, 3))
    batch[1] = 200
    outputs = runner.run(batch)
    np.testing.assert_array_equal(outputs["fingerprint"], [[0, 0, 0], [200, 200, 200]])
    assert time.slept == pytest.approx([0.012])
    assert runner.busy() == DeviceBusy(busy_s=pytest.approx(0.012), launches=1, images=2)
    assert runner.emulated and runner.device == "emulated" and "emulated" in runner.notes[0]


def test_a_sleep_that_ends_early_is_slept_again() -> None:
    time = FakeTime()

    def short(seconds: float) -> None:
        time.slept.append(seconds)
        time.now_s += max(seconds * 0.6, 1e-4)

    EmulatedRunner(parse_emulated("emulated:9+1"), (4, 4, 3), clock_s=time.clock, sleep=short).run(
        np.zeros((1, 4, 4, 3), np.uint8)
    )
    assert len(time.slept) > 1 and time.now_s >= 100.01


@pytest.mark.parametrize(
    "batch",
    [np.zeros((1, 4, 4, 1), np.uint8), np.zeros((0, 4, 4, 3), np.uint8), np.zeros((1, 4, 4, 3), np.float32)],
)
def test_the_emulated_runner_refuses_what_a_model_would(batch: Any) -> None:
    runner = EmulatedRunner(parse_emulated("emulated:2+5"), (4, 4, 3), sleep=lambda _: None)
    with pytest.raises(InferenceFailed, match="takes uint8"):
        runner.run(batch)


def test_fingerprints_tell_images_and_channels_apart() -> None:
    rng = np.random.default_rng(1)
    batch = rng.integers(0, 256, (8, 224, 224, 3), dtype=np.uint8)
    found = fingerprint(batch, "nhwc")
    assert found.shape == (8, 3) and found.dtype == np.float32
    assert len(np.unique(found.round(3), axis=0)) == 8
    np.testing.assert_allclose(found, batch[:, ::18, ::18].mean(axis=(1, 2)), rtol=1e-5)
    turned = np.ascontiguousarray(batch.transpose(0, 3, 1, 2)).astype(np.float32)
    np.testing.assert_allclose(fingerprint(turned, "nchw"), found, rtol=1e-5)


@pytest.mark.parametrize(
    ("front", "layout", "shape", "dtype"),
    [
        (True, "nchw", (6, 4, 3), "uint8"),
        (False, "nchw", (3, 6, 4), "float32"),
        (False, "nhwc", (6, 4, 3), "float32"),
    ],
)
def test_opening_the_emulated_accelerator(
    front: bool, layout: Any, shape: tuple[int, ...], dtype: str
) -> None:
    file = RecipeFile(recipe=replace(SMALL, height=6, layout=layout))
    runner: Runner = open_runner(None, file, accelerator="emulated:1us+1us", threads=1, front=front)
    assert runner.image_shape == shape and runner.input_dtype == dtype
    assert runner.run(runner.allocate((3, *shape)))["fingerprint"].shape == (3, 3)


# --- ONNX Runtime -------------------------------------------------------------------------------------------------------------


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


def test_settings_that_open_nothing() -> None:
    file = RecipeFile(recipe=SMALL)
    with pytest.raises(ModelError, match="needs a model"):
        open_runner(None, file, accelerator="cpu", threads=1)
    with pytest.raises(SettingError, match="lacks its times"):
        open_runner(None, file, accelerator="emulated", threads=1)
    with pytest.raises(SettingError, match=r"model\.threads=0"):
        open_runner(None, file, accelerator="emulated:1+1", threads=0)


def has_cuda() -> bool:
    return "CUDAExecutionProvider" in onnxruntime.get_available_providers()


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


# --- files that are no model --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "data", "part"),
    [
        ("a.pt", b"PK\x03\x04rest", "export it to ONNX with torch.onnx.export"),
        ("renamed.onnx", b"PK\x03\x04rest", "a PyTorch file"),
        ("old.onnx", b"\x80\x02\x8a\nl\xfc", "a PyTorch file"),
        ("a.safetensors", b"\x10\0\0\0\0\0\0\0{", "weights without a graph"),
        ("a.tflite", b"\x1c\0\0\0TFL3", "tf2onnx.convert --tflite"),
        ("a.onnx", b"\x89HDF\r\n\x1a\n", "Keras"),
        ("a.engine", b"ftrt", "TensorRT engine"),
        ("a.gguf", b"GGUF", "GGUF"),
        ("a.ort", b"\0\0\0\0ORTM", "an ORT file"),
        ("lfs.onnx", b"version https://git-lfs.github.com/spec/v1\noid", "git lfs pull"),
        ("empty.onnx", b"", "is empty"),
        ("text.onnx", b"<!DOCTYPE html><html>404</html>", "text.onnx"),
        ("noise.onnx", bytes(range(256)), "noise.onnx"),
    ],
)
def test_files_that_are_no_onnx(tmp_path: Path, name: str, data: bytes, part: str) -> None:
    path = tmp_path / name
    path.write_bytes(data)
    with pytest.raises(ModelError) as caught:
        load_model(path)
    assert part in str(caught.value) and str(path) in str(caught.value) and "\n" not in str(caught.value)


def test_paths_that_are_no_file(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"no model file .*gone\.onnx"):
        load_model(tmp_path / "gone.onnx")
    with pytest.raises(ModelError, match=r"is a folder.*holds no"):
        load_model(tmp_path)
    tiny.saved(tiny.classifier(), tmp_path, "here.onnx")
    with pytest.raises(ModelError, match=r"is a folder.*here\.onnx"):
        load_model(tmp_path)


@given(st.data())
def test_cut_models_are_refused(data: st.DataObject) -> None:
    whole = tiny.classifier().SerializeToString()
    cut = data.draw(st.integers(1, len(whole) - 1))
    folder = Path(pytest.importorskip("tempfile").mkdtemp())
    path = folder / "cut.onnx"
    path.write_bytes(whole[:cut])
    try:
        with pytest.raises(ModelError, match=r"cut\.onnx"):
            open_runner(
                path, RecipeFile(recipe=replace(SMALL, width=8, height=8)), accelerator="cpu", threads=1
            )
    finally:
        path.unlink()
        folder.rmdir()


def test_models_larger_than_the_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tiny.saved(tiny.classifier(), tmp_path)
    monkeypatch.setattr("headrace.models.files.available_memory", lambda: 10)
    with pytest.raises(ModelError, match="10 B of memory are free"):
        load_model(path)


def test_memory_is_the_least_of_machine_and_group(tmp_path: Path) -> None:
    assert available_memory(tmp_path) is None
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/meminfo").write_text("MemTotal: 9 kB\nMemAvailable:       1000 kB\n")
    assert available_memory(tmp_path) == 1_024_000
    group = tmp_path / "sys/fs/cgroup"
    group.mkdir(parents=True)
    (group / "memory.max").write_text("max\n")
    assert available_memory(tmp_path) == 1_024_000
    (group / "memory.max").write_text("5000\n")
    (group / "memory.current").write_text("6000\n")
    assert available_memory(tmp_path) == 0


# --- what the outputs mean ----------------------------------------------------------------------------------------------------

finite = st.floats(-(2.0**100), 2.0**100, width=32)


@given(st.lists(finite, min_size=1, max_size=20), st.floats(-50, 50))
def test_softmax_is_a_distribution_and_ignores_shifts(scores: list[float], shift: float) -> None:
    made = activate(np.array([scores], np.float32), "softmax")
    assert made.dtype == np.float32 and np.all(made >= 0) and made.sum() == pytest.approx(1.0, abs=1e-5)
    small = np.array([scores], np.float64) % 10
    np.testing.assert_allclose(activate(small, "softmax"), activate(small + shift, "softmax"), atol=1e-5)


@given(st.lists(finite, min_size=1, max_size=20))
def test_sigmoid_stays_within_bounds_and_is_symmetric(scores: list[float]) -> None:
    values = np.array(scores, np.float32)
    made = activate(values, "sigmoid")
    assert np.all((made >= 0) & (made <= 1))
    np.testing.assert_allclose(made + activate(-values, "sigmoid"), 1.0, atol=1e-6)


def test_activation_axes_and_none() -> None:
    scores = np.array([[[1000.0, -1000.0]], [[0.0, 0.0]]], np.float16)
    np.testing.assert_allclose(activate(scores, "softmax"), [[[1, 0]], [[0.5, 0.5]]])
    np.testing.assert_allclose(activate(scores, "softmax", axis=1), np.ones((2, 1, 2)))
    assert activate(scores, "none").dtype == np.float32
    assert np.isnan(activate(np.array([1.0, np.nan]), "softmax")).all()


def test_top_k() -> None:
    found = top_k(np.array([0.1, 0.7, np.nan, 0.7, -np.inf]), 9, ("a", "b", "c"))
    assert [(entry.index, entry.label) for entry in found] == [(1, "b"), (3, ""), (0, "a"), (4, ""), (2, "c")]
    assert [entry.index for entry in top_k(np.array([[[3.0]], [[9.0]]]), 1)] == [1]
    with pytest.raises(ValueError, match="at least 1"):
        top_k(np.zeros(3), 0)


def test_grey_pictures() -> None:
    plane = np.array([[-1.0, 0.0, 1.0], [1.0, -1.0, 0.5]])
    for shape in ((2, 3), (1, 2, 3), (2, 3, 1)):
        np.testing.assert_array_equal(grey_picture(plane.reshape(shape)), [[0, 128, 255], [255, 0, 191]])
    np.testing.assert_array_equal(grey_picture(np.array([[np.nan, 5.0, np.inf, 7.0]])), [[0, 0, 0, 255]])
    for flat in (np.full((2, 2), 3.0), np.full((2, 2), np.nan), np.zeros((0, 4))):
        assert not grey_picture(flat).any()
    assert grey_picture(np.array([[-3e38, 3e38]], np.float32)).tolist() == [[0, 255]]
    with pytest.raises(ValueError, match="one channel"):
        grey_picture(np.zeros((3, 4, 5)))

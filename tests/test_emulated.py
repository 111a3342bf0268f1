"""The emulated accelerator keeps its timetable, and busy time is counted once."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.queueing.service_curve import parse_emulated
from headrace.errors import InferenceFailed
from headrace.models.busy import BusyMeter
from headrace.models.emulated import EmulatedRunner, Timeline, fingerprint
from headrace.models.opening import open_runner
from headrace.models.runner import DeviceBusy, Runner
from headrace.records.recipe import Recipe, RecipeFile

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

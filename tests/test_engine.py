"""The engine without HTTP: every job ends once, books balance, one bad image harms only itself."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from typing import Any

import numpy as np
import pytest
from PIL import Image

from headrace.clock import monotonic_s
from headrace.core.policy.readiness import Readiness, warm_up_sizes
from headrace.errors import (
    ClientGone,
    DeadlineExceeded,
    HeadraceError,
    ImageError,
    InferenceFailed,
    NotReady,
    Overloaded,
    UnsupportedMedia,
)
from headrace.models.runner import DeviceBusy
from headrace.records.image import AnyArray, Encoded
from headrace.records.recipe import Recipe, RecipeFile
from headrace.records.settings import Settings
from headrace.records.timeline import Timeline
from headrace.serve.engine.engine import Engine, open_engine
from headrace.serve.engine.job import Job

RECIPE = Recipe(width=32, height=32)


def jpeg(colour: tuple[int, int, int], size: int = 48) -> bytes:
    buffer = BytesIO()
    Image.new("RGB", (size, size), colour).save(buffer, "JPEG", quality=95)
    return buffer.getvalue()


class Client:
    """Collects answers."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.ended: list[Job] = []
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)

    def job(self, data: bytes, timeout_s: float = 30.0) -> Job:
        now_s = monotonic_s()
        job = Job(
            timeline=Timeline(now_s), deadline_s=now_s + timeout_s, done=self._done, encoded=Encoded(data)
        )
        job.timeline.fetched_s = now_s
        return job

    def submit(self, data: bytes, timeout_s: float = 30.0) -> Job:
        job = self.job(data, timeout_s)
        self.engine.submit(job)
        return job

    def _done(self, job: Job) -> None:
        with self._changed:
            self.ended.append(job)
            self._changed.notify_all()

    def wait(self, count: int) -> list[Job]:
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.ended) >= count, 30), (
                f"{len(self.ended)} of {count} jobs ended"
            )
            return list(self.ended)


@contextmanager
def running(settings: Settings, recipe: Recipe = RECIPE, runner: Any = None) -> Iterator[Client]:
    engine = (
        open_engine(None, RecipeFile(recipe=recipe), settings)
        if runner is None
        else Engine(runner, recipe, settings, 2)
    )
    before = threading.active_count()
    engine.start()
    assert engine.wait_ready(20).ready, engine.readiness
    yield Client(engine)
    engine.close()
    for book in engine.books:
        reading = book.read()
        assert reading.balanced and reading.inside == 0, reading
    assert engine.inside == 0
    deadline_s = monotonic_s() + 5
    while threading.active_count() > before and monotonic_s() < deadline_s:
        time.sleep(0.01)
    assert threading.active_count() <= before, "threads leaked"


def emulated(**changes: Any) -> Settings:
    return Settings(accelerator=changes.pop("accelerator", "emulated:0ms+0.2ms"), decode_workers=2, **changes)


@pytest.mark.parametrize("path", ["staged", "legacy"])
def test_answers_belong_to_their_images(path: str) -> None:
    colours = [(red, green, 128) for red in range(0, 250, 25) for green in range(0, 250, 25)]
    with running(emulated(prepare_path=path, door_max_inside=1000)) as client:
        jobs = [client.submit(jpeg(colour)) for colour in colours]
        client.wait(len(jobs))
        for job, colour in zip(jobs, colours, strict=True):
            assert job.error is None and job.prediction is not None
            means = np.asarray(job.prediction.outputs["fingerprint"])
            if path == "legacy":
                means = means * 255
            assert np.abs(means - colour).max() < 4, (colour, means)
            spans = job.timeline.spans()
            assert sum(span.wait_s + span.service_s for span in spans) == pytest.approx(
                job.timeline.latency_s
            )


def test_one_bad_image_in_twenty_harms_only_itself() -> None:
    good, bad = jpeg((10, 200, 30)), jpeg((1, 2, 3))[:-40]
    with running(emulated(door_max_inside=1000)) as client:
        jobs = [client.submit(bad if number % 20 == 7 else good) for number in range(200)]
        client.wait(200)
        for number, job in enumerate(jobs):
            assert isinstance(job.error, ImageError) if number % 20 == 7 else job.error is None, (
                number,
                job.error,
            )


def test_what_the_header_tells_is_refused_at_the_door() -> None:
    with running(emulated(limits_max_pixels=1000)) as client:
        for data, error in (
            (b"hello", UnsupportedMedia),
            (b"", UnsupportedMedia),
            (jpeg((0, 0, 0)), ImageError),
        ):
            with pytest.raises(error):
                client.submit(data)
        assert client.engine.inside == 0
        assert all(book.read().entered == 0 for book in client.engine.books)


def test_the_door_is_bounded_and_opens_again() -> None:
    with running(emulated(accelerator="emulated:30ms+0ms", door_max_inside=3, batch_max_items=1)) as client:
        jobs = [client.submit(jpeg((0, 0, 0))) for _ in range(3)]
        with pytest.raises(Overloaded, match=r"door\.max_inside allows 3"):
            client.submit(jpeg((0, 0, 0)))
        client.wait(3)
        assert all(job.error is None for job in jobs)
        client.submit(jpeg((0, 0, 0)))
        client.wait(4)


def test_abandoned_and_late_jobs_are_dropped_without_running_the_model() -> None:
    with running(emulated(accelerator="emulated:50ms+0ms", batch_max_items=1, door_max_inside=100)) as client:
        jobs = [client.submit(jpeg((0, 0, 0))) for _ in range(4)]
        gone = [client.submit(jpeg((0, 0, 0))) for _ in range(10)]
        late = [client.submit(jpeg((0, 0, 0)), timeout_s=0.0) for _ in range(10)]
        for job in gone:
            job.abandon()
        client.wait(24)
        assert all(job.error is None for job in jobs)
        assert all(isinstance(job.error, ClientGone) for job in gone)
        assert all(isinstance(job.error, DeadlineExceeded) for job in late)
        launches = client.engine.runner.busy().launches - len(warm_up_sizes(1))
        assert launches <= 4 + 4, "only those already under way may still have run"


class BrokenRunner:
    """Fails on every batch after warm-up."""

    name = device = "broken"
    emulated = False
    input_dtype = np.dtype(np.uint8)
    image_shape = (32, 32, 3)
    max_batch = None
    output_names = ("x",)
    notes = ()

    def __init__(self, good_runs: int) -> None:
        self.good_runs = good_runs

    def allocate(self, shape: tuple[int, ...]) -> AnyArray:
        return np.zeros(shape, np.uint8)

    def run(self, batch: AnyArray) -> dict[str, AnyArray]:
        self.good_runs -= 1
        if self.good_runs < 0:
            raise RuntimeError("no kernel image is available")
        return {"x": batch[:, 0, 0, 0].copy()}

    def busy(self) -> DeviceBusy:
        return DeviceBusy(0.0, 0, 0)

    def close(self) -> None:
        pass


def test_a_failing_model_fails_its_batch_with_a_sentence_and_the_server_goes_on() -> None:
    with running(emulated(batch_max_items=4), runner=BrokenRunner(len(warm_up_sizes(4)))) as client:
        for _ in range(6):
            client.submit(jpeg((0, 0, 0)))
        ended = client.wait(6)
        assert all(
            isinstance(job.error, InferenceFailed) and "no kernel image" in str(job.error) for job in ended
        )


def test_a_failed_warm_up_is_never_ready() -> None:
    engine = Engine(BrokenRunner(1), RECIPE, emulated(batch_max_items=4), 2)
    engine.start()
    readiness = engine.wait_ready(20)
    assert readiness.state == "failed" and "no kernel image" in readiness.reason
    with pytest.raises(NotReady, match="no kernel image"):
        engine.submit(Client(engine).job(jpeg((0, 0, 0))))
    engine.close()


def test_draining_ends_what_is_inside_and_refuses_what_comes() -> None:
    with running(emulated(accelerator="emulated:20ms+0ms", batch_max_items=1)) as client:
        jobs = [client.submit(jpeg((0, 0, 0))) for _ in range(5)]
        assert client.engine.drain(20)
        assert all(job.error is None for job in jobs)
        with pytest.raises(NotReady, match="draining"):
            client.submit(jpeg((0, 0, 0)))


@pytest.mark.parametrize("path", ["staged", "legacy"])
def test_storm(path: str) -> None:
    """Good, cut, hostile, impatient and vanishing requests from several threads at once: all end, once, as they should."""
    good, cut, text = jpeg((9, 99, 199), 200), jpeg((1, 1, 1), 200)[:300], b"\xff\xd8\xff" + b"x" * 50
    with running(emulated(prepare_path=path, door_max_inside=40)) as client:
        refused = [0] * 4
        submitted: list[Job] = []

        def attack(number: int) -> None:
            dice = random.Random(number)
            for _ in range(150):
                kind = dice.choice(("good", "good", "cut", "text", "late", "gone"))
                job = client.job({"cut": cut, "text": text}.get(kind, good), 0.0 if kind == "late" else 30.0)
                try:
                    client.engine.submit(job)
                    submitted.append(job)
                except HeadraceError:
                    refused[number] += 1
                    time.sleep(0.001)
                if kind == "gone":
                    job.abandon()

        threads = [threading.Thread(target=attack, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        ended = client.wait(len(submitted))
        assert len(ended) == len(submitted) == len({id(job) for job in ended})
        assert all((job.error is None) != (job.prediction is None) for job in ended)


def test_prepared_images_skip_decoding() -> None:
    with running(emulated()) as client:
        prepared = np.full((32, 32, 3), 77, np.uint8)
        now_s = monotonic_s()
        job = Job(timeline=Timeline(now_s), deadline_s=now_s + 9, done=client._done, prepared=prepared)
        client.engine.submit(job)
        client.wait(1)
        assert job.prediction is not None and np.allclose(job.prediction.outputs["fingerprint"], 77)
        assert client.engine.books[0].read().entered == 0


def test_readiness_goes_one_way() -> None:
    readiness = Readiness.start((1, 2))
    assert not readiness.ready and "1, 2" in readiness.reason
    assert not readiness.ran(1).ready and readiness.ran(1).ran(2).ready
    assert readiness.broke("x").ran(1).ran(2).state == "failed"
    assert readiness.ran(1).ran(2).broke("x").ready
    assert readiness.ran(1).ran(2).drain().ran(1).state == "draining"
    assert warm_up_sizes(1) == (1,) and warm_up_sizes(6) == (1, 2, 4, 6) and warm_up_sizes(8) == (1, 2, 4, 8)

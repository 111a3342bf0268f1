"""`headrace isolate`: our own chain with planted bottlenecks, and real services of a known law taken apart by their answers."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import BytesIO
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from PIL import Image

import tiny_models
from headrace.cli import output
from headrace.cli.verbs import isolate as verb
from headrace.core.image.header import read_header
from headrace.core.isolation.foreign import FULL, GARBAGE, LARGE_GARBAGE, OWN, SAME, TINY
from headrace.errors import HeadraceError, ModelError, UsageError
from headrace.load.shot import Target
from headrace.load.wire import Endpoint, as_body, as_form
from headrace.models.opening import open_runner
from headrace.models.resident import resident_run
from headrace.records.recipe import Recipe, RecipeFile
from headrace.records.rows.load import ImageRow, OutcomeRow
from headrace.records.settings import Settings, changed
from headrace.store.captures.reader import Capture
from headrace.workflows.image_sets import open_images
from headrace.workflows.isolate import Isolation, isolate
from headrace.workflows.isolation.chain import ChainReport
from headrace.workflows.isolation.foreign import ForeignReport, Service, try_out
from headrace.workflows.isolation.kinds import AT_MODEL_SIZE, MARK, Kind, kinds_of, shots
from headrace.workflows.isolation.meter import Meter, Pace, Reading, Rounds
from headrace.workflows.isolation.own_server import own_server
from headrace.workflows.isolation.parts import Parts, Subject
from headrace.workflows.isolation.samples import take_samples
from headrace.workflows.recipes import find_recipe

SHORT = Rounds(rounds=1, window_s=0.05)
RECIPE = "[recipe]\nwidth = 48\nheight = 32\n"


def photograph(width: int, height: int, seed: int = 1) -> bytes:
    """Much to decode: noise, at high quality."""
    pixels = np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)
    out = BytesIO()
    Image.fromarray(pixels).save(out, "JPEG", quality=90)
    return out.getvalue()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two small pictures, one file that is none, a recipe."""
    (tmp_path / "images").mkdir()
    for number in range(2):
        (tmp_path / f"images/{number}.jpg").write_bytes(photograph(96, 64, number))
    (tmp_path / "images/9.jpg").write_bytes(b"no image at all")
    (tmp_path / "recipe.toml").write_text(RECIPE)
    return tmp_path


def asked(folder: Path, model: Path | None = None, **more: Any) -> Isolation:
    settings = changed(Settings(), {"memory.keep": False, "decode.workers": 2, **more.pop("settings", {})})
    return Isolation(
        **{
            "model": model,
            "recipe": folder / "recipe.toml",
            "images": open_images(folder / "images"),
            "settings": settings,
            "clients": (1, 2),
            "rounds": SHORT,
            **more,
        }
    )


# --- our own chain ---------------------------------------------------------------------------------------------------------------


def test_the_staged_chain(folder: Path) -> None:
    """A device of 20 ms a batch is the limit of tiny pictures; every step is there, or says why it is not."""
    told: list[str] = []
    settings = {"accelerator": "emulated:20ms+0ms;copy=1ms", "batch.max_items": 4}
    report = isolate(asked(folder, rounds=Rounds(2, 0.05), settings=settings), None, told.append)
    assert isinstance(report, ChainReport)
    assert [step.link for step in report.steps] == [
        "model", "normalise", "copy", "batch", "resize", "decode", "fetch", "http",
    ]  # fmt: skip
    assert [step.link for step in report.steps if not step.windows] == ["normalise"]
    assert all(len(step.windows) == 2 for step in (*report.steps, report.preparing) if not step.absent)
    assert sorted(report.batches) == [1, 2, 4]
    assert report.batches[4].rate_per_s > 2 * report.batches[1].rate_per_s
    assert (report.images, report.of, len(report.refused)) == (2, 3, 1) and "9.jpg" in report.refused[0]
    assert report.emulated and report.stages == {"decode": 2, "resize": 1, "infer": 2}
    assert all(step.busy is not None and 0.0 <= step.busy <= 1.0 for step in report.steps if step.windows)
    assert told.index("round 1 of 2: decode") < told.index("round 1 of 2: http")
    assert told.index("round 2 of 2: http") < told.index("round 2 of 2: decode")
    shown_well(report)


def shown_well(report: ChainReport) -> None:
    """As text and as JSON."""
    text = "\n".join(verb.chain_lines(report))
    assert text.splitlines()[0] == report.sentence and "Ceiling: the model alone does" in report.sentence
    assert "EMULATED" in text and "not read: " in text and "9.jpg" in text
    for link in ("model", "normalise", "copy", "batch", "resize", "decode", "fetch", "http", "preparing"):
        assert f"\n{link} " in text
    found = json.loads(output.as_json(report.as_dict()))
    assert found["format"] == 1 and found["emulated"] is True and found["sentence"] == report.sentence
    assert all(("rate_per_s" in row) != ("absent" in row) for row in found["steps"])
    assert set(found["batches"]) == {"1", "2", "4"}


def test_the_legacy_chain_falls_off_at_decode(tmp_path: Path) -> None:
    """One thread that decodes a megapixel in full, before a device that takes 1 ms."""
    (tmp_path / "images").mkdir()
    (tmp_path / "images/large.jpg").write_bytes(photograph(1200, 900))
    (tmp_path / "recipe.toml").write_text(RECIPE)
    settings = {"accelerator": "emulated:1ms+0ms", "prepare.path": "legacy", "batch.max_items": 2}
    report = isolate(asked(tmp_path, settings=settings), None)
    assert isinstance(report, ChainReport)
    assert report.buildup.fall is not None and report.buildup.fall.link == "decode"
    assert report.sentence.startswith("The chain falls off at decode: ")
    absent = {step.link: step.absent for step in report.steps if not step.windows}
    assert set(absent) == {"copy", "resize"} and "in one go" in absent["resize"]
    assert report.buildup.ceilings["decode"] > 1.0


def test_a_real_model_without_a_device_of_its_own(folder: Path, tmp_path: Path) -> None:
    model = tiny_models.saved(tiny_models.classifier(dims=("n", 3, 32, 48)), tmp_path)
    report = isolate(
        asked(folder, model, settings={"accelerator": "cpu", "batch.max_items": 2}), tmp_path / "out"
    )
    assert isinstance(report, ChainReport)
    copy = next(step for step in report.steps if step.link == "copy")
    assert copy.absent == "no copy: the model runs in the host's memory" and not copy.windows
    assert next(step for step in report.steps if step.link == "normalise").windows
    assert not report.emulated and report.device == "cpu"
    capture = Capture.open(tmp_path / "out")
    assert capture.damage == () and capture.manifest.made_by == "isolate" and not capture.manifest.emulated
    assert capture.end is not None and capture.end.summary["sentence"] == report.sentence
    assert [row["link"] for row in capture.end.summary["steps"]] == [step.link for step in report.steps]
    outcomes = capture.columns(OutcomeRow)
    assert len(outcomes["number"]) > 4 and len(set(outcomes["number"].tolist())) == len(outcomes["number"])
    assert set(outcomes["status"]) == {200}
    assert set(outcomes["source"]) <= set(capture.columns(ImageRow)["source"])


def test_a_graph_that_is_fixed_to_one_batch_size(folder: Path, tmp_path: Path) -> None:
    model = tiny_models.saved(tiny_models.convolution([3, 3, 32, 48]), tmp_path)
    settings = changed(Settings(), {"accelerator": "cpu"})
    images, recipe_file = open_images(folder / "images"), find_recipe(model, folder / "recipe.toml")
    samples = take_samples(images, recipe_file.recipe, settings)
    with ExitStack() as closing:
        parts = Parts(Subject(model, recipe_file, settings, images, samples, 2), closing)
        assert parts.sizes == (3,) and parts.batch == 3
        assert parts.model_alone(3)(Pace(0.01, 3, 4)).images >= 4
        assert parts.with_front()(Pace(0.01, 3, 4)).busy == pytest.approx(1.0, abs=0.9)


def test_what_cannot_be_taken_apart(folder: Path) -> None:
    (folder / "none").mkdir()
    (folder / "none/a.jpg").write_bytes(b"x")
    emulated = {"accelerator": "emulated:1ms+0ms"}
    with pytest.raises(UsageError, match=r"none of the images can be served: .*a\.jpg"):
        isolate(asked(folder, images=open_images(folder / "none"), settings=emulated), None)
    with pytest.raises(ModelError, match="no model file"):
        isolate(asked(folder, folder / "missing.onnx", settings={"accelerator": "cpu"}), None)


# --- its parts --------------------------------------------------------------------------------------------------------------------


class Clock:
    """Time that passes when told to."""

    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def test_a_window_counts_what_ended_inside_it() -> None:
    """Two images to fill up, then a second of ten: busy and CPU are of that second alone."""
    clock, readings = Clock(), iter([Reading(1.0, 10.0), Reading(1.4, 12.0)])
    meter = Meter(Pace(window_s=1.0, first=2, least=4), lambda: next(readings), clock)
    for _ in range(2):
        assert meter.going_on()
        clock.now_s += 5.0
        meter.done(clock.now_s)
    assert meter.going_on()
    for _ in range(10):
        assert meter.going_on()
        clock.now_s += 0.1
        meter.done(clock.now_s)
    clock.now_s += 1e-6
    assert not meter.going_on() and not meter.going_on()
    clock.now_s += 0.1
    meter.done(clock.now_s)
    window = meter.window()
    assert window.rate_per_s == pytest.approx(10.0) and window.images == 11
    assert (window.busy, window.cores) == pytest.approx((0.4, 2.0), rel=1e-3)


def test_a_window_goes_on_until_it_has_seen_enough_or_lost_patience() -> None:
    clock = Clock()
    meter = Meter(Pace(window_s=1.0, first=0, least=3), lambda: Reading(None, None), clock)
    assert meter.going_on()
    for _ in range(3):
        clock.now_s += 2.0
        assert meter.going_on()
        meter.done(clock.now_s)
    assert not meter.going_on()
    window = meter.window()
    assert window.rate_per_s == pytest.approx(0.5) and window.busy is None and window.cores is None
    stuck = Meter(Pace(window_s=1.0, first=1, least=1), lambda: Reading(None, None), clock)
    clock.now_s += 100.0
    assert stuck.going_on()
    clock.now_s += 100.0
    assert not stuck.going_on()
    with pytest.raises(UsageError, match="0 images came through in"):
        stuck.window()


def test_samples_are_taken_evenly_and_bounded(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.workflows.isolation.samples.MOST_IMAGES", 4)
    (folder / "many").mkdir()
    for number in range(20):
        (folder / f"many/{number:02}.jpg").write_bytes(photograph(40, 30, number))
    found = take_samples(open_images(folder / "many"), Recipe(width=8, height=8), Settings())
    assert [sample.number for sample in found.images] == [0, 5, 10, 15]
    monkeypatch.setattr("headrace.workflows.isolation.samples.MOST_BYTES", 40 * 30 * 4)
    found = take_samples(open_images(folder / "many"), Recipe(width=8, height=8), Settings())
    assert [sample.pixels is not None for sample in found.images].count(True) == 1
    assert all(sample.prepared.shape == (8, 8, 3) for sample in found.images)


def test_resident_runs_are_runs_in_the_hosts_memory(tmp_path: Path) -> None:
    model = tiny_models.saved(tiny_models.identity(["n", 3, 4, 4]), tmp_path)
    runner = open_runner(model, RecipeFile(recipe=Recipe(width=4, height=4)), accelerator="cpu", threads=1)
    before = runner.busy()
    run = resident_run(runner, np.zeros((3, 4, 4, 3), np.uint8))
    for _ in range(5):
        run()
    assert runner.busy().images - before.images == 15 and runner.busy().launches - before.launches == 5


def test_resident_input_is_copied_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a device: bound when made, and neither input nor outputs cross over in a run."""
    model = tiny_models.saved(tiny_models.identity(["n", 3, 4, 4]), tmp_path)
    runner: Any = open_runner(
        model, RecipeFile(recipe=Recipe(width=4, height=4)), accelerator="cpu", threads=1
    )
    calls: list[str] = []

    class Binding:
        def bind_ortvalue_input(self, name: str, value: Any) -> None:
            calls.append(f"input {name} on {value[1]}")

        def bind_output(self, name: str, device: str, number: int) -> None:
            calls.append(f"output {name} on {device}")

        def synchronize_outputs(self) -> None:
            calls.append("waited")

    class Session:
        def io_binding(self) -> Binding:
            return Binding()

        def run_with_iobinding(self, binding: Binding) -> None:
            calls.append("ran")

    class OrtValue:
        @staticmethod
        def ortvalue_from_numpy(batch: Any, device: str, number: int) -> Any:
            return batch, device

    monkeypatch.setattr(onnxruntime, "OrtValue", OrtValue)
    runner.device, runner._session = "cuda:0", Session()
    before = runner.busy()
    run = resident_run(runner, np.zeros((2, 4, 4, 3), np.uint8))
    assert calls == ["input pixels on cuda", "output y on cuda"]
    run()
    run()
    assert calls[2:] == ["ran", "waited"] * 2
    assert runner.busy().images - before.images == 4


@pytest.mark.gpu
@pytest.mark.skipif(
    "CUDAExecutionProvider" not in onnxruntime.get_available_providers(), reason="no CUDA device"
)
def test_resident_runs_on_a_real_device(tmp_path: Path) -> None:
    model = tiny_models.saved(tiny_models.convolution(["n", 3, 64, 64]), tmp_path)
    runner = open_runner(model, RecipeFile(recipe=Recipe(width=64, height=64)), accelerator="cuda", threads=1)
    before = runner.busy()
    run = resident_run(runner, np.zeros((8, 64, 64, 3), np.uint8))
    run()
    assert runner.busy().images - before.images == 8


def test_a_server_that_does_not_start_says_why(folder: Path) -> None:
    (folder / "bad.toml").write_text("[recipe]\nwidth = -1\nheight = 1\n")
    settings = changed(Settings(), {"accelerator": "emulated:1ms+0ms"})
    with (
        pytest.raises(UsageError, match=r"does not start: .*width"),
        own_server(None, folder / "bad.toml", settings),
    ):
        pass


def test_a_server_does_not_outlive_whoever_started_it(folder: Path) -> None:
    values = {"accelerator": "emulated:1ms+0ms", "server.port": 0, "server.metrics_port": 0}
    task = {"model": None, "recipe": str(folder / "recipe.toml"), "settings": values}
    command = [sys.executable, "-m", "headrace.workflows.isolation.own_server", json.dumps(task)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout is not None and process.stdin is not None
    assert json.loads(process.stdout.readline())["port"] > 0
    process.stdin.close()
    assert process.wait(60) == 0
    process.stdout.close()


# --- requests of a kind -------------------------------------------------------------------------------------------------------------


def test_kinds_differ_in_one_thing(folder: Path) -> None:
    (folder / "images/9.jpg").unlink()
    kinds = {
        kind.name: kind for kind in kinds_of(open_images(folder / "images"), Recipe(width=48, height=32))
    }
    sizes = {
        name: read_header(kinds[name].bodies[0])
        for name in (TINY, AT_MODEL_SIZE, "quarter", "half", FULL, SAME)
    }
    assert {name: (header.width, header.height) for name, header in sizes.items()} == {
        TINY: (32, 21), AT_MODEL_SIZE: (48, 32), "quarter": (24, 16), "half": (48, 32), FULL: (96, 64), SAME: (96, 64),
    }  # fmt: skip
    assert kinds[SAME].bodies == kinds[FULL].bodies
    assert len(kinds[LARGE_GARBAGE].bodies[0]) == len(kinds[FULL].bodies[0])
    assert [kinds[name].picture for name in (GARBAGE, LARGE_GARBAGE, TINY)] == [False, False, True]
    assert len(kinds[OWN].bodies) == 2
    for name in (GARBAGE, LARGE_GARBAGE):
        with pytest.raises(HeadraceError):
            read_header(kinds[name].bodies[0])


@pytest.mark.parametrize("make", [as_body, as_form])
def test_no_two_requests_have_the_same_bytes(folder: Path, make: Callable[[Endpoint], Any]) -> None:
    maker = make(Endpoint.of("http://127.0.0.1:1/predict"))
    for kind in kinds_of(open_images(folder / "images/0.jpg"), None):
        made = list(islice(shots(kind, 0, maker), 20))
        bodies = {bytes(shot.body) for shot in made}
        assert len(bodies) == (20 if kind.anew else 1), kind.name
        assert len({(len(shot.body), shot.wire) for shot in made}) == 1
        assert MARK not in b"".join(bodies) if kind.anew else True


def test_marked_pictures_are_the_same_picture(folder: Path) -> None:
    images = open_images(folder / "images/0.jpg")
    kind = next(kind for kind in kinds_of(images, None) if kind.name == OWN)
    maker = as_body(Endpoint.of("http://127.0.0.1:1/predict"))
    original = np.asarray(Image.open(folder / "images/0.jpg"))
    for shot in islice(shots(kind, 0, maker), 3):
        np.testing.assert_array_equal(np.asarray(Image.open(BytesIO(bytes(shot.body)))), original)


def test_other_formats_are_sent_as_they_are(folder: Path) -> None:
    Image.open(folder / "images/0.jpg").save(folder / "images/0.png")
    kind = next(kind for kind in kinds_of(open_images(folder / "images/0.png"), None) if kind.name == OWN)
    assert kind.bodies == ((folder / "images/0.png").read_bytes(),)


# --- services of a known law -------------------------------------------------------------------------------------------------------


class Law:
    """Serves one at a time: some time a request, some a megapixel; keeps answers if told to."""

    def __init__(self, fixed_s: float = 0.0, megapixel_s: float = 0.0, cache: bool = False) -> None:
        self.fixed_s, self.megapixel_s, self.cache = fixed_s, megapixel_s, cache
        self.lock = threading.Lock()
        self.kept: set[bytes] = set()
        self.seen = self.refused = 0

    def answer(self, body: bytes) -> int:
        try:
            pixels = read_header(body).pixels
        except HeadraceError:
            self.refused += 1
            return 400
        with self.lock:
            self.seen += 1
            if not (self.cache and body in self.kept):
                time.sleep(self.fixed_s + self.megapixel_s * pixels / 1e6)
                self.kept.add(body)
        return 200


@contextmanager
def service(answer: Callable[[bytes], int]) -> Iterator[str]:
    """An HTTP/1.1 service in this process."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            status = answer(body) if self.path == "/predict" else 404
            self.send_response(status)
            self.send_header("Content-Length", "2")
            self.end_headers()
            self.wfile.write(b"{}")

        def log_message(self, *parts: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/predict"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture
def photographs(tmp_path: Path) -> Path:
    (tmp_path / "images").mkdir()
    (tmp_path / "images/a.jpg").write_bytes(photograph(500, 400))
    (tmp_path / "recipe.toml").write_text(RECIPE)
    return tmp_path


def test_pixels_are_named(photographs: Path) -> None:
    """50 ms of a full picture go with its pixels, one at a time; nothing is kept."""
    law = Law(0.002, 0.250)
    with service(law.answer) as url:
        report = isolate(asked(photographs, against=url), photographs / "out")
    assert isinstance(report, ForeignReport)
    assert report.sentence.startswith("The slowest link is decode and resize: ")
    assert report.verdict.slowest is not None and report.verdict.slowest.name == "pixels"
    assert report.verdict.fit is not None and report.verdict.fit.per_megapixel_s > 0.1
    assert any("one image at a time" in note for note in report.notes) and report.verdict.cached is None
    assert {part.name for part in report.verdict.parts} == {"fixed", "pixels", "http", "body"}
    assert law.refused == 2 + 4 * 32
    text = "\n".join(verb.foreign_lines(report))
    assert text.startswith(report.sentence) and "\npixels " in text and "decode and resize, goes with" in text
    capture = Capture.open(photographs / "out")
    assert capture.damage == () and capture.end is not None
    assert capture.end.summary["verdict"]["slowest"]["name"] == "pixels"
    assert {"full x1", "full x2", "tiny x1", "no image x1"} <= set(capture.columns(OutcomeRow)["phase"])
    assert set(capture.columns(ImageRow)["name"]) >= {FULL, TINY, GARBAGE}


def test_the_fixed_part_is_named_from_images_only(
    capsys: pytest.CaptureFixture[str], photographs: Path
) -> None:
    law = Law(0.030, 0.002)
    with service(law.answer) as url:
        flags = ["--images", photographs / "images", "--rounds", "1", "--window", "20ms", "--clients", "1,2"]
        found = json.loads(run(capsys, *flags, "--against", url, "--images-only", "--json"))
    assert found["format"] == 1 and found["emulated"] is False and law.refused == 0 and law.seen > 50
    assert found["verdict"]["slowest"]["name"] == "fixed" and set(found["verdict"]["scaling"]) == {"1", "2"}
    assert {part["name"] for part in found["verdict"]["parts"]} == {"fixed", "pixels"}
    assert "the model and what else is done once an image" in found["sentence"]


def test_a_cache_is_seen_and_does_not_spoil_the_rest(photographs: Path) -> None:
    """Identical bytes are answered at once; requests that are to be worked on have bytes of their own."""
    with service(Law(0.002, 0.250, cache=True).answer) as url:
        report = isolate(asked(photographs, against=url, images_only=True), None)
    assert isinstance(report, ForeignReport)
    assert report.verdict.cached is not None and report.verdict.cached > 1.5
    assert report.verdict.slowest is not None and report.verdict.slowest.name == "pixels"


def tried(photographs: Path, url: str) -> tuple[list[Kind], list[str], bool]:
    kinds = kinds_of(open_images(photographs / "images"), Recipe(width=144, height=96))
    return try_out(Target.of(url), Service(url, as_body(Endpoint.of(url)), (1, 2)), kinds)


def test_a_service_that_refuses_tiny_pictures(photographs: Path) -> None:
    """The picture of the model's size takes their place."""

    def answer(body: bytes) -> int:
        return 200 if body[:2] == b"\xff\xd8" and read_header(body).width >= 130 else 422

    with service(answer) as url:
        kinds, notes, _ = tried(photographs, url)
    found = {kind.name: kind.size for kind in kinds}
    assert found[TINY] == (144, 96) and AT_MODEL_SIZE not in found and GARBAGE in found
    assert [note for note in notes if note.startswith("tiny: left out, it is answered 422")]
    with (
        service(lambda body: 200 if len(body) > 20_000 else 422) as url,
        pytest.raises(UsageError, match="neither a tiny picture nor one of the model's size"),
    ):
        tried(photographs, url)


def test_a_service_that_takes_anything(photographs: Path) -> None:
    with service(lambda body: 200) as url:
        kinds, notes, emulated = tried(photographs, url)
    assert {GARBAGE, LARGE_GARBAGE}.isdisjoint(kind.name for kind in kinds) and not emulated
    assert sum("answered like a picture" in note for note in notes) == 2


def test_a_headrace_server_with_an_emulated_device_says_so(folder: Path) -> None:
    (folder / "images/9.jpg").unlink()
    settings = changed(Settings(), {"accelerator": "emulated:1ms+0ms"})
    with own_server(None, folder / "recipe.toml", settings) as server:
        kinds, notes, emulated = tried(folder, f"http://127.0.0.1:{server.port}/predict")
        reading = server.read()
    assert emulated and notes == [] and len(kinds) == 9
    assert reading.busy_s is not None and reading.cpu_s is not None and reading.busy_s > 0.0


def test_services_that_cannot_be_taken_apart(photographs: Path) -> None:
    with (
        service(lambda body: 500) as url,
        pytest.raises(UsageError, match="does not take a picture: 500"),
    ):
        isolate(asked(photographs, against=url), None)
    with service(Law().answer) as url, pytest.raises(UsageError, match="404"):
        isolate(asked(photographs, against=url + "/nowhere"), None)
    with pytest.raises(UsageError, match="does not answer"):
        isolate(asked(photographs, against="http://127.0.0.1:9/predict"), None)
    with pytest.raises(UsageError, match="cannot be asked"):
        isolate(asked(photographs, against="ftp://127.0.0.1/"), None)


def test_the_naive_service_with_opencv(photographs: Path) -> None:
    """FastAPI, one thread, full decode, a device of 2 ms: the figures alone name the pixels."""
    pytest.importorskip("cv2")
    pytest.importorskip("fastapi")
    (photographs / "images/a.jpg").write_bytes(photograph(1200, 900))
    command = [sys.executable, "-m", "bench.workers.opencv_naive", "224", "emulated:2ms+0ms", "tuned"]
    root = Path(__file__).parent.parent
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, cwd=root)
    assert process.stdout is not None
    try:
        url = f"http://127.0.0.1:{json.loads(process.stdout.readline())['port']}/predict"
        report = isolate(asked(photographs, against=url, images_only=True), None)
    finally:
        process.terminate()
        process.communicate()
    assert isinstance(report, ForeignReport)
    assert report.verdict.slowest is not None and report.verdict.slowest.name == "pixels"


# --- the command ------------------------------------------------------------------------------------------------------------------


def run(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> str:
    parser = argparse.ArgumentParser(exit_on_error=False)
    verb.flags(parser)
    assert verb.run(parser.parse_args([str(argument) for argument in arguments])) == 0
    return capsys.readouterr().out


def test_wrong_use(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    images = ["--images", str(folder / "images")]
    with pytest.raises(UsageError, match="give the model file"):
        run(capsys, *images)
    with pytest.raises(UsageError, match="none of body"):
        run(capsys, *images, "--against", "http://127.0.0.1:9/", "--as", "pigeon")
    for flag, value in (
        ("--clients", "1,x"),
        ("--clients", "0"),
        ("--clients", "5000"),
        ("--rounds", "0"),
        ("--window", "1"),
    ):
        with pytest.raises(argparse.ArgumentError):
            run(capsys, *images, flag, value)

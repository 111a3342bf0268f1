"""`headrace load` against real servers: what it sends, what it tells, what it leaves, and how it takes wrong input."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event
from typing import Any, cast

import numpy as np
import pytest

import server_process
from headrace.core.load.figures import PhaseFigures, RunFigures
from headrace.core.load.goal import Goal, hopeless, parse_goal, trial, trial_s
from headrace.core.load.patterns import Clients, Rate
from headrace.core.load.tally import StageBills, Tally
from headrace.errors import StorageError, UsageError
from headrace.load.wire import Endpoint, as_body
from headrace.records.rows.load import ImageRow, LatencyRow, OutcomeRow, SpanRow
from headrace.store.captures.reader import Capture
from headrace.store.captures.writer import CaptureWriter
from headrace.workflows.image_sets import ImageSet, open_images
from headrace.workflows.load import Load, _narrow, load
from headrace.workflows.loading.findings import as_dict, finding, verdict
from headrace.workflows.loading.recorder import Recorder
from headrace.workflows.loading.report import CapacityReport
from headrace.workflows.loading.search import search
from headrace.workflows.loading.session import Measured, Session
from headrace.workflows.loading.shots import fill
from http_support import serving as serving_inside
from pictures import small_files
from server_process import PATIENCE_S, Serving, picture_bytes, run, serving, until
from test_load_sources import write_pack

NOT_VALID = 3


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("photos")
    for number in range(4):
        (folder / f"{number}.jpg").write_bytes(picture_bytes(40 + number))
    return folder


@pytest.fixture(scope="module")
def recipe(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("recipe") / "recipe.toml"
    path.write_text("[recipe]\nwidth = 32\nheight = 32\n")
    return path


@pytest.fixture(scope="module")
def server(recipe: Path) -> Iterator[str]:
    """The address of a server that takes 1 ms an image."""
    with emulated(recipe, "emulated:1ms+0ms") as (_, url):
        yield url


@contextmanager
def emulated(recipe: Path, accelerator: str, *more: str) -> Iterator[tuple[Serving, str]]:
    ports = ("--server-port", "0", "--server-metrics-port", "0")
    with serving("--recipe", recipe, "--accelerator", accelerator, *ports, *more) as found:
        yield found, f"http://127.0.0.1:{found.wait_announced()[0]}"


Told = Callable[..., dict[str, Any]]


@pytest.fixture
def told(capsys: pytest.CaptureFixture[str]) -> Told:
    """What `headrace load ... --json` says. On a busy machine a short run may be not valid: the books balance even so."""

    def ask(*arguments: str | Path) -> dict[str, Any]:
        code = code_of(["load", *map(str, arguments), "--json"])
        found: dict[str, Any] = json.loads(capsys.readouterr().out)
        assert code == (0 if found["valid"] else NOT_VALID)
        return found

    return ask


QUICK = ("--rate", "100", "--for", "500ms", "--warm-up", "100ms")


def test_a_run_at_a_rate_leaves_a_capture_whose_books_balance(
    told: Told, server: str, photos: Path, tmp_path: Path
) -> None:
    found = told(
        f"{server}/predict", "--images", photos, *QUICK, "--deadline", "5s", "-o", tmp_path / "capture"
    )
    (phase,) = found["phases"]
    assert (
        phase["name"] == "run"
        and phase["intended"] == 50
        and phase["ok"] + sum(phase["failed"].values()) == 50
    )
    assert phase["good"] == phase["ok"] == 50 and phase["rates"]["intended"] == pytest.approx(100)
    assert phase["latency_ms"]["p50"] > 1 and phase["latency_ms"]["p99"] is None
    assert found["emulated"] and {stage["stage"] for stage in found["stages"]} >= {"decode", "infer"}
    capture = Capture.open(tmp_path / "capture")
    assert capture.damage == () and capture.end is not None and capture.end.how == "finished"
    assert capture.manifest.made_by == "load" and capture.manifest.emulated and capture.manifest.seed == 1
    assert (
        capture.end.summary["valid"] == found["valid"] and capture.end.summary["verdict"] == found["verdict"]
    )
    outcomes = capture.columns(OutcomeRow)
    assert sorted(outcomes["number"]) == list(range(60))
    assert list(outcomes["phase"]).count("warm-up") == 10
    images = capture.columns(ImageRow)
    assert set(images["width"]) == {40, 41, 42, 43} and set(outcomes["source"]) <= set(images["source"])
    assert set(outcomes["sent_bytes"]) <= set(images["size_bytes"])
    buckets = capture.columns(LatencyRow)
    assert buckets["requests"][buckets["phase"] == "run"].sum() == 50
    spans = capture.columns(SpanRow)
    assert set(spans["number"]) == set(outcomes["number"])
    assert [note.says for note in capture.notes() if note.kind == "phase"] == ["warm-up", "run"]


def test_without_a_rate_it_is_a_closed_loop_for_people(server: str, photos: Path) -> None:
    ended = run(
        "load", f"{server}/predict", "--images", photos, "--clients", "2", "--for", "1s", "--warm-up", "0s"
    )
    first, second, *rest = ended.stdout.splitlines()
    assert ended.returncode == (NOT_VALID if first.startswith("NOT VALID: ") else 0), ended.stderr
    assert (
        first.startswith(("Valid", "NOT VALID: "))
        and "/s answered right" in second
        and "asked for" not in second
    )
    assert any("closed loop, 2 clients" in line for line in rest)
    assert any("EMULATED" in line for line in rest) and any("give --rate" in line for line in rest)
    assert ended.stderr == "", "progress is for terminals only"


@pytest.mark.parametrize(
    ("kind", "path"),
    [
        (("--as", "body"), "/predict"),
        (("--as", "form"), "/predict"),
        (("--as", "oip"), "/v2/models/emulated/infer"),
        (("--as", "oip-json"), "/v2/models/emulated"),
        (("--as", "oip", "--recipe"), "/v2/models/emulated"),
        (("--template",), "/anything"),
    ],
    ids=lambda value: "-".join(value).replace("/", "") if isinstance(value, tuple) else None,
)
def test_every_kind_of_request_is_answered(
    told: Told, server: str, photos: Path, recipe: Path, tmp_path: Path, kind: tuple[str, ...], path: str
) -> None:
    more: tuple[str | Path, ...] = kind
    if kind[-1] == "--recipe":
        more = (*kind, recipe)
    if kind[-1] == "--template":
        template = tmp_path / "request.http"
        template.write_text('POST /predict\nContent-Type: application/json\n\n{"image": "{image_base64}"}\n')
        more = (*kind, template)
    expect = ("--expect", "fingerprint")
    found = told(
        f"{server}{path}",
        "--images",
        photos,
        *more,
        *expect,
        "--rate",
        "50",
        "--for",
        "500ms",
        "--warm-up",
        "0s",
    )
    assert found["phases"][0]["ok"] == found["phases"][0]["intended"] == 25


def test_steps_and_a_replay_are_told_apart(told: Told, server: str, photos: Path, tmp_path: Path) -> None:
    found = told(
        f"{server}/predict",
        "--images",
        photos,
        "--steps",
        "40,80x500ms",
        "--warm-up",
        "0s",
        "--mix",
        "zipf:1.2",
    )
    assert [(phase["name"], phase["intended"]) for phase in found["phases"]] == [("40/s", 20), ("80/s", 40)]
    log = tmp_path / "access.log"
    lines = [f'{{"time": {1700000000 + n / 40}, "url": "/a.jpg"}}' for n in range(40)]
    log.write_text("\n".join([*lines[:20], "not a line of it", *lines[20:]]))
    found = told(f"{server}/predict", "--images", photos, "--replay", log, "--speed", "2", "--warm-up", "0s")
    assert found["phases"][0]["intended"] == 40 and found["phases"][0]["duration_s"] < 0.6
    assert any("1 lines of the log are left out" in remark for remark in found["remarks"])
    assert found["settings"]["mix"] == "as in the log"


def test_a_replay_sends_one_image_wherever_the_log_asked_for_the_same(
    told: Told, server: str, photos: Path, tmp_path: Path
) -> None:
    log = tmp_path / "access.log"
    log.write_text(
        "\n".join(f'{{"time": {1700000000 + n / 100}, "url": "/{"abac"[n % 4]}.jpg"}}' for n in range(40))
    )
    told(f"{server}/predict", "--images", photos, "--replay", log, "--warm-up", "0s", "-o", tmp_path / "c")
    sources = Capture.open(tmp_path / "c").columns(OutcomeRow)["source"].astype(int).tolist()
    images = len(list(photos.iterdir()))
    assert images >= 3 and sources == [0, 1, 0, 2] * 10


def test_images_come_from_packs_whole_and_damaged(told: Told, server: str, tmp_path: Path) -> None:
    write_pack(tmp_path / "whole.rec", [picture_bytes(40), picture_bytes(41)], index=True)
    data = (tmp_path / "whole.rec").read_bytes()
    (tmp_path / "cut.rec").write_bytes(data[:-40])
    (tmp_path / "list.txt").write_text("nowhere.jpg\n")
    arguments = (f"{server}/predict", *QUICK, "--images")
    assert told(*arguments, tmp_path / "whole.rec")["images"] == 2
    found = told(*arguments, tmp_path / "cut.rec", tmp_path / "list.txt")
    assert found["images"] == 1 and found["phases"][0]["ok"] == 50
    assert any("cut.rec" in remark and "1 records" in remark for remark in found["remarks"])
    assert any("1 images are left out" in remark and "nowhere.jpg" in remark for remark in found["remarks"])


def test_what_the_tester_could_not_send_makes_it_not_valid_everywhere(
    told: Told, recipe: Path, photos: Path, tmp_path: Path
) -> None:
    """One connection to a service that takes 100 ms carries 10 requests a second, not 50."""
    with emulated(recipe, "emulated:100ms+0ms") as (_, url):
        arguments = (
            f"{url}/predict",
            "--images",
            photos,
            "--rate",
            "50",
            "--for",
            "1s",
            "--warm-up",
            "0s",
            "--connections",
            "1",
        )
        found = told(*arguments, "--timeout", "1s", "-o", tmp_path / "capture")
    assert found["valid"] is False and found["verdict"].startswith("NOT VALID:")
    assert "all connections were taken" in found["verdict"]
    assert found["phases"][0]["valid_up_to"] is None and found["phases"][0]["unsent"] > 0
    end = Capture.open(tmp_path / "capture").end
    assert end is not None and end.summary["valid"] is False and end.summary["verdict"] == found["verdict"]


def test_ctrl_c_keeps_what_there_is(server: str, photos: Path, tmp_path: Path) -> None:
    command = [
        server_process.COMMAND,
        "load",
        f"{server}/predict",
        "--images",
        photos,
        "--rate",
        "50",
        "--for",
        "100s",
    ]
    command += ["--warm-up", "0s", "-o", tmp_path / "capture"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        until((tmp_path / "capture" / "manifest.json").exists, "the capture begins")
        until(lambda: any((tmp_path / "capture").glob("outcomes.arrows")), "requests are answered")
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=PATIENCE_S)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 128 + signal.SIGINT and err == ""
    assert "It was interrupted." in out.splitlines()[0] and "Traceback" not in out
    capture = Capture.open(tmp_path / "capture")
    assert capture.end is not None and capture.end.how == "interrupted" and capture.damage == ()
    assert capture.rows(OutcomeRow) == capture.end.summary["phases"][0]["intended"] > 0


def test_a_server_that_dies_is_told_by_kind(recipe: Path, photos: Path) -> None:
    with emulated(recipe, "emulated:1ms+0ms") as (process, url):
        command = [
            server_process.COMMAND,
            "load",
            f"{url}/predict",
            "--images",
            photos,
            "--rate",
            "100",
            "--for",
            "2s",
        ]
        tester = subprocess.Popen(
            [*command, "--warm-up", "0s", "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        try:
            metrics_port = int(process.announced[1].rpartition(":")[2].partition("/")[0])
            until(lambda: predicted(metrics_port) > 20, "requests are answered")
            process.process.kill()
            out, err = tester.communicate(timeout=PATIENCE_S)
        finally:
            tester.kill()
            tester.wait()
    assert "Traceback" not in err
    (phase,) = json.loads(out)["phases"]
    assert phase["ok"] > 0 and phase["failed"]["refused"] > 0
    assert phase["ok"] + sum(phase["failed"].values()) + phase["unsent"] == phase["intended"] == 200


def predicted(metrics_port: int) -> float:
    text = server_process.ask(metrics_port, "GET", "/metrics")[1].decode()
    lines = [line for line in text.splitlines() if line.startswith("headrace_device_images_total")]
    return sum(float(line.rpartition(" ")[2]) for line in lines)


# --- wrong input: one sentence, exit code 64 ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("ftp://h/",), "cannot be asked"),
        (("{url}", "--rate", "fast"), "write it like 200/s"),
        (("{url}", "--rate", "5", "--clients", "5"), "--rate and --clients are two ways"),
        (("{url}", "--burst", "5"), "--burst says something of --rate"),
        (("{url}", "--speed", "5"), "--speed says something of --replay"),
        (("{url}", "--speed", "-5", "--replay", "x"), "no number above 0"),
        (("{url}", "--steps", "5,6"), "how long each lasts"),
        (("{url}", "--steps", "5,6x1s", "--for", "1s"), "leave --for out"),
        (("{url}", "--ramp", "5"), "write it like 10..500"),
        (("{url}", "--replay", "{photos}"), "cannot be read"),
        (("{url}", "--replay", "{photos}/0.jpg"), "no access log"),
        (("{url}", "--mix", "all"), "none of uniform"),
        (("{url}", "--as", "letter"), "none of body"),
        (("{url}", "--as", "url"), "is no URL"),
        (("{url}", "--as", "oip"), "names no model"),
        (("{server}/v2/models/gone", "--as", "oip"), "does not tell what the model takes"),
        (("{url}", "--recipe", "x"), "--recipe prepares tensors"),
        (("{url}", "--template", "{photos}/gone"), "cannot be read"),
        (("{url}", "--template", "{photos}/0.jpg"), "template"),
        (("{url}", "--header", "x"), "no header field"),
        (("{url}", "--expect", "404"), "--expect 404"),
        (("{url}", "--expect", "no such text"), "does not answer as it should: 200 (wrong answer)"),
        (("{server}/gone",), "404 (a failure)"),
        (("{server}/livez",), "405"),
        (("http://127.0.0.1:1/",), "nothing was measured"),
        (("{url}", "--capacity", "fast"), "write it like p99<200ms"),
        (("{url}", "--capacity", "p99<20s"), "--timeout"),
        (("{url}", "--capacity", "p99<2s", "--ramp", "1..2"), "--capacity tries rates of its own"),
        (("{url}", "--stop-at", "0.5%"), "1 % to 99 %"),
        (("{url}", "--stop-at", "5%", "--ramp", "1..2"), "--stop-at goes with"),
        (("{url}", "--clients", "9", "--connections", "3"), "--connections allows 3"),
        (("{url}", "--for", "10"), "needs one of the units"),
        (("{url}", "--timeout", "0s"), "no time above 0"),
        (("{url}", "-o", "{photos}"), "is not empty"),
        (("{url}", "--seed", "-1"), "no whole number"),
        (("http://" + "a" * 70 + ".invalid/",), "nothing was measured"),
        (("http://nowhere.invalid/",), "nothing was measured"),
        (("http://h:99999999/",), "no URL"),
        (("http://127.0.0.1:1/v2/models/\u00e9", "--as", "oip"), "does not tell what the model takes"),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_wrong_input(
    server: str, photos: Path, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], says: str
) -> None:
    filled = [text.format(url=f"{server}/predict", server=server, photos=photos) for text in arguments]
    assert code_of(["load", *filled, "--images", str(photos)]) == 64
    out, err = capsys.readouterr()
    assert out == "" and err.startswith("headrace: ") and err.count("\n") == 1 and says in err


def code_of(arguments: list[str]) -> int:
    from headrace.cli.main import main

    try:
        return main(arguments)
    except SystemExit as left:
        return int(left.code or 0)


def test_wrong_images(server: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "bad.rec").write_bytes(b"no pack at all")
    (tmp_path / "gone.txt").write_text("gone.jpg\n")
    for place, says in (
        (tmp_path / "bad.rec", "no record pack"),
        (tmp_path / "gone.txt", "none of the 1 images"),
        (tmp_path / "x", "exist"),
    ):
        assert code_of(["load", f"{server}/predict", "--images", str(place)]) == 64
        assert says in capsys.readouterr().err


@pytest.mark.parametrize(
    "speaks",
    [
        b"",
        b"\x00\xff junk\r\n\r\n",
        b"SSH-2.0-x\r\n",
        b"HTTP/1.1 99999 X\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nA: " + b"x" * 99_999,
    ],
)
def test_whoever_does_not_speak_http_is_not_measured(photos: Path, speaks: bytes) -> None:
    with speaking(speaks) as port:
        asked = Load(url=f"http://127.0.0.1:{port}/", images=(photos,))
        with pytest.raises(UsageError, match="nothing was measured"):
            load(asked, None, Event())


@contextmanager
def speaking(data: bytes) -> Iterator[int]:
    """A server that answers every connection with `data`, and ends it."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                with connection:
                    connection.recv(1 << 20)
                    connection.sendall(data)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield int(listener.getsockname()[1])
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()


# --- inside this process -----------------------------------------------------------------------------------------------------


def test_a_disk_that_fills_up_ends_the_run_and_not_the_report(
    photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    add = CaptureWriter.add

    def full(self: CaptureWriter, rows: Any) -> None:
        kept = list(rows)
        if kept and isinstance(kept[0], OutcomeRow):
            raise StorageError("no space left on device")
        add(self, kept)

    monkeypatch.setattr(CaptureWriter, "add", full)
    with serving_inside() as live:
        asked = Load(
            url=f"http://127.0.0.1:{live.port}/predict",
            images=(photos,),
            pattern=Rate(50.0),
            run_s=60.0,
            warm_up_s=0.0,
        )
        report = load(asked, tmp_path / "capture", Event())
    assert report.trouble == "no space left on device" and report.phases[0].figures.ok > 0
    capture = Capture.open(tmp_path / "capture")
    assert capture.end is None and capture.rows(ImageRow) == 4


def test_a_first_bad_image_does_not_stop_it(tmp_path: Path) -> None:
    (tmp_path / "0.jpg").write_bytes(b"no image")
    (tmp_path / "1.jpg").write_bytes(picture_bytes())
    with serving_inside() as live:
        asked = Load(
            url=f"http://127.0.0.1:{live.port}/predict",
            images=(tmp_path,),
            pattern=Rate(100.0),
            run_s=0.5,
            warm_up_s=0.0,
        )
        report = load(asked, None, Event())
    failed = report.phases[0].figures.failed
    assert set(failed) == {"http_415"} and 0 < failed["http_415"] < 50
    assert "most as http_415" in finding(report) and as_dict(report)["finding"] == finding(report)


def test_failing_answers_are_measured_when_asked_for(photos: Path) -> None:
    with serving_inside() as live:
        asked = Load(
            url=f"http://127.0.0.1:{live.port}/gone",
            images=(photos,),
            pattern=Rate(100.0),
            run_s=0.3,
            warm_up_s=0.0,
            anyway=True,
        )
        report = load(asked, None, Event())
    assert report.phases[0].figures.failed == {"http_404": 30} and not report.valid
    assert verdict(report).startswith("NOT VALID: no request was answered right")


def test_more_images_than_memory_are_sampled(photos: Path) -> None:
    images = open_images(photos)
    maker = as_body(Endpoint.of("http://h/"))
    whole = fill(images, maker, np.random.default_rng(1))
    assert [row.source for row in whole.images] == [0, 1, 2, 3] and whole.remarks == ()
    one = len(whole.shots[0].wire) + len(whole.shots[0].body)
    some = fill(images, maker, np.random.default_rng(1), room_bytes=int(2.5 * one))
    assert len(some.shots) == 2 and "2 of 4 images are sent, drawn by lot" in some.remarks[0]
    assert [shot.source for shot in some.shots] == [row.source for row in some.images]
    sources = {
        tuple(row.source for row in fill(images, maker, np.random.default_rng(n), 2 * one + 99).images)
        for n in range(20)
    }
    assert len(sources) > 3
    least = fill(images, maker, np.random.default_rng(1), room_bytes=1)
    assert len(least.shots) == 1


def test_image_rows_tell_what_is_known() -> None:
    files = [small_files()["png rgb"], b"junk"]
    rows = fill(
        ImageSet(2, "ab".__getitem__, files.__getitem__),
        as_body(Endpoint.of("http://h/")),
        np.random.default_rng(1),
    ).images
    assert rows == (ImageRow(0, "a", "png", len(files[0]), 48, 31), ImageRow(1, "b", None, 4, None, None))


# --- counts and verdicts -----------------------------------------------------------------------------------------------------


def outcome(
    number: int, latency_s: float | None, error: str | None = None, intended_s: float = 0.0
) -> OutcomeRow:
    done_s = None if latency_s is None else intended_s + latency_s
    return OutcomeRow(number, "run", 0, intended_s, intended_s, done_s, 200, error, 1, 1)


def tally_of(latencies_s: list[float], failed: int = 0) -> Tally:
    found = Tally(0.1)
    found.add([outcome(n, latency) for n, latency in enumerate(latencies_s)])
    found.add([outcome(n, None, "timeout") for n in range(failed)])
    return found


def test_a_tally_counts_what_is_right_what_is_good_and_what_failed() -> None:
    found = Tally(0.1)
    found.add(
        [
            outcome(0, 0.05),
            outcome(1, 0.1),
            outcome(2, 0.2),
            outcome(3, 0.01, "http_503"),
            outcome(4, None, "timeout"),
        ]
    )
    assert found.good == 2 and found.answers.count == 3 and found.every.count == 5
    assert found.failed == {"http_503": 1, "timeout": 1}
    rows = list(found.rows("run"))
    assert [(row.kind, row.requests) for row in rows] == [("ok", 1), ("ok", 1), ("ok", 1), ("http_503", 1)]
    assert found.every.total().quantile(1.0) > 3e9


def test_stage_bills_are_those_of_right_answers() -> None:
    bills = StageBills()
    assert bills.elsewhere_us() is None
    spans = [
        SpanRow(1, "decode", 1000, 3000),
        SpanRow(1, "infer", 0, 5000),
        SpanRow(2, "decode", 3000, 1000),
        SpanRow(9, "decode", 7, 7),
    ]
    bills.add(spans, {1: 0.010, 2: 0.006})
    assert [tuple(bill) for bill in bills.bills()] == [
        ("decode", 2, 2000.0, 2000.0),
        ("infer", 1, 0.0, 5000.0),
    ]
    assert bills.elsewhere_us() == pytest.approx((16_000 - 13_000) / 2)
    bills.add([SpanRow(1, f"made-up-{n}", 1, 1) for n in range(5000)], {1: 0.01})
    assert len(bills.bills()) <= 100


GOAL = Goal(0.99, 0.1)


def phase_of(ok: int, **other: Any) -> PhaseFigures:
    given: dict[str, Any] = {
        "name": "run", "began_s": 0.0, "ended_s": 10.0, "intended": ok, "sent": ok, "late": 0, "waited": 0, "again": 0,
        "last_start_s": 9.99,
        "ok": ok, "failed": {}, "unsent": 0, "cpu_s": 1.0, "worst_lag_s": 0.001, "lagged_s": 0.0,
    }  # fmt: skip
    return PhaseFigures(**given | other)


def test_trials_are_judged() -> None:
    fast, slow = tally_of([0.02] * 2000), tally_of([0.02] * 1000 + [0.5] * 1000)
    assert trial(200.0, phase_of(2000), fast, GOAL) == (200.0, True, True)
    assert trial(200.0, phase_of(2000), slow, GOAL) == (200.0, False, True)
    few = tally_of([0.02] * 50)
    assert trial(5.0, phase_of(50), few, GOAL) == (5.0, True, False)
    assert hopeless(slow, GOAL) and not hopeless(few, GOAL) and not hopeless(Tally(), GOAL)


def test_requests_without_an_answer_break_a_goal() -> None:
    failing = tally_of([0.02] * 1900, failed=100)
    assert trial(200.0, phase_of(1900, intended=2000, failed={"timeout": 100}), failing, GOAL) == (
        200.0,
        False,
        True,
    )


@pytest.mark.parametrize(
    "own", [{"cpu_s": 9.0}, {"late": 50}, {"lagged_s": 1.0}, {"failed": {"no_socket": 50}}]
)
def test_a_slow_tester_is_no_verdict_on_the_service(own: dict[str, Any]) -> None:
    slow = tally_of([0.5] * 2000)
    assert trial(200.0, phase_of(2000, **own), slow, GOAL).held is None


def test_waiting_for_connections_that_a_slow_service_keeps_is_its_own_fault() -> None:
    assert trial(200.0, phase_of(2000, late=500, waited=500), tally_of([0.5] * 2000), GOAL).held is False


@pytest.mark.parametrize(
    "text", ["", "p99", "p99<", "p99<5", "p99>5ms", "p100<5ms", "p49<5ms", "p99<0ms", "99<5ms", "p99<2h"]
)
def test_wrong_goals(text: str) -> None:
    with pytest.raises(UsageError, match="write it like p99<200ms"):
        parse_goal(text)


def test_goals() -> None:
    assert parse_goal("p99<200ms") == (0.99, 0.2) and parse_goal(" p99.9 <= 1s ") == (
        pytest.approx(0.999),
        1.0,
    )
    assert (
        trial_s(GOAL, 1000.0) == 10.0
        and trial_s(GOAL, 50.0) == pytest.approx(20.0)
        and trial_s(GOAL, 0.1) == 60.0
    )


def test_a_run_stops_when_the_p99_is_narrow_and_not_before() -> None:
    narrow = _narrow(0.05)
    assert not narrow(tally_of([0.02] * 999), phase_of(999))
    assert narrow(tally_of([0.02] * 1000), phase_of(1000))
    random = np.random.default_rng(2)
    assert not narrow(tally_of(random.exponential(0.02, 1500).tolist()), phase_of(1500))
    assert narrow(tally_of(random.exponential(0.02, 60_000).tolist()), phase_of(60_000))


# --- the search --------------------------------------------------------------------------------------------------------------


class LawSession:
    """Stands for a service that holds 100 ms up to a rate and fails above; with a tester that can send so much and no more."""

    def __init__(self, limit: float, tester: float = 1e9, stop_after: int = 1000) -> None:
        self.asked = Event()
        self.trouble = None
        self.rates: list[float] = []
        self._limit, self._tester, self._stop_after = limit, tester, stop_after

    def run(
        self, pattern: Any, warm_up_s: float, run_s: float, *, name: str = "run", enough: Any = None
    ) -> Measured:
        recorder = Recorder(None, None, self.asked, lambda recorder, figures: False)
        if isinstance(pattern, Clients):
            figures = phase_of(int(self._limit * 1.5 * 10), name="warm-up")
        else:
            self.rates.append(pattern.rate)
            recorder.tallies[name] = tally_of([0.02 if pattern.rate <= self._limit else 0.5] * 2000)
            figures = phase_of(2000, name=name, cpu_s=9.0 if pattern.rate > self._tester else 1.0)
            if len(self.rates) == self._stop_after:
                self.asked.set()
        return Measured(RunFigures(phases=(figures,), **NO_CONNECTIONS), recorder)


NO_CONNECTIONS: dict[str, Any] = {
    "stopped": False, "fell_behind": False, "connections_opened": 0, "connections_failed": 0, "retried": 0,
    "sent_bytes": 0, "received_bytes": 0,
}  # fmt: skip


def searched(session: LawSession, pattern: Clients | Rate) -> CapacityReport:
    return search(cast(Session, session), GOAL, pattern, 0.0, 1.0)


def test_a_search_begins_at_half_of_what_a_closed_loop_got_and_ends_around_the_limit() -> None:
    session = LawSession(120.0)
    found = searched(session, Clients(4))
    assert session.rates[0] == 90.0
    assert found.answer is not None and found.answer.ended == "bracket"
    assert found.answer.holds is not None and found.answer.breaks is not None
    assert found.answer.holds <= 120.0 < found.answer.breaks <= found.answer.holds * 1.05
    assert [trial.rate for trial in found.trials] == session.rates
    assert searched(LawSession(120.0), Rate(10.0)).trials[0].rate == 10.0


def test_a_search_says_when_the_tester_was_the_limit() -> None:
    answer = searched(LawSession(120.0, tester=60.0), Rate(10.0)).answer
    assert answer is not None and answer.ended == "client" and answer.holds is not None
    assert 57.0 < answer.holds <= 60.0


def test_a_search_that_is_ended_has_no_answer() -> None:
    found = searched(LawSession(120.0, stop_after=2), Rate(10.0))
    assert found.answer is None and len(found.trials) == 1


def test_a_search_needs_an_answer_to_begin_with() -> None:
    with pytest.raises(UsageError, match="Give --rate"):
        searched(LawSession(0.0), Clients(4))

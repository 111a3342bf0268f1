"""`headrace record` on real processes: what it finds, how it ends, what it says when it cannot."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import signal
import subprocess
import sys
import termios
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from tests.server_process import COMMAND, PATIENCE_S, ask, free_port, picture_bytes, run, until

from headrace.clock import monotonic_s
from headrace.core.watching.figures import Figures
from headrace.errors import UsageError
from headrace.lab.server_process import running_server
from headrace.probe.metrics_page import PageError
from headrace.probe.service import find_service
from headrace.records.rows.host import CoreRow
from headrace.records.rows.process import ProcessRow, SocketRow, TaskRow, ThreadRow
from headrace.records.rows.service import DeviceRow, ProbeRow, ProgressRow, StackRow, StageRow
from headrace.store.captures.reader import Capture
from headrace.workflows.record import Recorded, record
from headrace.workflows.record_target import Watch

RECIPE = "[recipe]\nwidth = 32\nheight = 32\n"


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    path = tmp_path / "recipe.toml"
    path.write_text(RECIPE)
    return path


@contextmanager
def child(code: str) -> Iterator[subprocess.Popen[str]]:
    """A Python process that prints a line when it is up."""
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        process.stdout.readline()
        yield process
    finally:
        process.kill()
        process.communicate()


SPINNER = (
    "import threading, time\n"
    "def spin():\n    while True: pass\n"
    "threading.Thread(target=spin, daemon=True).start(); print('up', flush=True); time.sleep(600)"
)


class Recording:
    """A recording in a thread of the test, with the figures so far."""

    def __init__(self, folder: Path, **watch: Any) -> None:
        self.stop, self.figures = Event(), Figures()
        self._folder, self._watch = folder, Watch(seconds=600.0, **watch)
        self._result: Future[Recorded] = ThreadPoolExecutor(1).submit(self._run)

    def _run(self) -> Recorded:
        return record(self._watch, self._folder, self.stop, self._show)

    def _show(self, figures: Figures, now_s: float) -> None:
        self.figures = figures

    def total(self, name: str) -> float | None:
        """The sum of a measure so far; None before its first value."""
        series = self.figures.series.get(name)
        return None if series is None else series.total

    def ended(self) -> Recorded:
        self.stop.set()
        return self._result.result(PATIENCE_S)


def test_a_server_of_ours_is_seen_from_outside_and_inside(tmp_path: Path, recipe: Path) -> None:
    """Requests sent while it is watched come back as images of its stages; its sockets and its threads have names."""
    with running_server("--recipe", str(recipe), "--accelerator", "emulated:1ms+0ms") as server:
        recording = Recording(tmp_path / "c", service=f"http://127.0.0.1:{server.port}")
        until(lambda: recording.total("stage.infer.done_per_s") is not None, "the server's figures are read")
        for _ in range(20):
            assert ask(server.port, "POST", "/predict", picture_bytes())[0] == 200
        until(lambda: round(recording.total("stage.infer.done_per_s") or 0) == 20, "the requests are counted")
        until(
            lambda: recording.total(f"socket.{server.port}.not_accepted") is not None, "its sockets are seen"
        )
        told = recording.ended()
    assert told.end.how == "interrupted" and told.emulated
    capture = Capture.open(tmp_path / "c")
    assert capture.damage == ()
    assert capture.manifest.target["pids"] == [server.pid]
    assert capture.manifest.target["metrics_url"] == f"http://127.0.0.1:{server.metrics_port}/metrics"
    stages, tasks = capture.columns(StageRow), capture.columns(TaskRow)
    assert stages["done"][stages["stage"] == "decode"].sum() == 20
    assert capture.columns(DeviceRow)["images"].sum() == 20
    assert {"decode-0", "infer-0"} <= set(tasks["name"][tasks["pid"] == server.pid])
    assert server.port in capture.columns(SocketRow)["port"]
    assert set(capture.columns(ProcessRow)["pid"]) == {server.pid}


def test_ctrl_c_keeps_what_there_is(tmp_path: Path) -> None:
    recording = subprocess.Popen(
        [COMMAND, "record", "--for", "10m", "-o", tmp_path / "c", "--json"], stdout=subprocess.PIPE, text=True
    )
    until(lambda: (tmp_path / "c" / "cores.arrows").exists(), "something was read")
    recording.send_signal(signal.SIGINT)
    text, _ = recording.communicate(timeout=PATIENCE_S)
    assert recording.returncode == 128 + signal.SIGINT and json.loads(text)["how"] == "interrupted"
    capture = Capture.open(tmp_path / "c")
    assert capture.damage == () and capture.rows(ProbeRow) > 0


def recorded(*arguments: Any, folder: Path, seconds: str = "1.5s") -> dict[str, Any]:
    done = run("record", *map(str, arguments), "--for", seconds, "-o", folder, "--json")
    assert done.returncode == 0, done.stderr
    told: dict[str, Any] = json.loads(done.stdout)
    return told


def test_a_spinning_thread_is_the_busiest(tmp_path: Path) -> None:
    with child(SPINNER) as process:
        told = recorded("--pid", process.pid, folder=tmp_path / "c")
        busiest = told["busiest_threads"][0]
        assert busiest["pid"] == process.pid and busiest["tid"] != process.pid
        assert busiest["mean_ratio"] + busiest["wait_ratio"] > 0.5
    threads = Capture.open(tmp_path / "c").columns(ThreadRow)
    assert set(threads["pid"]) == {process.pid}
    assert threads["cpu_us"][threads["tid"] == busiest["tid"]].sum() > 0


def test_the_machine_alone(tmp_path: Path) -> None:
    done = run("record", "--for", "1s", "-o", tmp_path / "c")
    assert done.returncode == 0, done.stderr
    assert "CPU" in done.stdout and "watching took" in done.stdout
    assert done.stdout.splitlines()[0].endswith("."), "what stands out comes first, as a sentence"
    assert Capture.open(tmp_path / "c").rows(ProcessRow) == 0


def test_what_could_not_be_seen_is_told_and_written(tmp_path: Path) -> None:
    told = recorded(folder=tmp_path / "c", seconds="1s")
    unseen = {item["probe"] for item in told["unseen"]}
    noted = {note.data["probe"] for note in Capture.open(tmp_path / "c").notes() if note.kind == "unseen"}
    assert unseen == noted
    if not Path("/proc/driver/nvidia").exists():
        assert "gpus" in unseen


def test_stacks_name_the_holder_of_the_lock(tmp_path: Path) -> None:
    with child(SPINNER) as process:
        told = recorded("--pid", process.pid, "--stacks", folder=tmp_path / "c", seconds="4s")
    if any(item["probe"] == "stacks" for item in told["unseen"]):
        pytest.skip(f"stacks cannot be read here: {told['unseen']}")
    stacks = Capture.open(tmp_path / "c").columns(StackRow)
    assert any(
        "spin" in stack for stack, holds in zip(stacks["stack"], stacks["holds_gil"], strict=True) if holds
    )


def test_work_is_counted_in_an_access_log(tmp_path: Path) -> None:
    log = tmp_path / "access.log"
    log.write_text("old line\n")
    recording = Recording(tmp_path / "c", progress=(f"log:{log}",))
    rate = f"progress.log:{log}.requests_per_s"
    until(lambda: recording.total(rate) is not None, "the log is followed")
    with log.open("a") as file:
        file.writelines("GET /predict\n" for _ in range(30))
    until(lambda: round(recording.total(rate) or 0) == 30, "the lines are counted")
    recording.ended()
    assert Capture.open(tmp_path / "c").columns(ProgressRow)["amount"].sum() == 30


def test_it_ends_when_the_service_does(tmp_path: Path) -> None:
    with child(SPINNER) as process:
        recording = subprocess.Popen(
            [COMMAND, "record", "--pid", str(process.pid), "--for", "10m", "-o", tmp_path / "c", "--json"],
            stdout=subprocess.PIPE,
            text=True,
        )
        until(lambda: (tmp_path / "c" / "manifest.json").exists(), "the capture is begun")
        process.kill()
        process.wait()
        text, _ = recording.communicate(timeout=PATIENCE_S)
    assert json.loads(text)["how"] == "the watched processes ended" and recording.returncode == 0
    assert Capture.open(tmp_path / "c").damage == ()


def test_a_recorder_that_is_killed_leaves_what_it_wrote(tmp_path: Path) -> None:
    code = (
        "import threading; from pathlib import Path; from headrace.workflows import record, record_target\n"
        "record.FLUSH_EVERY_S = 0.5\n"
        f"record.record(record_target.Watch(seconds=600.0), Path({str(tmp_path / 'c')!r}), threading.Event())"
    )
    recording = subprocess.Popen([sys.executable, "-c", code])
    index = tmp_path / "c" / "index.jsonl"
    until(lambda: index.exists() and b'"cores","offset":6' in index.read_bytes(), "a first piece is written")
    recording.kill()
    recording.wait()
    capture = Capture.open(tmp_path / "c")
    assert capture.end is None and capture.rows(CoreRow) > 0
    assert any("no end" in line for line in capture.damage)


def test_the_cost_is_in_the_capture(tmp_path: Path) -> None:
    recorded(folder=tmp_path / "c", seconds="1s")
    rows = Capture.open(tmp_path / "c").columns(ProbeRow)
    assert {"sampler", "cores", "threads", "storage"} - set(rows["probe"]) in (set(), {"threads"})
    assert (
        rows["cpu_us"][rows["probe"] == "sampler"].sum() >= rows["cpu_us"][rows["probe"] == "cores"].sum() > 0
    )


def test_a_closed_terminal_keeps_what_there_is(tmp_path: Path) -> None:
    """The connection breaks in the night: the terminal goes, and its signal comes."""
    master, terminal = pty.openpty()
    recording = subprocess.Popen(
        [COMMAND, "record", "--for", "10m", "-o", tmp_path / "c"],
        stdin=terminal, stdout=terminal, stderr=terminal, start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
    )  # fmt: skip
    os.close(terminal)
    until(lambda: b"recording" in os.read(master, 1 << 16), "it draws")
    os.close(master)
    recording.wait(PATIENCE_S)
    capture = Capture.open(tmp_path / "c")
    assert capture.damage == () and capture.end is not None and capture.end.how == "interrupted"


def test_paths_and_addresses_with_odd_bytes_and_secrets(tmp_path: Path) -> None:
    log, folder = tmp_path / "a\udcff.log", tmp_path / "c\udcff\n"
    log.write_text("")
    port = free_port()
    metric = f"metric:http://127.0.0.1:{port}/metrics?token=hunter2#n"
    told = recorded("--progress", f"log:{log}", "--progress", metric, folder=folder, seconds="1.2s")
    assert told["capture"].endswith("c\ufffd\n")
    text = b"".join(path.read_bytes() for path in folder.iterdir())
    assert b"hunter2" not in text and b"token=***" in text
    assert Capture.open(folder).damage == ()


def test_a_recorder_that_stood_still_says_so_and_its_figures_stay_true(tmp_path: Path) -> None:
    with child(SPINNER) as process:
        recording = subprocess.Popen(
            [COMMAND, "record", "--pid", str(process.pid), "--for", "10m", "-o", tmp_path / "c", "--json"],
            stdout=subprocess.PIPE,
            text=True,
        )
        until(lambda: (tmp_path / "c" / "threads.arrows").exists(), "threads are read")
        recording.send_signal(signal.SIGSTOP)
        stopped_s = monotonic_s()
        until(lambda: monotonic_s() > stopped_s + 2.5, "a gap")
        recording.send_signal(signal.SIGCONT)
        notes = tmp_path / "c" / "notes.jsonl"
        until(lambda: b"nothing was read for" in notes.read_bytes(), "the gap is told")
        recording.send_signal(signal.SIGINT)
        told = json.loads(recording.communicate(timeout=PATIENCE_S)[0])
    capture = Capture.open(tmp_path / "c")
    assert len([note for note in capture.notes() if note.kind == "gap"]) == 1
    threads = capture.columns(ThreadRow)
    assert (threads["cpu_us"] * 1e-6 <= threads["window_s"] * 1.1 + 0.02).all()
    assert told["measures"]["service.cpu_cores"]["max"] < 1.2


# --- used wrongly ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--pid", "999999999"), "no process 999999999"),
        (("--port", "1"), "nothing listens on TCP port 1"),
        (("--cgroup", "/no/such/group"), "no control group /no/such/group"),
        (("--service", "https://x"), "write http://HOST:PORT"),
        (("--service", "http://127.0.0.1:1"), "nothing listens"),
        (("--for", "5"), "needs one of the units"),
        (("--for", "0s"), "no time above 0"),
        (("--progress", "tea"), "log:"),
        (("--pid", "1", "--port", "2"), "not allowed with"),
    ],
)
def test_wrong_use_is_one_sentence(arguments: tuple[str, ...], says: str, tmp_path: Path) -> None:
    done = run("record", *arguments, "-o", tmp_path / "c")
    assert done.returncode == 64 and says in done.stderr and done.stderr.count("\n") == 1
    assert not (tmp_path / "c").exists()


def test_a_folder_with_something_in_it_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "letter").write_text("dear")
    done = run("record", "--for", "1s", "-o", tmp_path)
    assert done.returncode == 64 and "not empty" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["letter"]


def test_a_service_without_figures_is_watched_from_outside_alone() -> None:
    port = free_port()
    code = (
        f"from http.server import *; server = HTTPServer(('127.0.0.1', {port}), BaseHTTPRequestHandler)\n"
        "print('up', flush=True); server.serve_forever()"
    )
    with child(code) as process:
        found = find_service(f"http://127.0.0.1:{port}")
        assert found.watched is not None and found.watched.pids == {process.pid}
        assert found.metrics_url is None


def test_ports_that_keep_silent_do_not_hold_up_the_recording(monkeypatch: pytest.MonkeyPatch) -> None:
    """A service that listens on hundreds of ports and answers on none of them."""
    asked: list[str] = []
    clock = [0.0]

    def silent(url: str, timeout_s: float) -> str:
        asked.append(url)
        clock[0] += timeout_s
        raise PageError("no answer")

    monkeypatch.setattr("headrace.probe.service.fetch", silent)
    monkeypatch.setattr("headrace.probe.service.monotonic_s", lambda: clock[0])
    code = (
        "import socket, time\nopened = [socket.create_server(('127.0.0.1', 0)) for _ in range(40)]\n"
        "print(opened[0].getsockname()[1], flush=True)\ntime.sleep(600)"
    )
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        port = int(process.stdout.readline())
        found = find_service(f"http://127.0.0.1:{port}")
        assert found.watched is not None and found.watched.pids == {process.pid} and found.metrics_url is None
    finally:
        process.kill()
        process.communicate()
    assert asked[0] == f"http://127.0.0.1:{port}/metrics" and 1 < len(asked) <= 3


def test_an_address_that_nobody_knows_is_told_as_such() -> None:
    with pytest.raises(UsageError, match=r"shows no figures: .*the connection failed"):
        find_service("http://no.such.host.invalid:80")


def test_an_address_of_nobody() -> None:
    with pytest.raises(UsageError, match="no address"):
        find_service("http://[::1")

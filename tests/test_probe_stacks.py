"""The stack probe: real Python processes, processes that are none, and a py-spy that misbehaves."""

from __future__ import annotations

import json
import os
import re
import signal
import stat
import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.server_process import until

from headrace.probe import stacks
from headrace.probe.stacks import StackProbe
from headrace.records.rows.service import StackRow

FIGHTER = """
import threading, time

def spin_for_ever():
    while True:
        sum(range(1000))

def wait_for_ever():
    threading.Event().wait()

threading.Thread(target=spin_for_ever, name="fighter", daemon=True).start()
threading.Thread(target=wait_for_ever, name="wait;er\\n", daemon=True).start()
print("ready", flush=True)
time.sleep(600)
"""


@dataclass
class Processes:
    """Which are watched."""

    pids: frozenset[int] = field(default_factory=frozenset)


@contextmanager
def child(*command: str) -> Iterator[subprocess.Popen[bytes]]:
    """A process that has said a line."""
    process = subprocess.Popen(command, stdout=subprocess.PIPE)
    assert process.stdout is not None
    try:
        process.stdout.readline()
        yield process
    finally:
        process.kill()
        process.communicate()


@contextmanager
def probing(pids: Iterable[int], **options: Any) -> Iterator[tuple[StackProbe, Processes]]:
    watched = Processes(frozenset(pids))
    probe = StackProbe(watched, **options)
    try:
        yield probe, watched
    finally:
        probe.close()


class Reader:
    """Reads as the sampler does, with a clock of its own, and remembers everything."""

    def __init__(self, probe: StackProbe) -> None:
        self.probe = probe
        self.now_s = 0.0
        self.rows: list[StackRow] = []

    def read(self) -> bool:
        self.now_s += 1.0
        found = [row for row in self.probe.read(self.now_s) if isinstance(row, StackRow)]
        self.rows += found
        return bool(found)

    def read_until_told(self, words: str) -> None:
        def told() -> bool:
            self.read()
            return any(words in item.why for item in self.probe.unseen())

        until(told, words)


def stand_in(folder: Path, script: str) -> str:
    """A py-spy of our own making."""
    program = folder / "py-spy"
    program.write_text(f"#!{sys.executable}\nimport json, os, sys, time\npid = int(sys.argv[-1])\n{script}\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return str(program)


def thread(**changes: Any) -> dict[str, Any]:
    frame = {"name": "work", "filename": "/app/a.py", "short_filename": "a.py", "line": 7}
    return {
        "pid": 1, "os_thread_id": 11, "thread_name": "t", "active": True, "owns_gil": False, "frames": [frame]
    } | changes  # fmt: skip


@pytest.mark.parametrize("pauses", [False, True])
def test_who_fights_for_the_lock_and_who_waits(pauses: bool) -> None:
    with child(sys.executable, "-c", FIGHTER) as process, probing([process.pid], pauses=pauses) as (probe, _):
        reader = Reader(probe)

        def all_seen() -> bool:
            reader.read()
            names = {row.thread for row in reader.rows}
            return len(reader.rows) >= 9 and {"fighter", "wait_er_", "MainThread"} <= names

        until(all_seen, "three readings of three threads")
        by_name = {
            name: [row for row in reader.rows if row.thread == name]
            for name in ("fighter", "wait_er_", "MainThread")
        }
        assert any(row.active and row.holds_gil for row in by_name["fighter"])
        assert all("spin_for_ever (<string>:" in row.stack for row in by_name["fighter"])
        assert not any(row.active or row.holds_gil for row in by_name["wait_er_"])
        assert {row.tid for row in by_name["MainThread"]} == {row.pid for row in reader.rows} == {process.pid}
        waiter = by_name["wait_er_"][0].stack.split(";")
        assert waiter[0].startswith("Thread._bootstrap (threading.py:"), "from the outermost in"
        assert "wait_for_ever" in waiter[-3] and "wait (threading.py:" in waiter[-1]
        assert probe.child_cpu_s > 0 and probe.unseen() == ()


def test_a_stack_has_the_time_at_which_it_was_asked_for() -> None:
    with child(sys.executable, "-c", FIGHTER) as process, probing([process.pid]) as (probe, _):
        reader = Reader(probe)
        until(reader.read, "stacks")
        assert {row.t_s for row in reader.rows} == {1.0}, (
            "the reading that started it, not the one that fetched it"
        )


def test_processes_take_turns_and_one_that_is_no_python_is_told() -> None:
    with (
        child(sys.executable, "-c", FIGHTER) as first,
        child(sys.executable, "-c", FIGHTER) as second,
        child("sh", "-c", "echo; exec sleep 600") as third,
        probing([first.pid, second.pid, third.pid]) as (probe, watched),
    ):
        reader = Reader(probe)
        reader.read_until_told("no Python program")
        until(lambda: reader.read() and len({(row.pid, row.t_s) for row in reader.rows}) >= 6, "six readings")
        turns = list(dict.fromkeys((row.t_s, row.pid) for row in reader.rows))
        seen = [pid for _, pid in turns]
        assert abs(seen.count(first.pid) - seen.count(second.pid)) <= 1
        assert [item.what for item in probe.unseen()] == [f"Python stacks of process {third.pid}"]
        watched.pids = frozenset({second.pid})
        begun_s = reader.now_s
        until(lambda: reader.read() and reader.rows[-1].t_s > begun_s + 2, "stacks of the one that is left")
        assert {row.pid for row in reader.rows if row.t_s > begun_s} == {second.pid}


def test_what_is_no_python_is_asked_again_much_later(tmp_path: Path) -> None:
    """A shell that execs becomes one under the same number."""
    said = "Error: Failed to find python version from target process"
    script = f"print(pid, file=open({str(tmp_path / 'asked')!r}, 'a')); sys.exit({said!r})"
    with probing([os.getpid()], program=stand_in(tmp_path, script)) as (probe, _):
        reader = Reader(probe)
        reader.read_until_told("no Python program")
        asked = tmp_path / "asked"
        for _ in range(20):
            reader.read()
        assert asked.read_text().count("\n") == 1
        reader.now_s += stacks.RETRY_S
        until(lambda: reader.read() or asked.read_text().count("\n") == 2, "a second try")


def test_a_process_that_dies_is_no_mystery() -> None:
    with child(sys.executable, "-c", FIGHTER) as process, probing([process.pid]) as (probe, watched):
        reader = Reader(probe)
        until(reader.read, "stacks")
        process.send_signal(signal.SIGKILL)
        process.wait()
        dumps = probe.child_cpu_s
        until(lambda: reader.read() or probe.child_cpu_s > dumps, "a try at a process that is gone")
        watched.pids = frozenset()
        reader.read()
        assert probe.unseen() == ()


def test_without_permission_it_says_what_would_help(tmp_path: Path) -> None:
    script = "sys.exit(\"Permission Denied: Try running again with elevated permissions by going 'sudo'\")"
    with probing([os.getpid()], program=stand_in(tmp_path, script)) as (probe, _):
        reader = Reader(probe)
        reader.read_until_told("SYS_PTRACE")
        assert reader.rows == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can start a process of another user")
def test_the_real_py_spy_without_permission(tmp_path: Path) -> None:
    """As `nobody`, through a small program that drops the rights first."""
    real = stacks._find_program()
    assert real is not None
    script = f"os.setgid(65534); os.setuid(65534); os.execv({real!r}, [{real!r}, *sys.argv[1:]])"
    with (
        child(sys.executable, "-c", FIGHTER) as process,
        probing([process.pid], program=stand_in(tmp_path, script)) as (probe, _),
    ):
        Reader(probe).read_until_told("this user may not look into it")


def test_py_spy_missing_or_broken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stacks, "_find_program", lambda: None)
    with probing([os.getpid()]) as (probe, _):
        assert list(probe.read(0.0)) == []
        assert [item.why for item in probe.unseen()] == ["py-spy is not installed: pip install py-spy"]
    (tmp_path / "py-spy").write_text("")
    with probing([os.getpid()], program=str(tmp_path / "py-spy")) as (probe, _):
        assert list(probe.read(0.0)) == list(probe.read(1.0)) == []
        assert [item.why for item in probe.unseen()] == [
            f"{tmp_path}/py-spy cannot be run: Permission denied"
        ]


def test_a_py_spy_that_hangs_is_ended_and_the_sampler_never_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stacks, "TIMEOUT_S", 0.2)
    script = f"print(os.getpid(), file=open({str(tmp_path / 'pids')!r}, 'a'), flush=True)\ntime.sleep(600)"
    with probing([os.getpid()], program=stand_in(tmp_path, script)) as (probe, _):
        Reader(probe).read_until_told("was not done after")
        pids = until(
            lambda: (tmp_path / "pids").exists() and (tmp_path / "pids").read_text().split(), "its number"
        )
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids), "also the one that closing found under way"


@pytest.mark.parametrize("ends", [False, True])
def test_a_py_spy_that_says_too_much(ends: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stacks, "MOST_BYTES", 100_000)
    script = "\nwhile True: print('x' * 99_999)" if not ends else "\nprint('x' * 200_000)"
    with probing([os.getpid()], program=stand_in(tmp_path, script)) as (probe, _):
        reader = Reader(probe)
        reader.read_until_told("its stacks take more than")
        assert reader.rows == []


def test_a_service_that_is_costly_to_look_at_is_asked_less_often(tmp_path: Path) -> None:
    """One that burns half a second of CPU may be asked every 50 s."""
    script = f"while time.process_time() < 0.5: pass\nprint({json.dumps([thread()])!r})"
    with probing([os.getpid()], program=stand_in(tmp_path, script)) as (probe, _):
        until(lambda: list(probe.read(1.0)), "stacks")
        assert list(probe.read(40.0)) == [] and probe._dump is None
        rested_s = 1.0 + probe.child_cpu_s / stacks.MOST_SHARE + 1.0
        assert list(probe.read(rested_s)) == [] and probe._dump is not None


@pytest.mark.parametrize(
    "answer", ["", "{", "[1]", "{}", "[{}]", '"x"', "null", json.dumps([thread(frames=[{}])]), json.dumps([thread(frames=3)])]
)  # fmt: skip
def test_an_answer_of_another_form_is_told(answer: str, tmp_path: Path) -> None:
    with probing([os.getpid()], program=stand_in(tmp_path, f"print({answer!r})")) as (probe, _):
        reader = Reader(probe)
        reader.read_until_told("py-spy's answer is not what this version reads")
        assert reader.rows == []


def test_an_unknown_failure_is_told_in_py_spys_words_and_tried_again(tmp_path: Path) -> None:
    once = str(tmp_path / "once")
    script = (
        f"if not os.path.exists({once!r}):\n open({once!r}, 'w')\n sys.exit('Error: odd\\x1b[2J;')\n"
        f"print({json.dumps([thread()])!r})"
    )
    with probing([os.getpid()], program=stand_in(tmp_path, script)) as (probe, _):
        reader = Reader(probe)
        until(reader.read, "stacks at the second try")
        assert [item.why for item in probe.unseen()] == ["py-spy failed, and is tried again: Error: odd_[2J_"]


def test_many_threads_and_deep_stacks_are_cut(tmp_path: Path) -> None:
    frames = [thread()["frames"][0] | {"name": f"f{depth}"} for depth in range(100)]
    answer = tmp_path / "answer"
    answer.write_text(json.dumps([thread(os_thread_id=number, frames=frames) for number in range(700)]))
    with probing([os.getpid()], program=stand_in(tmp_path, f"print(open({str(answer)!r}).read())")) as (
        probe,
        _,
    ):
        reader = Reader(probe)
        until(reader.read, "stacks")
        assert len(reader.rows) == stacks.MOST_THREADS
        functions = reader.rows[0].stack.split(";")
        assert (
            functions[0] == "..."
            and functions[-1] == "f0 (a.py:7)"
            and len(functions) == stacks.MOST_FRAMES + 1
        )
        assert "it has 700" in probe.unseen()[0].why


@given(st.text(max_size=300), st.text(max_size=300), st.text(max_size=300))
@settings(max_examples=200, deadline=None)
def test_hostile_names_cannot_break_a_line_or_a_stack(function: str, file: str, name: str) -> None:
    frame = {"name": function, "filename": file, "short_filename": None, "line": 3}
    dump: Any = type("Dump", (), {"started_s": 1.0, "pid": 5})
    row = stacks._row(thread(thread_name=name, frames=[frame, frame], os_thread_id=None), dump)
    assert row.stack.count(";") == 1
    assert row.tid is None and row.active is None, (
        "whether it runs is guessed where its number is not known (Python before 3.11)"
    )
    assert not re.search(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]", row.stack + row.thread)
    assert len(row.thread) <= stacks.MOST_CHARACTERS
    assert len((row.thread + row.stack).splitlines()) <= 1

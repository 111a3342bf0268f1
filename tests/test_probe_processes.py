"""Processes and threads: real ones, started here, and recorded trees for what cannot be made."""

from __future__ import annotations

import itertools
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.server_process import until
from tests.watched_processes import Pids, Program, Reading, program

from headrace.errors import UsageError
from headrace.probe.proc_text import TICK_US, stat_fields
from headrace.probe.processes import ProcessesProbe
from headrace.probe.readings import Descriptors
from headrace.probe.system import system_probes
from headrace.probe.targets import by_cgroup, by_pid, by_port
from headrace.probe.threads import ThreadsProbe
from headrace.probe.watched import ProcessTree
from headrace.records.rows.host import CoreRow, HostRow, NetworkRow
from headrace.records.rows.process import ProcessRow, TaskRow, ThreadRow


@pytest.fixture(autouse=True)
def switches_are_read_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.probe.thread._SWITCHES_HOT_S", 0.2)
    monkeypatch.setattr("headrace.probe.thread._SWITCHES_COLD_S", 0.2)


ECHO = "say('ready')\nfor line in sys.stdin: say(line.strip())"
SPINNER = """
def spin():
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    while True: pass
thread = threading.Thread(target=spin, daemon=True); thread.start()
say(thread.native_id); sys.stdin.read()
"""
FIGHTERS = """
def spin():
    while True: sum(range(100))
threads = [threading.Thread(target=spin, daemon=True) for _ in range(2)]
for thread in threads: thread.start()
say(*(thread.native_id for thread in threads)); sys.stdin.read()
"""
CROWD = """
def wake():
    while True: time.sleep(0.001)
threads = [threading.Thread(target=wake, daemon=True) for _ in range(50)]
for thread in threads: thread.start()
say(*(thread.native_id for thread in threads)); sys.stdin.read()
"""
WAITER = """
ours, theirs = socket.socketpair()
def serve():
    while data := ours.recv(100): ours.sendall(data)
thread = threading.Thread(target=serve, daemon=True); thread.start()
say(thread.native_id)
for line in sys.stdin:
    for _ in range(50): theirs.sendall(b'x'); theirs.recv(100)
    say('done')
"""
PARENT = """
say('ready')
for line in sys.stdin:
    child = subprocess.Popen([sys.executable, '-c', 'import sys, time\\nend = time.process_time() + 0.3\\nprint(1, flush=True)'
        '\\nwhile time.process_time() < end: pass\\nsys.stdin.read()'], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    child.stdout.readline()
    say(child.pid)
    sys.stdin.readline()
    child.stdin.close(); child.wait(); say('ended')
"""
BURST = """
def burn():
    end = time.thread_time() + 0.2
    while time.thread_time() < end: pass
    burnt.set(); done.wait()
say('ready')
for line in sys.stdin:
    burnt, done = threading.Event(), threading.Event()
    thread = threading.Thread(target=burn); thread.start(); burnt.wait()
    say(thread.native_id)
    sys.stdin.readline(); done.set(); thread.join(); say('ended')
"""
READER = """
import mmap
path = sys.argv[1] if len(sys.argv) > 1 else os.environ['FILE']
say('ready')
for line in sys.stdin:
    fd = os.open(path, os.O_RDONLY | os.O_DIRECT)
    buffer = mmap.mmap(-1, 1 << 20)
    while os.readv(fd, [buffer]): pass
    os.close(fd); say('done')
"""


def test_a_pinned_thread_shows_its_core_and_its_mask() -> None:
    with program(SPINNER) as spinner:
        tid, core = int(spinner.hear()), max(os.sched_getaffinity(0))
        reading = Reading(ThreadsProbe(by_pid(spinner.pid)))
        rows = reading.until(
            ThreadRow, lambda rows: sum(row.cpu_us for row in rows if row.tid == tid) > 200_000, "CPU time"
        )
        spins = [row for row in rows if row.tid == tid]
        told = [row for row in spins if row.state is not None]
        assert {row.core for row in told} == {core} and {row.state for row in told} == {"R"}
        tasks = {row.tid: row for row in reading.rows if isinstance(row, TaskRow)}
        assert tasks[tid].allowed_cores == str(core) and tasks[tid].parent_pid is None
        assert spinner.pid not in tasks, "the main thread's name is the process's"
        assert reading.probe.unseen() == ()
        reading.probe.close()


@contextmanager
def going(running: Program) -> Iterator[None]:
    """The program runs inside only, so that what it used is known to the last nanosecond."""
    running.process.send_signal(signal.SIGCONT)
    yield
    running.process.send_signal(signal.SIGSTOP)
    until(lambda: all(_state(task) == "T" for task in Path(f"/proc/{running.pid}/task").iterdir()), "stopped")


def test_threads_that_fight_for_the_gil_share_one_core() -> None:
    with program(FIGHTERS) as fighters:
        tids = set(map(int, fighters.hear().split()))
        with going(fighters):
            pass
        reading = Reading(ThreadsProbe(by_pid(fighters.pid)))
        reading.once()
        with going(fighters):
            reading.until(
                ThreadRow,
                lambda rows: all(sum(r.cpu_us for r in rows if r.tid == tid) > 150_000 for tid in tids),
                "CPU time of both",
            )
        reading.once()
        rows = {tid: [r for r in reading.rows if isinstance(r, ThreadRow) and r.tid == tid] for tid in tids}
        for of_one in rows.values():
            window_us = sum(row.window_s for row in of_one) * 1e6
            used_us = sum(row.cpu_us + row.wait_us for row in of_one)
            assert used_us < window_us + 10_000, (
                "10 ms: a running thread's time is brought up to date by the tick"
            )
            assert sum(row.voluntary_switches or 0 for row in of_one) > 5, "it waited for the lock"
            assert sum(row.slices for row in of_one) > 5
        both = sum(row.cpu_us for of_one in rows.values() for row in of_one)
        assert both < 1.5 * max(sum(row.window_s for row in of_one) for of_one in rows.values()) * 1e6


def test_a_socket_waiter_sleeps_and_gives_its_core_up_each_time() -> None:
    with program(WAITER) as waiter:
        tid = int(waiter.hear())
        reading = Reading(ThreadsProbe(by_pid(waiter.pid)))
        reading.once()
        waiter.ask("go")

        def own(rows: list[ThreadRow]) -> list[ThreadRow]:
            return [row for row in rows if row.tid == tid]

        def told_switches(rows: list[ThreadRow]) -> bool:
            waiter.ask("go")
            return any(row.voluntary_switches for row in own(rows))

        rows = own(reading.until(ThreadRow, told_switches, "switches of the waiter"))
        assert {row.state for row in rows} - {None} == {"S"}
        assert sum(row.voluntary_switches or 0 for row in rows) >= 50
        assert sum(row.cpu_us for row in rows) < 0.5 * sum(row.window_s for row in rows) * 1e6


def test_nothing_is_lost_however_little_each_reading_may_do() -> None:
    with program(CROWD) as crowd:
        tids = list(map(int, crowd.hear().split()))
        with going(crowd):
            pass
        probe, clock = (
            ThreadsProbe(Pids(crowd.pid), budget_s=0.0, descriptors=Descriptors(3)),
            itertools.count(),
        )
        rows: list[ThreadRow] = []

        def read(times: int) -> int:
            found = [list(probe.read(next(clock))) for _ in range(times)]
            rows.extend(row for each in found for row in each if isinstance(row, ThreadRow))
            return max(map(len, found))

        read(20)
        before = [_schedstat(crowd.pid, tid) for tid in tids]
        with going(crowd):
            for step in range(1, 11):
                enough_ns = before[0][0] + step * 10**6
                until(lambda ns=enough_ns: _schedstat(crowd.pid, tids[0])[0] > ns, "CPU time")
                assert read(1) < len(tids), "one reading is not to do all"
        read(40)
        for tid, was in zip(tids, before, strict=True):
            own = [row for row in rows if row.tid == tid]
            cpu_ns, wait_ns, slices = (b - a for a, b in zip(was, _schedstat(crowd.pid, tid), strict=True))
            assert sum(row.slices for row in own) == slices > 0
            assert 0 <= cpu_ns // 1000 - sum(row.cpu_us for row in own) <= len(own), "each row rounds down"
            assert 0 <= wait_ns // 1000 - sum(row.wait_us for row in own) <= len(own)


def test_a_thread_that_starts_under_watch_brings_its_whole_time() -> None:
    with program(BURST) as burst:
        burst.hear()
        reading = Reading(ThreadsProbe(by_pid(burst.pid)))
        reading.once()
        tid = int(burst.ask("go"))
        rows = reading.until(ThreadRow, lambda rows: any(row.tid == tid for row in rows), "the new thread")
        assert sum(row.cpu_us for row in rows if row.tid == tid) > 150_000
        assert next(row for row in rows if row.tid == tid).system_us is not None
        burst.ask("end")
        reading.once()
        reading.until(TaskRow, lambda rows: tid in {row.tid for row in rows}, "its name")


def test_a_new_name_and_a_new_mask_are_told() -> None:
    code = """
thread = threading.Thread(target=lambda: [time.sleep(0.001) for _ in iter(int, 1)], daemon=True); thread.start()
say(thread.native_id)
for line in sys.stdin:
    open(f'/proc/self/task/{thread.native_id}/comm', 'w').write(line.strip())
    os.sched_setaffinity(thread.native_id, {min(os.sched_getaffinity(0))}); say('done')
"""
    with program(code) as named:
        tid = int(named.hear())
        reading = Reading(ThreadsProbe(by_pid(named.pid)))
        reading.once()
        named.ask("decoder 7")
        core = str(min(os.sched_getaffinity(0)))
        rows = reading.until(
            TaskRow,
            lambda rows: any(
                row.allowed_cores == core or core == "0" for row in rows if row.name == "decoder 7"
            ),
            "name",
        )
        assert {row.tid for row in rows if row.name == "decoder 7"} == {tid}


NAMES = [b"a) R 1 1", b") ) )", b"\x1b[2J\n\x07", b"\xff\xfe", b""]


def test_hostile_names_are_harmless_and_move_no_figure() -> None:
    """A thread's name stands in the middle of its line of figures, brackets, blanks and newlines as they are."""
    code = (
        "import ctypes\nname = ctypes.CDLL(None).prctl\n"
        "def spin(text):\n    name(15, text, 0, 0, 0)\n    while True: pass\n"
        f"for text in {NAMES}: threading.Thread(target=spin, args=(text,), daemon=True).start()\n"
        "name(15, b'x) S 9 9', 0, 0, 0); say('up'); sys.stdin.read()"
    )
    with program(code) as named:
        named.hear()
        tree = by_pid(named.pid)
        threads, processes = Reading(ThreadsProbe(tree)), Reading(ProcessesProbe(tree))
        rows = threads.until(ThreadRow, lambda rows: len({row.tid for row in rows}) >= 5, "all threads")
        states = {row.state for row in rows} - {None}
        assert states <= {"R", "S"} and all(row.core in (None, *range(4096)) for row in rows)
        names = {row.name for row in threads.rows if isinstance(row, TaskRow)}
        assert {"a) R 1 1", ") ) )", "?[2J??", "\ufffd\ufffd", ""} <= names
        (row,) = (row for row in processes.until(ProcessRow, lambda rows: len(rows) == 1, "the process"))
        assert row.threads == 6 and row.state == "S"
        assert processes.rows[0].name == "x) S 9 9" and processes.rows[0].parent_pid == os.getpid()


def test_a_process_that_was_stopped_is_told_from_one_that_sleeps() -> None:
    with program(ECHO) as echo:
        echo.hear()
        reading = Reading(ProcessesProbe(by_pid(echo.pid)))
        reading.until(ProcessRow, lambda rows: any(row.state == "S" for row in rows), "it sleeps")
        os.kill(echo.pid, signal.SIGSTOP)
        reading.until(ProcessRow, lambda rows: rows[-1].state == "T", "it is stopped")
        os.kill(echo.pid, signal.SIGCONT)


def test_a_child_is_followed_from_start_to_end() -> None:
    with program(PARENT) as parent:
        parent.hear()
        tree = by_pid(parent.pid)
        reading = Reading(ProcessesProbe(tree))
        reading.once()
        child = int(parent.ask("start"))
        tree.refresh()
        assert tree.pids == {parent.pid, child}
        rows = reading.until(
            ProcessRow,
            lambda rows: sum(r.user_us + r.system_us for r in rows if r.pid == child) >= 200_000,
            "the child's time",
        )
        assert not any(row.ended_children_us for row in rows)
        who = next(row for row in reading.rows if isinstance(row, TaskRow) and row.pid == child)
        assert who.parent_pid == parent.pid and who.command is not None and "process_time" in who.command
        parent.ask("end")
        tree.refresh()
        assert tree.pids == {parent.pid} and tree.alive
        reading.once()
        told_us = total_us(reading.rows) - total_us([row for row in reading.rows if row.pid == parent.pid])
        rest_us = sum(row.ended_children_us for row in reading.rows if isinstance(row, ProcessRow))
        whole_us = ended_children_us(parent.pid)
        assert abs(told_us + rest_us - whole_us) <= 2 * TICK_US and whole_us >= 200_000


def total_us(rows: list[Any]) -> int:
    return sum(row.user_us + row.system_us for row in rows if isinstance(row, ProcessRow))


def ended_children_us(pid: int) -> int:
    """As the kernel has it."""
    return sum(map(int, stat_fields(Path(f"/proc/{pid}/stat").read_bytes())[16:18])) * TICK_US


FORKER = """
def work(seconds):
    while time.process_time() < seconds: pass
def child(depth):
    pid = os.fork()
    if pid == 0:
        if depth: child(depth - 1)
        work(0.03); os._exit(0)
    os.waitpid(pid, 0)
say('ready')
for line in sys.stdin:
    for _ in range(8): child(int(line))
    say('done')
"""


@pytest.mark.parametrize("depth", [0, 2])
def test_children_that_come_and_go_between_readings_are_counted(depth: int) -> None:
    """A service that starts a program for each image: nobody ever sees one of them, but their time is the service's."""
    with program(FORKER) as forker:
        forker.hear()
        reading = Reading(ProcessesProbe(Pids(forker.pid)))
        reading.once()
        for _ in range(2):
            forker.ask(str(depth))
            reading.once()
        told = sum(row.ended_children_us for row in reading.rows if isinstance(row, ProcessRow))
        assert told == ended_children_us(forker.pid) >= 2 * 8 * (depth + 1) * 20_000


GENERATIONS = """
told, tell = os.pipe()
stop, end = os.pipe()
if (middle := os.fork()) == 0:
    if (last := os.fork()) == 0:
        while True: pass
    os.write(tell, b'%d' % last); os.read(stop, 1)
    os.kill(last, 9); os.waitpid(last, 0); os._exit(0)
say(middle, os.read(told, 20).decode()); sys.stdin.readline()
os.write(end, b'x'); os.waitpid(middle, 0); say('ended'); sys.stdin.read()
"""


def test_what_grandchildren_did_is_told_once_when_all_end_at_the_same_time() -> None:
    with program(GENERATIONS) as top:
        middle, grandchild = map(int, top.hear().split())
        tree = by_pid(top.pid)
        assert tree.pids == {top.pid, middle, grandchild}
        reading = Reading(ProcessesProbe(tree))
        reading.until(ProcessRow, lambda rows: total_us(rows) >= 300_000, "its work")
        assert top.ask() == "ended"
        reading.once()
        tree.refresh()
        reading.once()
        told = total_us([row for row in reading.rows if row.pid in (middle, grandchild)])
        rest = sum(row.ended_children_us for row in reading.rows if isinstance(row, ProcessRow))
        before = ended_children_us(top.pid) - told - rest
        assert 0 <= before <= 150_000, "only what they did before the first reading is told by nobody"


def test_a_process_that_dies_has_no_more_rows_and_raises_nothing() -> None:
    with program(FIGHTERS) as fighters:
        fighters.hear()
        tree = by_pid(fighters.pid)
        readings = [Reading(ThreadsProbe(tree)), Reading(ProcessesProbe(tree))]
        for reading in readings:
            reading.until(object, lambda rows: len(rows) > 2, "rows")
        fighters.process.kill()
        fighters.process.wait()
        for reading in readings:
            before = len(reading.rows)
            reading.once()
            tree.refresh()
            reading.once()
            assert len(reading.rows) == before and reading.probe.unseen() == ()
            reading.probe.close()
        assert tree.pids == frozenset() and not tree.alive


def test_direct_reads_are_disk_reads(tmp_path: Path) -> None:
    file = tmp_path / "big"
    file.write_bytes(os.urandom(4 << 20))
    with file.open("rb+") as synced:
        os.fsync(synced.fileno())
    with program(READER, env={**os.environ, "FILE": str(file)}) as reader:
        reader.hear()
        reading = Reading(ProcessesProbe(by_pid(reader.pid)))
        reading.once()
        try:
            reader.ask("go")
        except AssertionError:
            pytest.skip("this file system reads nothing without its cache")
        rows = reading.until(
            ProcessRow, lambda rows: sum(row.read_call_bytes or 0 for row in rows) >= 4 << 20, "reads"
        )
        if sum(row.read_bytes or 0 for row in rows) == 0:
            pytest.skip("this file system is not on a disk")
        assert sum(row.read_bytes or 0 for row in rows) >= 4 << 20


def test_what_another_user_hides_is_told() -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can play another user")
    with program(ECHO) as stranger:
        stranger.hear()
        os.seteuid(65533)
        try:
            reading = Reading(ProcessesProbe(by_pid(stranger.pid)))
            reading.once()
            row = reading.until(ProcessRow, lambda rows: rows, "a row")[0]
        finally:
            os.seteuid(0)
        assert row.read_bytes is None and row.threads == 1
        assert [each.what for each in reading.probe.unseen()] == [
            f"bytes read and written by process {stranger.pid}"
        ]
        assert "sudo" in reading.probe.unseen()[0].why


def _schedstat(pid: int, tid: int) -> tuple[int, ...]:
    return tuple(map(int, Path(f"/proc/{pid}/task/{tid}/schedstat").read_text().split()))


def _state(process: Path) -> str:
    return (process / "stat").read_text().rpartition(") ")[2][0]


# --- recorded trees ----------------------------------------------------------------------------------------------------------


def stat(pid: int, name: str, parent: int, start: int, user: int = 0, state: str = "S") -> str:
    fields = [
        pid,
        f"({name})",
        state,
        parent,
        *[0] * 9,
        user,
        3,
        0,
        0,
        20,
        0,
        1,
        0,
        start,
        0,
        25,
        *[0] * 14,
        1,
        *[0] * 13,
    ]
    return " ".join(map(str, fields)) + "\n"


def record(proc: Path, pid: int, text: str, schedstat: str | None = None) -> None:
    task = proc / str(pid) / "task" / str(pid)
    task.mkdir(parents=True, exist_ok=True)
    status = f"Name:\tx\nTgid:\t{pid}\nCpus_allowed_list:\t0-3\nvoluntary_ctxt_switches:\t5\nnonvoluntary_ctxt_switches:\t1\n"
    for folder in (task, task.parent.parent):
        (folder / "stat").write_text(text)
        (folder / "status").write_text(status)
        if schedstat is not None:
            (folder / "schedstat").write_text(schedstat)


def test_a_number_given_to_another_process_is_not_taken_for_the_old_one(tmp_path: Path) -> None:
    record(tmp_path, 50, stat(50, "service", 1, 1000))
    record(tmp_path, 60, stat(60, "worker", 50, 1001, user=100))
    tree = ProcessTree([50], tmp_path)
    reading = Reading(ProcessesProbe(tree, tmp_path))
    reading.once()
    assert tree.pids == {50, 60}
    record(tmp_path, 60, stat(60, "stranger", 1, 2000, user=900))
    assert [row.pid for row in reading.once() if isinstance(row, ProcessRow)] == [50]
    tree.refresh()
    assert tree.pids == {50}
    record(tmp_path, 60, stat(60, "worker", 50, 3000))
    tree.refresh()
    assert tree.pids == {50}, "60 was seen as a stranger and its start is not read again"
    record(tmp_path, 50, stat(50, "other", 1, 4000))
    tree.refresh()
    assert tree.pids == frozenset() and not tree.alive


def test_an_orphan_stays_and_its_children_come_along(tmp_path: Path) -> None:
    for pid, parent in ((50, 1), (51, 50), (52, 51), (70, 1)):
        record(tmp_path, pid, stat(pid, "x", parent, 1000 + pid))
    tree = ProcessTree([50], tmp_path)
    assert tree.pids == {50, 51, 52}
    record(tmp_path, 51, stat(51, "x", 50, 1051, state="Z"))
    record(tmp_path, 52, stat(52, "x", 1, 1052))
    record(tmp_path, 53, stat(53, "x", 52, 1060))
    tree.refresh()
    assert tree.pids == {50, 52, 53}


def test_without_schedstat_time_comes_in_ticks_and_waiting_stays_absent(tmp_path: Path) -> None:
    record(tmp_path, 50, stat(50, "x", 1, 1000, user=100))
    probe = ThreadsProbe(Pids(50), tmp_path)
    assert list(probe.read(0.0)) == []
    record(tmp_path, 50, stat(50, "x", 1, 1000, user=107))
    (row,) = [row for row in probe.read(2.0) if isinstance(row, ThreadRow)]
    assert (row.cpu_us, row.wait_us, row.slices, row.state, row.core) == (70_000, None, None, "S", 1)
    assert [each.what for each in probe.unseen()] == ["threads' waiting for a core"]
    probe.close()


def test_totals_that_go_back_begin_anew(tmp_path: Path) -> None:
    record(tmp_path, 50, stat(50, "x", 1, 1000), "5000000 700000 9\n")
    probe = ThreadsProbe(Pids(50), tmp_path)
    probe.read(0.0)
    for schedstat, expected in (
        ("9000000 800000 11\n", (4000, 100, 2)),
        ("1000 0 1\n", None),
        ("3000000 2000 3\n", (2999, 2, 2)),
    ):
        record(tmp_path, 50, stat(50, "x", 1, 1000), schedstat)
        rows = list(probe.read(probe._last_s + 2.0))
        assert [row[4:7] for row in rows] == ([expected] if expected else [])
    probe.close()


def test_all_probes_together_read_this_process_and_give_everything_back() -> None:
    tree = by_pid(os.getpid())
    before = len(list(Path("/proc/self/fd").iterdir()))
    probes = system_probes(tree)
    seen = set()
    for now_s in (0.0, 2.0, 4.0):
        for probe in probes:
            seen |= {type(row) for row in probe.read(now_s)}
    assert seen >= {CoreRow, HostRow, NetworkRow, ThreadRow, ProcessRow, TaskRow}
    assert len({probe.name for probe in probes}) == len(probes) == 9
    for probe in probes:
        probe.close()
    assert len(list(Path("/proc/self/fd").iterdir())) == before


@given(st.data())
def test_damaged_files_raise_nothing_and_give_no_negative_amount(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    proc = tmp_path_factory.mktemp("proc")
    record(proc, 50, stat(50, "x", 1, 1000), "5000000 700000 9\n")
    (proc / "50" / "io").write_text("rchar: 5\nwchar: 6\nread_bytes: 7\nwrite_bytes: 8\n")
    tree = ProcessTree([50], proc)
    probes = [ThreadsProbe(tree, proc), ProcessesProbe(tree, proc)]
    files = sorted(file for file in proc.rglob("*") if file.is_file())
    for now_s in (0.0, 2.0, 4.0, 6.0):
        rows = [row for probe in probes for row in probe.read(now_s)]
        for row in rows:
            assert all(value is None or value >= 0 for value in row if not isinstance(value, str))
        file = data.draw(st.sampled_from(files))
        raw = bytearray(file.read_bytes())
        if raw:
            raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.sampled_from(b"\0\n -9:.\xff(_"))
        file.write_bytes(raw[: data.draw(st.integers(0, len(raw)))] if data.draw(st.booleans()) else raw)
        tree.refresh()
    for probe in probes:
        probe.close()


# --- finding what to watch ---------------------------------------------------------------------------------------------------


def test_wrong_targets_are_told_with_what_to_do() -> None:
    with program(ECHO) as ended:
        ended.hear()
        ended.process.kill()
        until(lambda: _state(Path(f"/proc/{ended.pid}")) == "Z", "the end of it")
        with pytest.raises(UsageError, match=f"{ended.pid} has ended"):
            by_pid(ended.pid)
    with program(SPINNER) as spinner:
        tid = int(spinner.hear())
        with pytest.raises(UsageError, match=f"thread of process {spinner.pid}; .*--pid {spinner.pid}"):
            by_pid(tid)
    with pytest.raises(UsageError, match="no process 4194305"):
        by_pid(4194305)
    with pytest.raises(UsageError, match="no control group /no/such"):
        by_cgroup("/no/such")
    with pytest.raises(UsageError, match="outside 1 to 65535"):
        by_port(70_000)

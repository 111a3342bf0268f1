"""What the Python threads of the service are doing and which holds the interpreter's lock, by py-spy."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from functools import lru_cache
from pathlib import Path
from typing import Any

import orjson

from headrace.clock import monotonic_s
from headrace.probe.probe import Row, Watched
from headrace.probe.unseen import UnseenOnce
from headrace.records.capture import Unseen
from headrace.records.rows.service import StackRow

TIMEOUT_S = 5.0
RETRY_S = 60.0
"""A process that is no Python may become one (a shell that execs), and one that is starting is none yet."""
MOST_SHARE = 0.01
"""Of one core, for py-spy and for reading what it says: a service of many threads is asked less often."""
MOST_BYTES = 8 * 2**20
MOST_THREADS = 512
MOST_FRAMES = 64
"""The innermost are kept: they say what the thread does, the outermost only who started it."""
MOST_CHARACTERS = 120
"""Of one function's or thread's name."""

_UNSAFE = re.compile(r"[;\x00-\x1f\x7f-\x9f\u2028\u2029]")
"""Would break a line, a stack at its semicolons, or a terminal."""

_TOO_LONG = f"its stacks take more than {MOST_BYTES >> 20} MiB"
_ALLOW = (
    "run headrace as the service's user or as root; in a container add the capability SYS_PTRACE; "
    "on a machine of your own `sysctl kernel.yama.ptrace_scope=0` allows it until the next start"
)


class StackProbe:
    """One `StackRow` a Python thread, of one watched process after the other: at each reading one is asked.

    So the cost does not grow with the number of processes, and a process among `n` is seen every `n * period_s`. py-spy runs beside the
    sampler and is waited for by nobody: what it found comes with a later reading, under the time it was started.

    By default the service is not stopped while its stacks are read; a stack that changed meanwhile may then be wrong or missing, which a
    few hundred samples bear. `pauses=True` stops the process for each (some milliseconds) and reads true stacks.
    """

    name = "stacks"

    def __init__(
        self, watched: Watched, *, period_s: float = 1.0, pauses: bool = False, program: str | None = None
    ) -> None:
        self.period_s = period_s
        self.child_cpu_s = 0.0
        """CPU time of all py-spy runs so far; not part of the sampler's own."""
        self._watched = watched
        self._program = program or _find_program()
        self._options = () if pauses else ("--nonblocking",)
        self._dump: _Dump | None = None
        self._rest_until_s = 0.0
        self._asked: dict[int, float] = {}
        self._not_before: dict[int, float] = {}
        self._unseen = UnseenOnce(self.name)
        if self._program is None:
            self._unseen.add("Python stacks", "py-spy is not installed: pip install py-spy")

    def read(self, now_s: float) -> Iterable[Row]:
        rows = () if self._dump is None or not self._dump.ended() else self._collect(self._dump)
        if self._dump is None and now_s >= self._rest_until_s:
            self._start(now_s)
        return rows

    def unseen(self) -> Sequence[Unseen]:
        return self._unseen.all()

    def close(self) -> None:
        if self._dump is not None:
            self._dump.discard()
            self.child_cpu_s += self._dump.cpu_s
            self._dump = None
        self._program = None

    def _start(self, now_s: float) -> None:
        """Asks the process that waited longest."""
        alive = self._watched.pids
        self._asked = {pid: asked_s for pid, asked_s in self._asked.items() if pid in alive}
        self._not_before = {pid: t_s for pid, t_s in self._not_before.items() if pid in alive and t_s > now_s}
        turn = sorted(alive - self._not_before.keys(), key=lambda pid: (self._asked.get(pid, -1.0), pid))
        if not turn or self._program is None:
            return
        self._asked[turn[0]] = now_s
        command = (self._program, "dump", "--json", *self._options, "--pid", str(turn[0]))
        try:
            self._dump = _Dump(command, turn[0], now_s)
        except OSError as error:
            self._program = None
            self._unseen.add("Python stacks", f"{command[0]} cannot be run: {error.strerror}")

    def _collect(self, dump: _Dump) -> Sequence[StackRow]:
        begun_s = time.thread_time()
        self._dump = None
        self.child_cpu_s += dump.cpu_s
        output, complaint = dump.results()
        rows: Sequence[StackRow] = ()
        if dump.code != 0 or dump.stopped is not None:
            self._failed(dump, complaint)
        else:
            try:
                rows = self._rows(dump, output)
            except (ValueError, TypeError, KeyError, AttributeError):
                what = f"Python stacks of process {dump.pid}"
                self._unseen.add(what, "py-spy's answer is not what this version reads")
        cpu_s = dump.cpu_s + time.thread_time() - begun_s
        self._rest_until_s = dump.started_s + cpu_s / MOST_SHARE
        return rows

    def _rows(self, dump: _Dump, output: bytes) -> list[StackRow]:
        threads = orjson.loads(output)
        if len(threads) > MOST_THREADS:
            self._unseen.add(
                f"threads of process {dump.pid}", f"it has {len(threads)}, {MOST_THREADS} are kept"
            )
        return [_row(thread, dump) for thread in threads[:MOST_THREADS]]

    def _failed(self, dump: _Dump, complaint: str) -> None:
        what = f"Python stacks of process {dump.pid}"
        if dump.stopped is not None:
            self._unseen.add(what, dump.stopped)
        elif "permission denied" in complaint.lower():
            self._not_before[dump.pid] = dump.started_s + RETRY_S
            self._unseen.add(what, f"this user may not look into it: {_ALLOW}")
        elif "python version" in complaint or "Failed to find a python interpreter" in complaint:
            self._not_before[dump.pid] = dump.started_s + RETRY_S
            self._unseen.add(what, "it is no Python program, or of a version that py-spy does not know")
        elif Path(f"/proc/{dump.pid}").exists():
            self._unseen.add(what, f"py-spy failed, and is tried again: {_harmless(complaint)}")


class _Dump:
    """One run of py-spy. Its output goes to files without names, so that nobody has to read along."""

    def __init__(self, command: Sequence[str], pid: int, started_s: float) -> None:
        """Raises OSError."""
        self.pid = pid
        self.started_s = started_s
        self.code: int | None = None
        self.stopped: str | None = None
        self.cpu_s = 0.0
        self._deadline_s = monotonic_s() + TIMEOUT_S
        with ExitStack() as files:
            self._output = files.enter_context(tempfile.TemporaryFile())
            self._errors = files.enter_context(tempfile.TemporaryFile())
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=self._output, stderr=self._errors
            )
            self._files = files.pop_all()

    def ended(self) -> bool:
        """Whether it is over; what takes too long or says too much is made to be."""
        if self.code is None and not self._reap(os.WNOHANG):
            if monotonic_s() > self._deadline_s:
                self.kill(f"py-spy was not done after {TIMEOUT_S:g} s")
            elif self._too_long():
                self.kill(_TOO_LONG)
        elif self._too_long():
            self.stopped = _TOO_LONG
        return self.code is not None

    def _too_long(self) -> bool:
        return os.fstat(self._output.fileno()).st_size > MOST_BYTES

    def kill(self, why: str | None = None) -> None:
        """A process that py-spy held is let go by the kernel when py-spy ends."""
        self.stopped = why
        if self.code is None:
            self._process.kill()
            self._reap(0)

    def results(self) -> tuple[bytes, str]:
        """Standard output and the first line of standard error; once."""
        self._output.seek(0)
        self._errors.seek(0)
        output = self._output.read(MOST_BYTES)
        complaint = self._errors.read(4096).decode("utf-8", "replace").strip().partition("\n")[0]
        self._files.close()
        return output, complaint

    def discard(self) -> None:
        self.kill()
        self._files.close()

    def _reap(self, options: int) -> bool:
        try:
            pid, status, usage = os.wait4(self._process.pid, options)
        except (
            ChildProcessError
        ):  # Whoever started headrace lets the kernel reap (SIGCHLD ignored): its end is not told.
            self.code = self._process.returncode = 0
            return True
        if pid == 0:
            return False
        self.cpu_s = usage.ru_utime + usage.ru_stime
        self.code = self._process.returncode = os.waitstatus_to_exitcode(status)
        return True


def _find_program() -> str | None:
    beside = Path(sys.executable).with_name("py-spy")
    return str(beside) if beside.is_file() else shutil.which("py-spy")


def _row(thread: dict[str, Any], dump: _Dump) -> StackRow:
    frames = thread["frames"]
    stack = [_frame(frame) for frame in reversed(frames[:MOST_FRAMES])]
    if len(frames) > MOST_FRAMES:
        stack.insert(0, "...")
    number = thread["os_thread_id"]
    return StackRow(
        t_s=dump.started_s,
        pid=dump.pid,
        tid=None if number is None else int(number),
        thread=_harmless(thread["thread_name"] or ""),
        active=None if number is None else bool(thread["active"]),
        holds_gil=bool(thread["owns_gil"]),
        stack=";".join(stack),
    )


def _frame(frame: dict[str, Any]) -> str:
    return _frame_text(frame["name"], frame["short_filename"] or frame["filename"] or "", int(frame["line"]))


@lru_cache(4096)
def _frame_text(function: str, file: str, line: int) -> str:
    """Kept, because the same few frames come again and again."""
    return f"{_harmless(function)} ({_harmless(file)}:{line})"


def _harmless(text: str) -> str:
    return _UNSAFE.sub("_", text)[:MOST_CHARACTERS]

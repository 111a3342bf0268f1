"""`python -m bench.measuring`: what measuring costs and how exact it is; writes docs/cost-of-measuring.md.

The recorder is the real command, watched from outside: its CPU time is the kernel's account of that process, not its own.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from PIL import Image

from bench.process import Worker, cost, peak_bytes
from bench.report import machine
from headrace.records.rows.process import ThreadRow
from headrace.records.rows.service import ProbeRow
from headrace.store.captures.reader import Capture

PAGE = Path("docs/cost-of-measuring.md")
WARM_UP_S = 3.0
"""Starting up, importing and opening 500 files is not the cost of watching."""

SERVICES = {
    "500 threads, all asleep": ("500", "0", "0"),
    "500 threads: 16 wake 50/s, 100 wake 10/s": ("384", "16", "100"),
    "5000 threads: 16 wake 50/s, 100 wake 10/s": ("4884", "16", "100"),
}


HEAD = """# What measuring costs

Made by `python -m bench.measuring`; the command writes this page anew.
"""

WATCHING = """## Watching a service: `headrace record`, 5 readings a second

CPU is the recorder's, as a share of one core, by the kernel's account; beside it what the capture itself says. The loop is what one
would write around psutil to read the CPU times of threads and cores alone, at the same rate.

| service | CPU | as it says itself | psutil loop | missed | latest | thread rows/s | disk, an hour | peak memory |
|---|---:|---:|---:|---:|---:|---:|---:|---:|"""


LOADING = """## Loading a service: `headrace load` on one core

Small bodies (a JPEG of 48x48) to a server on the other cores that answers as soon as a request is complete. Rate error is the worst of all
rounds, sent against intended; late is more than 10 ms.

| rate | rate error | late | own CPU, of its core | p50 ms | p99 ms | valid runs |
|---|---:|---:|---:|---:|---:|---:|"""


@dataclass(frozen=True, slots=True)
class Watched:
    """One recording of one service."""

    cpu_share: float
    """Of one core, by the kernel's account."""
    own_share: float
    """Of one core, as the capture says."""
    missed: int
    readings: int
    latest_ms: float
    thread_rows: int
    bytes_an_hour: float
    peak_bytes: int


@dataclass(frozen=True, slots=True)
class Loaded:
    """One load run on one core."""

    rate_error: float
    """Sent against asked for, after the warm-up."""
    late: int
    requests: int
    own_share: float
    """Of its core."""
    p50_ms: float
    p99_ms: float
    valid: bool


LOADS = {"2,000/s": "2000", "Poisson, 2,000/s": "poisson:2000", "4,000/s": "4000"}


def main() -> None:
    parser = argparse.ArgumentParser("python -m bench.measuring")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=20.0)
    options = parser.parse_args()
    found: dict[str, list[Watched]] = {name: [] for name in SERVICES}
    loops: dict[str, list[float]] = {name: [] for name in SERVICES}
    loads: dict[str, list[Loaded]] = {name: [] for name in LOADS}
    for _ in range(options.rounds):
        for name, threads in SERVICES.items():
            service = Worker("bench.workers.many_threads", *threads)
            try:
                found[name].append(_record(service.pid, options.seconds))
                loops[name].append(_usual_loop(service.pid, options.seconds))
            finally:
                service.close()
        for name, rate in LOADS.items():
            loads[name].append(_load(rate, options.seconds))
    lines = [HEAD, f"Machine: {machine()}. {options.rounds} rounds of {options.seconds:g} s each, medians.\n"]
    lines += [WATCHING, *_watching(found, loops, options.seconds), "", LOADING, *_loading(loads)]
    PAGE.write_text("\n".join(lines) + "\n", "utf-8")
    print(PAGE)


def _load(rate: str, seconds: float) -> Loaded:
    """The command on one core, the server on the others."""
    server = Worker("bench.workers.small_answers")
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(server.pid, cores[1:] or cores)
    with tempfile.TemporaryDirectory() as folder:
        image = Path(folder) / "small.jpg"
        Image.new("RGB", (48, 48)).save(image)
        url = f"http://127.0.0.1:{server.hello['port']}/"
        command = [
            sys.executable,
            "-m",
            "headrace.cli.main",
            "load",
            url,
            "--images",
            str(image),
            "--rate",
            rate,
        ]
        command = ["taskset", "-c", str(cores[0]), *command, "--for", f"{seconds}s", "--json"]
        try:
            told = json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=False).stdout)
        finally:
            server.close()
    phase = told["phases"][0]
    sent_s = phase["last_start_s"] - phase["began_s"]
    return Loaded(
        rate_error=abs(phase["sent"] / max(phase["duration_s"], sent_s) / phase["rates"]["intended"] - 1),
        late=phase["late"],
        requests=phase["intended"],
        own_share=phase["own_cpu_ratio"],
        p50_ms=phase["latency_ms"]["p50"],
        p99_ms=phase["latency_ms"]["p99"],
        valid=told["valid"],
    )


def _record(pid: int, seconds: float) -> Watched:
    with tempfile.TemporaryDirectory() as folder:
        capture = Path(folder) / "capture"
        command = [
            sys.executable,
            "-m",
            "headrace.cli.main",
            "record",
            "--pid",
            str(pid),
            "--for",
            f"{seconds + WARM_UP_S}s",
        ]
        process = subprocess.Popen([*command, "-o", str(capture)], stdout=subprocess.DEVNULL)
        share, peak = _watch(process, seconds, lambda: peak_bytes(process.pid))
        told = Capture.open(capture)
        own = told.columns(ProbeRow)
        everything = own["probe"] == "sampler"
        size = sum(path.stat().st_size for path in capture.iterdir())
        return Watched(
            cpu_share=share,
            own_share=float(own["cpu_us"][everything].sum() * 1e-6 / own["window_s"][everything].sum()),
            missed=int(own["missed"][everything].sum()),
            readings=int(own["readings"][everything].sum()),
            latest_ms=float(own["late_us"][everything].max() * 1e-3),
            thread_rows=told.rows(ThreadRow),
            bytes_an_hour=size / (seconds + WARM_UP_S) * 3600,
            peak_bytes=peak,
        )


def _watch(process: subprocess.Popen[bytes], seconds: float, peak: Callable[[], int]) -> tuple[float, int]:
    """CPU share of the process after its warm-up, and its largest resident memory."""
    _sleep(WARM_UP_S)
    before = cost(process.pid).cpu_s
    _sleep(seconds - 1.0)
    share, most = (cost(process.pid).cpu_s - before) / (seconds - 1.0), peak()
    if process.wait(60) != 0:
        raise RuntimeError(f"the recorder ended with {process.returncode}")
    return share, most


def _sleep(seconds: float) -> None:
    subprocess.run(["sleep", str(seconds)], check=True)


_LOOP = """
import sys, time, psutil
process, end, next_s = psutil.Process(int(sys.argv[1])), time.monotonic() + float(sys.argv[2]), time.monotonic()
while time.monotonic() < end:
    process.threads(); process.cpu_times(); psutil.cpu_times(percpu=True); psutil.virtual_memory()
    next_s += 0.2
    time.sleep(max(0.0, next_s - time.monotonic()))
"""


def _usual_loop(pid: int, seconds: float) -> float:
    """Share of a core that the obvious loop around psutil takes at the same rate, for CPU times of threads and cores alone."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-c", _LOOP, str(pid), str(seconds)], check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) / seconds


def _watching(
    found: dict[str, list[Watched]], loops: dict[str, list[float]], seconds: float
) -> Iterator[str]:
    for name, rows in found.items():
        yield _line(
            name,
            f"**{median(row.cpu_share for row in rows):.2%}**",
            f"{median(row.own_share for row in rows):.2%}",
            f"{median(loops[name]):.1%}",
            f"{sum(row.missed for row in rows)} of {sum(row.readings for row in rows)}",
            f"{max(row.latest_ms for row in rows):.0f} ms",
            f"{median(row.thread_rows for row in rows) / (seconds + WARM_UP_S):.0f}",
            f"{median(row.bytes_an_hour for row in rows) / 1e6:.1f} MB",
            f"{max(row.peak_bytes for row in rows) / 2**20:.0f} MiB",
        )


def _loading(loads: dict[str, list[Loaded]]) -> Iterator[str]:
    for name, rows in loads.items():
        yield _line(
            name,
            f"**{max(row.rate_error for row in rows):.3%}**",
            f"{sum(row.late for row in rows)} of {sum(row.requests for row in rows):,}",
            f"{median(row.own_share for row in rows):.0%}",
            f"{median(row.p50_ms for row in rows):.2f}",
            f"{median(row.p99_ms for row in rows):.2f}",
            f"{sum(row.valid for row in rows)} of {len(rows)}",
        )


def _line(*cells: str) -> str:
    return "| " + " | ".join(cells) + " |"


if __name__ == "__main__":
    main()

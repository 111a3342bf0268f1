"""The tables of the performance page."""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from statistics import median


@dataclass(frozen=True, slots=True)
class Row:
    """One contestant in one round."""

    rate: float
    cpu_ms: float
    faults: float
    peak_bytes: int
    p50_ms: float | None
    p99_ms: float | None
    failed: int


Table = tuple[str, str, list[tuple[str, float, list[Row]]]]

HEAD = """# Performance

Made by `make bench` in one run on one machine; the command writes this page anew. Ratios are the figures to read: every round
runs all contestants one after another (the next round in reverse), a ratio is the median over rounds of the paired ratios. Rates
depend on the machine and on its neighbours.

- **Floor**: a bare loop of scaled decode and resize on as many threads as cores. No HTTP, no checks, no batches.
- Load generator, server and device share the machine. The accelerator is **emulated** everywhere on this page: it takes the time stated and
  computes nothing, so these figures are about pipelines, never about a model.
- The files are real photographs at 4000x3000, 4:2:0, 2.4 to 3.4 MB as JPEG, 8 to 12 MB as PNG; the small ones are the same pictures
  at 256x256.
- CPU and faults (minor, all threads) are of the server process, per image; peak is its largest resident memory within a round; latency is
  measured by the client, closed loop, 16 connections.
- The legacy path is one preparation thread with full decode in Pillow, antialiased resize, float normalise and transpose on the
  CPU. The OpenCV row does the same with OpenCV and its usual bilinear resize, which aliases: fewer cycles for worse pixels.
- The rival is FastAPI with a thread pool around this project's own decoder, resizer and device, as good as an afternoon makes it.
"""


def write(tables: Sequence[Table], rounds: int, seconds: float) -> str:
    """Markdown."""
    parts = [HEAD, f"Machine: {machine()}. {rounds} rounds of {seconds:g} s a contestant.\n"]
    for title, baseline, rows in tables:
        parts.append(f"## {title}\n\nRatio against *{baseline}*.\n")
        parts.append(
            "| contestant | ratio | images/s (min-max) | CPU ms | p50 ms | p99 ms | peak MiB | faults |"
        )
        parts.append("|---|---:|---:|---:|---:|---:|---:|---:|")
        parts += [_line(name, ratio, rounds) for name, ratio, rounds in rows]
        parts.append("")
    return "\n".join(parts)


def _line(name: str, ratio: float, rounds: Sequence[Row]) -> str:
    rates = [row.rate for row in rounds]
    failed = sum(row.failed for row in rounds)
    cells = [
        name + (f" (**{failed} failed**)" if failed else ""),
        f"**{ratio:.2f}**",
        f"{median(rates):.1f} ({min(rates):.1f}-{max(rates):.1f})",
        f"{median(row.cpu_ms for row in rounds):.2f}",
        _time([row.p50_ms for row in rounds]),
        _time([row.p99_ms for row in rounds]),
        f"{median(row.peak_bytes for row in rounds) / 2**20:.0f}",
        f"{median(row.faults for row in rounds):.0f}",
    ]
    return "| " + " | ".join(cells) + " |"


def _time(values: Sequence[float | None]) -> str:
    known = [value for value in values if value is not None]
    return f"{median(known):.1f}" if known else "-"


def machine() -> str:
    """Processor, cores, memory, kernel, and the libraries that matter."""
    model = next(
        (
            line.split(":", 1)[1].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if line.startswith("model name")
        ),
        platform.machine(),
    )
    memory_gib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    libraries = ", ".join(
        f"{name} {version(name)}"
        for name in ("simplejpeg", "cykooz-resizer", "pillow", "numpy", "uvicorn", "uvloop")
    )
    return (
        f"{model}, {os.cpu_count()} CPUs, {memory_gib:.0f} GiB, {platform.system()} {platform.release()}, "
        f"Python {platform.python_version()}; {libraries}"
    )

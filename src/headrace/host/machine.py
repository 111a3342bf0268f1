"""What machine this is, for the manifest of a capture."""

from __future__ import annotations

import os
import platform
from pathlib import Path
from typing import Any


def boot_id(proc: Path = Path("/proc")) -> str | None:
    """Names this boot: captures with the same one share the monotonic clock. None where the system tells none."""
    return _line(proc / "sys/kernel/random/boot_id")


def checked_out_commit(inside: Path) -> str | None:
    """The commit that a folder's repository has checked out; None outside of one, as where a package is installed."""
    for folder in inside.parents:
        head = _line(folder / ".git" / "HEAD")
        if head is not None:
            name = head.removeprefix("ref: ")
            return head if name == head else _line(folder / ".git" / name)
    return None


def machine_facts(proc: Path = Path("/proc")) -> dict[str, Any]:
    """Cores, memory, kernel; what cannot be read is None."""
    return {
        "cores": os.cpu_count(),
        "usable_cores": _affinity(),
        "processor": _processor(proc),
        "memory_bytes": _memory_bytes(proc),
        "kernel": platform.release(),
        "system": platform.system(),
        "python": platform.python_version(),
    }


def _affinity() -> int | None:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None


def _processor(proc: Path) -> str | None:
    return _after(proc / "cpuinfo", "model name")


def _memory_bytes(proc: Path) -> int | None:
    value = (_after(proc / "meminfo", "MemTotal") or "").split()
    return int(value[0]) * 1024 if value and value[0].isdecimal() else None


def _after(path: Path, name: str) -> str | None:
    try:
        with path.open(errors="replace") as file:
            return next((line.partition(":")[2].strip() for line in file if line.startswith(name)), None)
    except OSError:
        return None


def _line(path: Path) -> str | None:
    try:
        return path.read_text(errors="replace").strip() or None
    except OSError:
        return None

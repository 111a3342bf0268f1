"""Reading the text of /proc and /sys: what is cut or damaged gives nothing, never a wrong number.

Every file read here ends its lines with a newline, so a last line without one was cut and is left out.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from typing import NamedTuple

TICK_US = 1_000_000 // os.sysconf("SC_CLK_TCK")
"""The unit of CPU times in `stat` files."""

_MOST_DIGITS = 18
"""More would not fit 64 bits."""


def whole_lines(raw: bytes) -> list[bytes]:
    """The lines that were not cut."""
    return raw.split(b"\n")[:-1]


def number(field: bytes | None) -> int | None:
    """A whole number that is not negative and fits 64 bits, written in digits alone."""
    return int(field) if field is not None and field.isdigit() and len(field) <= _MOST_DIGITS else None


def numbers(fields: list[bytes]) -> tuple[int, ...] | None:
    """All of them, or None when one is no number."""
    found = [value for field in fields if (value := number(field)) is not None]
    return tuple(found) if len(found) == len(fields) else None


def keyed(raw: bytes, names: Iterable[bytes], separator: bytes = b" ") -> dict[bytes, int]:
    """The numbers of lines that begin with a name, as in `vmstat`, `io` and `cpu.stat`. Names that are not there have none."""
    text = b"\n" + raw
    found = {}
    for name in names:
        head = b"\n" + name + separator
        start, end = text.find(head), -1
        if start >= 0:
            end = text.find(b"\n", start + len(head))
        fields = text[start + len(head) : end].split(None, 1) if end >= 0 else []
        if fields and (value := number(fields[0])) is not None:
            found[name] = value
    return found


def stat_fields(raw: bytes) -> list[bytes]:
    """The fields of a `stat` file, numbered as in proc_pid_stat(5): [1] pid, [2] name, [3] state. Empty when it was cut."""
    opened, closed = raw.find(b" ("), raw.rfind(b") ")
    if not raw.endswith(b"\n") or not 0 < opened < closed:
        return []
    fields = [b"", raw[:opened], raw[opened + 2 : closed], *raw[closed + 2 :].split()]
    return fields if len(fields) > 40 and len(fields[3]) == 1 and fields[3].isalpha() else []


class ThreadStat(NamedTuple):
    """What is used of a thread's `stat` file."""

    name: bytes
    state: str
    core: int
    system: int
    """Ticks in the kernel."""
    minor: int
    major: int


def thread_stat(raw: bytes) -> ThreadStat | None:
    """A thread's `stat` file, in half the time that `stat_fields` takes; None when it was cut or damaged."""
    opened, closed = raw.find(b"("), raw.rfind(b") ")
    fields = raw[closed + 2 :].split(None, 37)
    if len(fields) < 38 or opened < 0 or raw[-1:] != b"\n":
        return None
    try:
        return ThreadStat(
            raw[opened + 1 : closed],
            fields[0].decode(),
            int(fields[36]),
            int(fields[12]),
            int(fields[7]),
            int(fields[9]),
        )
    except ValueError:
        return None


def thread_totals(raw: bytes) -> tuple[int, int, int] | None:
    """Ns on a core, ns waiting for one, and times it was put on one, by a `schedstat` file; None when it was cut or damaged."""
    try:
        on_core, waiting, slices = raw.split()
        return (int(on_core), int(waiting), int(slices)) if raw[-1:] == b"\n" else None
    except ValueError:
        return None


_CORES = re.compile(rb"[0-9][0-9,-]*")
_ALLOWED = re.compile(rb"\nCpus_allowed_list:\t([0-9][0-9,-]*)\n")


def core_list(raw: bytes) -> str | None:
    """A list of cores such as `0-3,8`; None for anything else."""
    return raw.decode() if _CORES.fullmatch(raw) else None


def allowed_cores(status: bytes) -> str | None:
    """The cores a process or thread may run on, by its `status` file."""
    found = _ALLOWED.search(status)
    return found[1].decode() if found else None


def readable(raw: bytes) -> str:
    """Text for people: bytes that are none, and characters that steer a terminal, become `?`."""
    text = raw.decode(errors="replace")
    return text if text.isprintable() else "".join(sign if sign.isprintable() else "?" for sign in text)

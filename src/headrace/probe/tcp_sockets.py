"""TCP sockets as the text tables of /proc tell them, and which of them a process holds."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from headrace.probe.proc_text import whole_lines
from headrace.probe.readings import names_in

LISTEN = 10
SPENT = frozenset({6, 7, 12})
"""States (the kernel's tcp_states.h) of sockets that carry nothing: waiting for stray packets, closed, and not yet open."""


class TcpSocket(NamedTuple):
    """One TCP socket at one moment. Totals since it was opened are None where only text tells of it."""

    identity: int
    """Never two sockets have the same at once."""
    inode: int
    """By which processes know it; 0 when none holds it any more."""
    state: int
    local_port: int
    remote_port: int
    receive_queue: int
    send_queue: int
    uid: int | None = None
    sent_bytes: int | None = None
    received_bytes: int | None = None
    retransmits: int | None = None
    round_trip_us: int | None = None


_LINE = re.compile(
    rb"\s*\d+: [0-9A-F]+:([0-9A-F]{4}) [0-9A-F]+:([0-9A-F]{4}) ([0-9A-F]{2}) ([0-9A-F]{8}):([0-9A-F]{8})"
    rb" \S+ \S+ +(\d{1,10}) +\d+ (\d{1,18}) "
)
"""Local and remote port, state, send and receive queue, user, inode (proc_net(5))."""


def parse_tcp_table(raw: bytes) -> Iterator[TcpSocket]:
    """The sockets of `/proc/net/tcp` or `tcp6`; lines that are damaged are left out."""
    for line in whole_lines(raw):
        if found := _LINE.match(line):
            local, remote, state, send, receive = (int(found[i], 16) for i in range(1, 6))
            uid, inode = int(found[6]), int(found[7])
            yield TcpSocket(inode, inode, state, local, remote, receive, send, uid)


def socket_inodes(process: Path | str) -> set[int]:
    """The sockets of all kinds that a process (`/proc/PID`) holds. Raises OSError: it is gone or another user's."""
    found = set()
    folder = os.open(f"{process}/fd", os.O_RDONLY | os.O_DIRECTORY)
    try:
        for name in names_in(folder):
            try:
                target = os.readlink(name, dir_fd=folder)
            except FileNotFoundError:
                continue
            if target.startswith("socket:[") and target[8:-1].isdecimal():
                found.add(int(target[8:-1]))
    finally:
        os.close(folder)
    return found

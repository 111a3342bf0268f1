"""TCP sockets as the kernel's socket monitor tells them (sock_diag(7)): with bytes, retransmits and round trips, and no root needed."""

from __future__ import annotations

import ctypes
import errno
import os
import socket
import struct
from collections.abc import Callable
from threading import Thread

from headrace.probe.tcp_sockets import SPENT, TcpSocket

_SOCK_DIAG, _ERROR, _DONE, _DUMP = 4, 2, 3, 0x301
_TCP = 18
"""The older of two kinds of request: it walks the kernel's table once for v4 and v6, and that walk is what costs, not the sockets."""
_INFO = 2
"""The attribute that holds `struct tcp_info`."""
_STATES = sum(1 << state for state in range(1, 12) if state not in SPENT)
_HEADER = struct.Struct("=IHHII")
_REQUEST = _HEADER.pack(76, _TCP, _DUMP, 0, 0) + struct.pack("=3xB48xI4x", 1 << (_INFO - 1), _STATES)
"""`struct inet_diag_req`: what else to tell, and the states of interest."""
_MESSAGE = struct.Struct("=4B 2s2s 16s16s I Q 5I")
"""`struct inet_diag_msg`: family, state, timer, retransmits; ports; addresses; interface; cookie; expiry, queues, user, inode."""
_ROUND_TRIP, _RETRANSMITS, _ACKED = struct.Struct("=I"), struct.Struct("=I"), struct.Struct("=QQ")
_ROUND_TRIP_AT, _RETRANSMITS_AT, _ACKED_AT = 68, 100, 120
"""Places in `struct tcp_info`, the same on all machines and since Linux 4.2."""
_PIECE_BYTES = 1 << 16
_CLONE_NEWNET = 0x40000000


class SocketMonitor:
    """Asks the kernel for all TCP sockets of a network name space."""

    def __init__(self, netns: str | None = None) -> None:
        """`netns` is the file of another name space (`/proc/PID/ns/net`), which only root may enter.

        Raises OSError: refused, or not in this kernel.
        """
        self._socket = _open() if netns is None else _opened_inside(netns)
        self._socket.settimeout(1.0)
        self._buffer = bytearray(_PIECE_BYTES)

    def sockets(self, wanted: Callable[[int, int], bool]) -> list[TcpSocket]:
        """The sockets for which `wanted(inode, local port)` holds. Raises OSError."""
        self._socket.send(_REQUEST)
        all_found: list[TcpSocket] = []
        more = True
        while more:
            length = self._socket.recv_into(self._buffer)
            found, more = parse_messages(memoryview(self._buffer)[:length], wanted)
            all_found += found
        return all_found

    def close(self) -> None:
        self._socket.close()


def parse_messages(raw: memoryview, wanted: Callable[[int, int], bool]) -> tuple[list[TcpSocket], bool]:
    """The wanted sockets in one piece of the answer, and whether more pieces follow. What is cut is left out.

    Raises OSError: the kernel refused.
    """
    found: list[TcpSocket] = []
    at = 0
    while at + _HEADER.size <= len(raw):
        length, kind, *_ = _HEADER.unpack_from(raw, at)
        if kind == _DONE:
            return found, False
        body = raw[at + _HEADER.size : at + length]
        if kind == _ERROR:
            code = -struct.unpack_from("=i", body)[0] if len(body) >= 4 else 0
            raise OSError(code, os.strerror(code))
        if not _HEADER.size < length <= len(raw) - at:
            return found, False
        if kind == _TCP and len(body) >= _MESSAGE.size and (tcp := _socket(body, wanted)):
            found.append(tcp)
        at += (length + 3) & ~3
    return found, True


def _socket(body: memoryview, wanted: Callable[[int, int], bool]) -> TcpSocket | None:
    _, state, _, _, local, remote, _, _, _, cookie, _, receive, send, uid, inode = _MESSAGE.unpack_from(body)
    local_port = int.from_bytes(local)
    if not wanted(inode, local_port):
        return None
    info = _attribute(body[_MESSAGE.size :], _INFO)
    if info is None or len(info) < _ACKED_AT + _ACKED.size:
        totals: tuple[int | None, ...] = (None, None, None, None)
    else:
        acked, received = _ACKED.unpack_from(info, _ACKED_AT)
        (retransmits,) = _RETRANSMITS.unpack_from(info, _RETRANSMITS_AT)
        (round_trip_us,) = _ROUND_TRIP.unpack_from(info, _ROUND_TRIP_AT)
        totals = (acked, received, retransmits, round_trip_us or None)
    return TcpSocket(cookie, inode, state, local_port, int.from_bytes(remote), receive, send, uid, *totals)


def _attribute(raw: memoryview, wanted: int) -> memoryview | None:
    at = 0
    while at + 4 <= len(raw):
        length, kind = struct.unpack_from("=HH", raw, at)
        if length < 4:
            return None
        if kind == wanted:
            return raw[at + 4 : at + length]
        at += (length + 3) & ~3
    return None


def _open() -> socket.socket:
    return socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, _SOCK_DIAG)


def _opened_inside(netns: str) -> socket.socket:
    """A socket of another name space: opened by a thread that enters it and ends; all others stay where they are."""
    opened: list[socket.socket | OSError] = []

    def enter() -> None:
        try:
            fd = os.open(netns, os.O_RDONLY)
            try:
                if ctypes.CDLL(None, use_errno=True).setns(fd, _CLONE_NEWNET):
                    raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
                opened.append(_open())
            finally:
                os.close(fd)
        except OSError as error:
            opened.append(error)
        except AttributeError:
            opened.append(OSError(errno.ENOSYS, os.strerror(errno.ENOSYS)))

    thread = Thread(target=enter, name="netns")
    thread.start()
    thread.join()
    if isinstance(opened[0], OSError):
        raise opened[0]
    return opened[0]

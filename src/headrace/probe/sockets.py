"""The TCP sockets of the watched processes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from time import thread_time

from headrace.probe.probe import Watched
from headrace.probe.readings import Window, amounts, gone, reason
from headrace.probe.sock_diag import SocketMonitor
from headrace.probe.tcp_sockets import LISTEN, SPENT, TcpSocket, parse_tcp_table, socket_inodes
from headrace.probe.unseen import UnseenOnce
from headrace.records.capture import Unseen
from headrace.records.rows.process import SocketRow

_SHARE = 0.0005
"""Of one core for each of the two searches: where they cost more, they are made less often."""
_HOLDERS_PERIOD_S = 5.0
_MOST_GROUPS = 64
_NOTHING = (0, 0, 0)
_NO_TOTALS = "bytes, retransmits and round trips of the service's sockets"


class SocketsProbe:
    """TCP sockets of the watched processes by role and port: `SocketRow`.

    Every 2 s, or less often where it costs more than `_SHARE`: one look makes the kernel walk its table of all connections, which is as
    large as the machine's memory. Which sockets the service holds is looked up every 5 s; connections to its own ports are known without,
    so only its connections to others can be counted that late. What a connection moved between the last look and its end is lost.
    """

    name = "sockets"
    period_s = 2.0

    def __init__(self, watched: Watched, proc: Path = Path("/proc")) -> None:
        self._watched, self._proc = watched, proc
        self._window, self._missing = Window(), UnseenOnce(self.name)
        self._monitor: SocketMonitor | None = None
        self._netns: int | None = None
        self._text_of: int | None = None
        """Read from the text tables of this process, for want of a monitor."""
        self._inodes: set[int] = set()
        self._ports: set[int] = set()
        self._last: dict[int, tuple[int, ...]] = {}
        self._due_s = self._holders_due_s = float("-inf")

    def read(self, now_s: float) -> Iterable[SocketRow]:
        if now_s < self._due_s:
            return []
        began_s = thread_time()
        if now_s >= self._holders_due_s:
            self._find_holders()
            self._holders_due_s = now_s + max(_HOLDERS_PERIOD_S, (thread_time() - began_s) / _SHARE)
            began_s = thread_time()
        sockets = self._sockets()
        self._ports = {each.local_port for each in sockets if each.state == LISTEN}
        window_s = self._window.step(now_s)
        grown = self._grown(sockets)
        self._due_s = now_s + (thread_time() - began_s) / _SHARE
        return list(self._rows(now_s, window_s, sockets, grown))

    def unseen(self) -> Sequence[Unseen]:
        return self._missing.all()

    def close(self) -> None:
        if self._monitor is not None:
            self._monitor.close()
            self._monitor = None

    def _find_holders(self) -> None:
        """Which sockets the service holds, and in which network name space it lives."""
        self._inodes = set()
        for pid in sorted(self._watched.pids):
            try:
                self._inodes |= socket_inodes(self._proc / str(pid))
                netns = (self._proc / str(pid) / "ns" / "net").stat().st_ino
            except OSError as error:
                if not gone(error):
                    self._missing.add(f"sockets of process {pid}", reason(error))
                continue
            if self._netns is None:
                self._netns = netns
                self._open(pid, netns)
            elif netns != self._netns:
                self._missing.add(
                    f"sockets of process {pid}", "it lives in another network name space than the rest"
                )
            if self._monitor is None:
                self._text_of = pid

    def _open(self, pid: int, netns: int) -> None:
        try:
            own = netns == (self._proc / "self" / "ns" / "net").stat().st_ino
            self._monitor = SocketMonitor(None if own else f"{self._proc}/{pid}/ns/net")
        except OSError as error:
            self._missing.add(
                _NO_TOTALS,
                f"the kernel's socket monitor cannot be asked ({error.strerror}); root may be needed",
            )

    def _sockets(self) -> list[TcpSocket]:
        if self._monitor is not None:
            try:
                return self._monitor.sockets(self._wanted)
            except OSError as error:
                self._missing.add(_NO_TOTALS, reason(error))
                self.close()
                self._text_of = min(self._watched.pids, default=None)
        return [
            each
            for each in self._text_sockets()
            if each.state not in SPENT and self._wanted(each.inode, each.local_port)
        ]

    def _text_sockets(self) -> Iterator[TcpSocket]:
        for name in ("tcp", "tcp6"):
            try:
                yield from parse_tcp_table((self._proc / str(self._text_of) / "net" / name).read_bytes())
            except OSError as error:
                if not gone(error):
                    self._missing.add(f"sockets of the service ({name})", reason(error))

    def _wanted(self, inode: int, local_port: int) -> bool:
        return inode in self._inodes or local_port in self._ports

    def _grown(self, sockets: list[TcpSocket]) -> dict[int, tuple[int, ...]]:
        """Bytes sent, bytes received and retransmits of each socket since the last look: all there were if it was opened since then.

        One that is new and that nobody holds any more was closed, perhaps long ago: it counts for nothing.
        """
        last, self._last = self._last, {}
        grown = {}
        for each in sockets:
            if (
                each.sent_bytes is not None
                and each.received_bytes is not None
                and each.retransmits is not None
            ):
                now = (each.sent_bytes, each.received_bytes, each.retransmits)
                before = last.get(each.identity, _NOTHING if each.inode else now)
                grown[each.identity] = amounts(now, before) or _NOTHING
                self._last[each.identity] = now
        return grown

    def _rows(
        self,
        now_s: float,
        window_s: float | None,
        sockets: list[TcpSocket],
        grown: dict[int, tuple[int, ...]],
    ) -> Iterator[SocketRow]:
        """Without a window there are levels only: the next look may be half a minute away, and how many clients there are is known now."""
        groups: dict[tuple[str, int], list[TcpSocket]] = defaultdict(list)
        for port in self._ports:
            groups["served", port] = []
        for each in sockets:
            groups[self._role(each)].append(each)
        largest = sorted(groups.items(), key=lambda item: (item[0][0] == "asks", -len(item[1]), item[0]))
        if len(largest) > _MOST_GROUPS:
            self._missing.add("connections to some ports", f"only the {_MOST_GROUPS} busiest ports are told")
        for (role, port), members in largest[:_MOST_GROUPS]:
            totals = [grown[each.identity] for each in members if each.identity in grown]
            known = role != "listen" and self._monitor is not None and len(totals) == len(members)
            told = known and window_s is not None
            round_trips = sorted(each.round_trip_us for each in members if each.round_trip_us is not None)
            yield SocketRow(
                now_s,
                window_s or 0.0,
                role,
                port,
                sockets=len(members),
                receive_queue=sum(each.receive_queue for each in members),
                send_queue=sum(each.send_queue for each in members),
                sent_bytes=sum(each[0] for each in totals) if told else None,
                received_bytes=sum(each[1] for each in totals) if told else None,
                retransmits=sum(each[2] for each in totals) if told else None,
                round_trip_us=round_trips[len(round_trips) // 2] if known and round_trips else None,
            )

    def _role(self, each: TcpSocket) -> tuple[str, int]:
        if each.state == LISTEN:
            return "listen", each.local_port
        if each.local_port in self._ports:
            return "served", each.local_port
        return "asks", each.remote_port

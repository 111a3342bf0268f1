"""Sockets of a service: real connections, both ways of reading them, and damaged answers of the kernel."""

from __future__ import annotations

import itertools
import os
import shutil
import socket
import struct
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.server_process import free_port, until
from tests.watched_processes import Pids, program

from headrace.errors import UsageError
from headrace.probe.sock_diag import SocketMonitor, parse_messages
from headrace.probe.sockets import SocketsProbe
from headrace.probe.targets import by_port
from headrace.probe.tcp_sockets import LISTEN, parse_tcp_table, socket_inodes
from headrace.records.rows.process import SocketRow

SERVER = """
listener = socket.create_server((HOST, 0), family=socket.AF_INET6 if ':' in HOST else socket.AF_INET, backlog=7)
say(listener.getsockname()[1])
held = []
for line in sys.stdin:
    what, *words = line.split()
    if what == 'accept': held.append(listener.accept()[0])
    if what == 'read': held[-1].recv(int(words[0]), socket.MSG_WAITALL)
    if what == 'send': held[-1].sendall(b'y' * int(words[0]))
    if what == 'connect': held.append(socket.create_connection((HOST, int(words[0]))))
    if what == 'close': held.pop().close()
    if what == 'fork': held.append(subprocess.Popen(['sleep', '60'], pass_fds=[listener.fileno()]))
    if what == 'end': held.pop().kill()
    say('done')
"""
TCP_TEXT = """\
  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:1F90 00000000:0000 0A 00000000:00000005 00:00000000 00000000  1000        0 1061 1 0000000077345639 100 0 0 10 0
   1: 0100007F:1F90 0100007F:D431 01 0000000A:00000014 01:00000014 00000000     0        0 2077 1 0000000077345639 20 4 30 10 -1
"""


def server(host: str = "127.0.0.1") -> str:
    return f"HOST = {host!r}\n" + SERVER


class Looks:
    """Looks at the sockets again and again, on a clock that runs far ahead so that every look is due."""

    def __init__(self, probe: SocketsProbe) -> None:
        self.probe, self.clock = probe, itertools.count(0, 100)

    def rows(self) -> dict[tuple[str, int], SocketRow]:
        return {(row.role, row.port): row for row in self.probe.read(next(self.clock))}


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_bytes_are_told_by_role_and_survive_the_end_of_a_connection(host: str) -> None:
    if ":" in host and not Path("/proc/net/if_inet6").exists():
        pytest.skip("this machine has no IPv6")
    with program(server(host)) as service, socket.create_server(("127.0.0.1", 0)) as other:
        port = int(service.hear())
        tree = by_port(port)
        assert tree.pids == {service.pid}
        looks = Looks(SocketsProbe(tree))
        first = looks.rows()
        assert set(first) == {("listen", port), ("served", port)}, "who is there is known at once"
        assert all(row.window_s == 0 and row.sent_bytes is None for row in first.values()), (
            "nothing to compare with"
        )
        with socket.create_connection((host, port)) as client:
            waiting = looks.rows()
            assert waiting["listen", port].receive_queue == 1 and waiting["listen", port].send_queue == 7
            assert waiting["listen", port].sent_bytes is None
            service.ask("accept")
            client.sendall(b"x" * 1000)
            until(lambda: looks.rows()["served", port].receive_queue == 1000, "bytes that nobody read")
            service.ask("read 1000")
            service.ask("send 5000")
            client.recv(5000, socket.MSG_WAITALL)
            seen = looks.rows()["served", port]
            assert (seen.sockets, seen.receive_queue, seen.sent_bytes) == (1, 0, 5000)
        service.ask("close")
        until(lambda: looks.rows()["served", port].sockets == 0, "no connection")
        gone = looks.rows()["served", port]
        assert (gone.sent_bytes, gone.received_bytes, gone.retransmits, gone.round_trip_us) == (0, 0, 0, None)
        assert other.getsockname()[1] not in {each for _, each in looks.rows()}
        assert looks.probe.unseen() == ()
        looks.probe.close()


def test_all_bytes_of_a_connection_that_is_new_count_once() -> None:
    with program(server()) as service:
        port = int(service.hear())
        looks = Looks(SocketsProbe(Pids(service.pid)))
        looks.rows()
        with socket.create_connection(("127.0.0.1", port)) as client:
            service.ask("accept")
            client.sendall(b"x" * 3000)
            service.ask("read 3000")
            service.ask("send 2000")
            client.recv(2000, socket.MSG_WAITALL)
            received = sent = 0
            for _ in range(3):
                row = looks.rows()["served", port]
                received, sent = received + (row.received_bytes or 0), sent + (row.sent_bytes or 0)
                assert row.round_trip_us is not None
            assert (received, sent) == (3000, 2000)


def test_connections_to_others_are_told_by_their_port() -> None:
    with program(server()) as service, socket.create_server(("127.0.0.1", 0)) as other:
        service.hear()
        looks = Looks(SocketsProbe(Pids(service.pid)))
        looks.rows()
        theirs = other.getsockname()[1]
        service.ask(f"connect {theirs}")
        service.ask("send 700")
        with other.accept()[0] as accepted:
            accepted.recv(700, socket.MSG_WAITALL)
            asks = looks.rows()["asks", theirs]
            assert asks.sockets == 1 and 700 <= (asks.sent_bytes or 0) <= 701, "one more for the hand-shake"


def test_text_tables_say_the_same_as_the_monitor() -> None:
    with program(server()) as service, socket.socket() as client:
        port = int(service.hear())
        client.connect(("127.0.0.1", port))
        service.ask("accept")
        client.sendall(b"x" * 321)
        inodes = socket_inodes(f"/proc/{service.pid}")
        text = [each for each in parse_tcp_table(Path("/proc/net/tcp").read_bytes()) if each.inode in inodes]
        monitor = SocketMonitor()
        asked = monitor.sockets(lambda inode, _: inode in inodes)
        monitor.close()
        same = [[each[1:6] for each in sorted(found, key=lambda each: each.inode)] for found in (text, asked)]
        assert same[0] == same[1] and len(asked) == 2
        assert {each.state for each in asked} == {LISTEN, 1}


def test_without_the_monitor_there_are_queues_and_no_totals(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(netns: str | None = None) -> SocketMonitor:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr("headrace.probe.sockets.SocketMonitor", refuse)
    with program(server()) as service, socket.socket() as client:
        port = int(service.hear())
        client.connect(("127.0.0.1", port))
        service.ask("accept")
        client.sendall(b"x" * 321)
        looks = Looks(SocketsProbe(Pids(service.pid)))
        looks.rows()
        rows = looks.rows()
        served = rows["served", port]
        assert (served.sockets, served.receive_queue, served.sent_bytes, served.retransmits) == (
            1,
            321,
            None,
            None,
        )
        assert rows["listen", port].sockets == 1
        assert "root" in looks.probe.unseen()[0].why
        service.process.kill()
        service.process.wait()
        assert looks.rows() == {}


def test_a_service_in_its_own_network_is_seen_from_outside() -> None:
    if os.geteuid() != 0 or shutil.which("unshare") is None:
        pytest.skip("only root may enter another network name space")
    inside = "subprocess.run(['ip', 'link', 'set', 'lo', 'up'])\n"
    unshare = "import ctypes\nif ctypes.CDLL(None).unshare(0x40000000): sys.exit()\n"
    own = Path("/proc/self/ns/net").stat().st_ino
    connect = "client = socket.create_connection((HOST, listener.getsockname()[1])); held.append(client)\n"
    code = unshare + inside + server().replace("held = []\n", "held = []\n" + connect)
    with program(code) as service:
        port = int(service.hear())
        looks = Looks(SocketsProbe(Pids(service.pid)))
        looks.rows()
        service.ask("accept")
        rows = looks.rows()
        if looks.probe.unseen():
            pytest.skip(f"this machine lets root not enter: {looks.probe.unseen()[0].why}")
        assert rows["listen", port].sockets == rows["served", port].sockets == 1
        assert rows["served", port].sent_bytes is not None
        assert Path("/proc/self/ns/net").stat().st_ino == own, "we stayed where we were"
        with pytest.raises(UsageError, match="nothing listens"):
            by_port(port)


def test_workers_that_hold_the_socket_as_well_are_not_roots() -> None:
    with program(server()) as service:
        port = int(service.hear())
        service.ask("fork")
        tree = by_port(port)
        assert tree.roots == {service.pid} and len(tree.pids) == 2
        service.ask("end")


def test_a_port_where_nobody_listens_and_one_of_another_user() -> None:
    port = free_port()
    with pytest.raises(UsageError, match=f"nothing listens on TCP port {port}"):
        by_port(port)
    if os.geteuid() != 0:
        pytest.skip("only root can play another user")
    with program(server()) as service:
        port = int(service.hear())
        os.seteuid(65533)
        try:
            with pytest.raises(UsageError, match=f"port {port} belongs to a process of user root.*sudo"):
                by_port(port)
            looks = Looks(SocketsProbe(Pids(service.pid)))
            assert looks.rows() == looks.rows() == {}
            assert looks.probe.unseen()[0].what == f"sockets of process {service.pid}"
        finally:
            os.seteuid(0)


def test_text_cut_anywhere_tells_nothing_new() -> None:
    raw = TCP_TEXT.encode()
    whole = list(parse_tcp_table(raw))
    assert [each[1:8] for each in whole] == [
        (1061, 10, 8080, 0, 5, 0, 1000),
        (2077, 1, 8080, 54321, 20, 10, 0),
    ]
    for end in range(len(raw)):
        found = list(parse_tcp_table(raw[:end]))
        assert found == whole[: len(found)]


def answer() -> bytes:
    """An answer of the kernel's: a socket of port 8080, one of 9090, the end."""
    info = bytearray(232)
    struct.pack_into("=I", info, 68, 250)
    struct.pack_into("=I", info, 100, 3)
    struct.pack_into("=QQ", info, 120, 5000, 1000)
    attributes = struct.pack("=HHB3x", 5, 8, 0) + struct.pack("=HH", 4 + len(info), 2) + info
    messages = b""
    for port, inode in ((8080, 77), (9090, 78)):
        body = struct.pack("=4B", 2, 1, 0, 0) + struct.pack(">HH", port, 55555) + bytes(36)
        body += struct.pack("=Q5I", inode << 8, 0, 10, 20, 1000, inode) + attributes
        messages += struct.pack("=IHHII", 16 + len(body), 18, 2, 0, 0) + body
    return messages + struct.pack("=IHHIIi", 20, 3, 2, 0, 0, 0)


def all_wanted(inode: int, port: int) -> bool:
    return True


def test_an_answer_is_read_and_filtered() -> None:
    found, more = parse_messages(memoryview(answer()), lambda inode, port: port == 9090)
    assert not more
    assert [each[1:] for each in found] == [(78, 1, 9090, 55555, 10, 20, 1000, 5000, 1000, 3, 250)]


def test_an_answer_cut_anywhere_tells_nothing_new() -> None:
    raw = answer()
    whole, _ = parse_messages(memoryview(raw), all_wanted)
    assert len(whole) == 2
    for end in range(len(raw)):
        found, _ = parse_messages(memoryview(raw)[:end], all_wanted)
        assert found == whole[: len(found)]


@given(st.lists(st.tuples(st.integers(0, len(answer()) - 1), st.integers(0, 255)), min_size=1, max_size=6))
def test_a_damaged_answer_ends_in_sockets_or_in_an_error_of_the_system(damage: list[tuple[int, int]]) -> None:
    raw = bytearray(answer())
    for at, value in damage:
        raw[at] = value
    with suppress(OSError):
        parse_messages(memoryview(raw), all_wanted)


@given(st.binary(max_size=400))
def test_an_answer_of_any_bytes_ends(raw: bytes) -> None:
    with suppress(OSError):
        parse_messages(memoryview(raw), all_wanted)

"""Cores, pressure, memory, disks, networks: on recorded trees, on this machine, on damage."""

from __future__ import annotations

import errno
import itertools
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.probe.disks import DisksProbe, disk_totals
from headrace.probe.host import CoresProbe, HostProbe, PressureProbe, core_times, stall_totals
from headrace.probe.networks import NetworksProbe, interface_totals, protocol_totals
from headrace.probe.proc_text import TICK_US, keyed, number, readable, stat_fields, thread_stat, thread_totals
from headrace.probe.readings import LONGEST_WINDOW_S, Descriptors, KeptFile, Window, amounts, reason
from headrace.records.rows.host import NetworkRow, TcpRow

STAT = """\
cpu  300 0 100 5000 40 0 10 0 0 0
cpu0 100 5 50 2000 30 2 5 1 7 0
cpu1 200 0 50 3000 10 0 5 0 0 0
intr 12345 0 9 0
ctxt 1000
btime 1700000000
processes 4242
procs_running 3
procs_blocked 1
"""
PRESSURE = """\
some avg10=7.61 avg60=2.33 avg300=0.76 total=5000
full avg10=0.00 avg60=0.00 avg300=0.00 total=700
"""
MEMINFO = "MemTotal:  1000 kB\nMemFree:  100 kB\nMemAvailable:  400 kB\nSwapTotal:  50 kB\nSwapFree:  20 kB\n"
VMSTAT = "nr_free_pages 9\npswpin 1\npswpout 2\npgfault 100\npgmajfault 10\n"
DISKSTATS = """\
   7       0 loop0 5 0 40 1 0 0 0 0 0 1 1 0 0 0 0 0 0
   1       0 ram0 5 0 40 1 0 0 0 0 0 1 1
 253       0 zram0 5 0 40 1 0 0 0 0 0 1 1 0 0 0 0 0 0
 259       0 nvme0n1 100 2 8000 50 10 1 160 20 2 60 70 0 0 0 0 3 4
 259       1 nvme0n1p1 100 2 8000 50 10 1 160 20 2 60 70 0 0 0 0 3 4
 104       0 cciss/c0d0 1 0 8 1 1 0 8 1 0 2 2
"""
NET_DEV = """\
Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed
    lo: 500 5 0 0 0 0 0 0 500 5 0 0 0 0 0 0
  eth0:1000 10 1 2 0 0 0 0 2000 20 3 4 0 0 0 0
"""
SNMP = """\
Ip: Forwarding DefaultTTL
Ip: 2 64
Tcp: RtoAlgorithm MaxConn OutSegs RetransSegs InErrs OutRsts
Tcp: 1 -1 1000 10 0 7
"""
NETSTAT = "TcpExt: SyncookiesSent ListenOverflows\nTcpExt: 0 4\nIpExt: InNoRoutes\nIpExt: 0\n"


def tree(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def test_core_time_is_told_by_kind_and_only_where_it_grew(tmp_path: Path) -> None:
    probe = CoresProbe(tree(tmp_path, {"stat": STAT}))
    assert list(probe.read(0.0)) == []
    tree(tmp_path, {"stat": STAT.replace("cpu0 100 5 50 2000 30 2 5 1", "cpu0 104 6 52 2010 29 3 6 3")})
    first, second = probe.read(0.25)
    tick = TICK_US
    assert (first.t_s, first.window_s, first.core) == (0.25, 0.25, 0)
    assert (first.user_us, first.system_us, first.interrupt_us) == (5 * tick, 2 * tick, 2 * tick)
    assert (first.steal_us, first.iowait_us, first.idle_us) == (2 * tick, 0, 10 * tick)
    assert set(second[2:]) == {1, 0}


def test_a_core_that_was_away_has_no_row_until_it_can_be_compared(tmp_path: Path) -> None:
    probe = CoresProbe(tree(tmp_path, {"stat": STAT}))
    probe.read(0.0)
    tree(tmp_path, {"stat": STAT.replace("cpu1 200 0 50 3000 10 0 5 0 0 0\n", "")})
    assert [row.core for row in probe.read(1.0)] == [0]
    tree(tmp_path, {"stat": STAT})
    assert [row.core for row in probe.read(2.0)] == [0]
    tree(tmp_path, {"stat": STAT.replace("cpu1 200", "cpu1 100")})
    assert [row.core for row in probe.read(3.0)] == [0], "its user time went backwards"
    assert [row.core for row in probe.read(4.0)] == [0, 1]


def test_pressure_is_the_growth_of_the_totals(tmp_path: Path) -> None:
    files = {f"pressure/{name}": PRESSURE for name in ("cpu", "memory", "io")}
    probe = PressureProbe(tree(tmp_path, files))
    assert list(probe.read(0.0)) == []
    grown = PRESSURE.replace("=5000", "=5600").replace("=700", "=750")
    tree(tmp_path, dict.fromkeys(files, grown))
    rows = {row.resource: row for row in probe.read(0.2)}
    assert {name: (row.some_us, row.full_us) for name, row in rows.items()} == {
        "cpu": (600, None),
        "memory": (600, 50),
        "io": (600, 50),
    }, "that all of a machine's tasks lack a CPU has no meaning"
    assert {row.scope for row in rows.values()} == {"host"}
    assert probe.unseen() == ()


def test_what_is_missing_is_told_once_with_a_reason_and_never_raised(tmp_path: Path) -> None:
    probes: list[Any] = [
        CoresProbe(tmp_path),
        PressureProbe(tmp_path),
        HostProbe(tmp_path),
        DisksProbe(tmp_path, tmp_path),
        NetworksProbe(tmp_path, tmp_path),
    ]
    for probe in probes:
        assert list(probe.read(0.0)) == list(probe.read(1.0)) == []
        said = probe.unseen()
        assert said and len({each.what for each in said}) == len(said), probe.name
        assert all(each.probe == probe.name and "container" in each.why for each in said)
        probe.close()
    assert "sudo" in reason(PermissionError(errno.EACCES, "")) and "off" in reason(
        OSError(errno.EOPNOTSUPP, "")
    )


def test_host_row_leaves_absent_what_is_absent(tmp_path: Path) -> None:
    probe = HostProbe(tree(tmp_path, {"stat": STAT, "meminfo": MEMINFO, "vmstat": VMSTAT}))
    probe.read(0.0)
    tree(
        tmp_path,
        {
            "stat": STAT.replace("ctxt 1000", "ctxt 1100"),
            "vmstat": "pswpin 3\npswpout 1\npgfault 160\npgmajfault 11\n",
            "meminfo": MEMINFO.replace("SwapFree", "Swap_Free"),
        },
    )
    (row,) = probe.read(2.0)
    page = os.sysconf("SC_PAGE_SIZE")
    assert (row.memory_total_bytes, row.memory_available_bytes) == (1000 * 1024, 400 * 1024)
    assert row.swap_used_bytes is None
    assert (row.page_faults, row.major_faults, row.context_switches) == (60, 1, 100)
    assert (row.swapped_in_bytes, row.swapped_out_bytes) == (2 * page, None), "one went backwards"
    assert (row.runnable, row.blocked) == (3, 1)


def test_disks_are_whole_devices(tmp_path: Path) -> None:
    tree(tmp_path, {"diskstats": DISKSTATS})
    for name in ("loop0", "ram0", "zram0", "nvme0n1", "cciss!c0d0"):
        (tmp_path / "block" / name).mkdir(parents=True)
    probe = DisksProbe(tmp_path, tmp_path)
    assert list(probe.read(0.0)) == []
    changed = DISKSTATS.replace(
        "nvme0n1 100 2 8000 50 10 1 160 20 2 60", "nvme0n1 104 2 8008 53 12 1 176 24 5 69"
    )
    tree(tmp_path, {"diskstats": changed})
    nvme, cciss = probe.read(1.0)
    assert (nvme.device, cciss.device) == ("nvme0n1", "cciss/c0d0")
    assert (nvme.reads, nvme.read_bytes, nvme.read_wait_us) == (4, 8 * 512, 3000)
    assert (nvme.writes, nvme.written_bytes, nvme.write_wait_us) == (2, 16 * 512, 4000)
    assert (nvme.busy_us, nvme.in_flight) == (9000, 5)
    tree(tmp_path, {"diskstats": DISKSTATS})
    assert [row.device for row in probe.read(2.0)] == ["cciss/c0d0"], "the other was plugged in anew"


def test_networks_and_tcp(tmp_path: Path) -> None:
    tree(tmp_path, {"net/dev": NET_DEV, "net/snmp": SNMP, "net/netstat": NETSTAT})
    tree(tmp_path, {"class/net/eth0/speed": "10000\n", "class/net/lo/speed": "-1\n"})
    probe = NetworksProbe(tmp_path, tmp_path)
    assert list(probe.read(0.0)) == []
    tree(
        tmp_path,
        {
            "net/dev": NET_DEV.replace("eth0:1000 10 1 2", "eth0:1500 14 2 4").replace(
                "2000 20 3 4", "2900 29 3 5"
            )
        },
    )
    tree(
        tmp_path,
        {
            "net/snmp": SNMP.replace("1000 10 0 7", "1500 12 0 9"),
            "net/netstat": NETSTAT.replace("0 4", "0 3"),
        },
    )
    lo, eth0, tcp = probe.read(1.0)
    assert isinstance(lo, NetworkRow) and lo[3:] == (0, 0, 0, 0, 0, None)
    assert isinstance(eth0, NetworkRow) and eth0[2:] == ("eth0", 500, 900, 4, 9, 4, 1_250_000_000)
    assert tcp == TcpRow(1.0, 1.0, 500, 2, None, 2), "overflows went backwards"


def test_windows_end_at_breaks() -> None:
    window = Window()
    assert [window.step(at) for at in (1.0, 1.5, 1.5, 1.0, 2.0)] == [None, 0.5, None, None, 1.0]
    assert window.step(3.0 + LONGEST_WINDOW_S) is None and window.step(4.0 + LONGEST_WINDOW_S) == 1.0


def test_files_beyond_the_bound_are_opened_each_time(tmp_path: Path) -> None:
    tree(tmp_path, {"a": "1\n", "b": "2\n"})
    descriptors = Descriptors(1)
    kept, other = (KeptFile(tmp_path / name, 16, descriptors) for name in ("a", "b"))
    for _ in range(3):
        assert (kept.read(), other.read()) == (b"1\n", b"2\n")
    assert descriptors.left == 0
    kept.close()
    kept.close()
    assert descriptors.left == 1 and kept.read() == b"1\n" and descriptors.left == 0


def test_this_machine_counts_its_cores() -> None:
    probe = CoresProbe()
    clock = map(float, itertools.count())
    probe.read(next(clock))
    spun_us = 0
    while spun_us < 50_000:
        sum(range(200_000))
        spun_us += sum(row.user_us for row in probe.read(next(clock)))
    assert probe.unseen() == ()
    probe.close()


READERS: list[tuple[str, str, Callable[[bytes], Any]]] = [
    ("stat", STAT, core_times),
    ("pressure", PRESSURE, stall_totals),
    ("meminfo", MEMINFO, lambda raw: keyed(raw, [b"MemTotal:", b"SwapFree:"])),
    ("vmstat", VMSTAT, lambda raw: keyed(raw, [b"pgfault", b"pswpout"])),
    ("diskstats", DISKSTATS, lambda raw: disk_totals(raw, {"nvme0n1", "cciss/c0d0"})),
    ("net/dev", NET_DEV, interface_totals),
    ("snmp", SNMP, protocol_totals),
    ("netstat", NETSTAT, protocol_totals),
]


@pytest.mark.parametrize(("name", "text", "parse"), READERS, ids=[each[0] for each in READERS])
def test_a_file_cut_anywhere_tells_nothing_that_the_whole_does_not(
    name: str, text: str, parse: Callable[[bytes], dict[Any, Any]]
) -> None:
    raw = text.encode()
    whole = parse(raw)
    assert whole, name
    for end in range(len(raw) + 1):
        assert parse(raw[:end]).items() <= whole.items(), raw[:end]


@given(st.sampled_from(READERS), st.data())
def test_damage_raises_nothing_and_gives_no_negative_number(
    reader: tuple[str, str, Callable[[bytes], dict[Any, Any]]], data: st.DataObject
) -> None:
    raw = bytearray(reader[1].encode())
    for _ in range(data.draw(st.integers(1, 5))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.sampled_from(b"\0\n -9:.\xff(+_"))
    for found in reader[2](bytes(raw)).values():
        assert all(0 <= value < 1 << 62 for value in (found if isinstance(found, Iterable) else [found]))


THREAD_STAT = (
    b"12 (a) b (c) S 1 12 12 0 -1 4194368 7 0 2 0 31 17 5 6 20 0 4 0 4633125 8437760 1131 18446744073709551615 1 1 0 0 0 0 0 "
    b"16781312 2 1 0 0 17 3 0 0 0 0 0 1 1 1 1 1 1 1 0\n"
)


def test_a_name_with_brackets_does_not_shift_the_fields() -> None:
    fields = stat_fields(THREAD_STAT)
    assert (fields[2], fields[3], fields[14], fields[15], fields[20]) == (
        b"a) b (c",
        b"S",
        b"31",
        b"17",
        b"4",
    )
    short = thread_stat(THREAD_STAT)
    assert short == (b"a) b (c", "S", 3, 17, 7, 2)


def test_cut_stat_and_schedstat_give_nothing() -> None:
    for end in range(len(THREAD_STAT)):
        assert stat_fields(THREAD_STAT[:end]) == [] and thread_stat(THREAD_STAT[:end]) is None
    assert thread_totals(b"12 34 5\n") == (12, 34, 5)
    assert all(thread_totals(b"12 34 5\n"[:end]) is None for end in range(8))


@given(st.binary(max_size=200))
def test_bytes_of_any_kind_raise_nothing(raw: bytes) -> None:
    stat_fields(raw)
    thread_stat(raw)
    thread_totals(raw)
    assert (found := number(raw)) is None or str(found).encode() == raw.lstrip(b"0") or found == 0
    assert readable(raw).isprintable() and "\x1b" not in readable(raw)


@given(st.lists(st.integers(0, 2**63)), st.lists(st.integers(0, 2**63)))
def test_amounts_are_never_negative(now: list[int], last: list[int]) -> None:
    grown = amounts(now, last)
    assert grown is None or (min(grown) >= 0 and [a + b for a, b in zip(last, grown, strict=True)] == now)

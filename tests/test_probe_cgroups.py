"""Control groups: recorded layouts of v1, v2, hybrids and containers, and a real group with a quota."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.server_process import until
from tests.watched_processes import Pids, Reading, program

from headrace.errors import UsageError
from headrace.host.cgroups import Group, cores_of_quota, groups_of, is_root, quota_cores, read_mounts
from headrace.probe.cgroups import CgroupsProbe
from headrace.probe.targets import by_cgroup
from headrace.probe.threads import ThreadsProbe
from headrace.records.rows.host import PressureRow
from headrace.records.rows.process import CgroupRow, ThreadRow

PRESSURE = (
    "some avg10=0.00 avg60=0.00 avg300=0.00 total={}\nfull avg10=0.00 avg60=0.00 avg300=0.00 total={}\n"
)
SPINNERS = """
say('ready'); sys.stdin.readline()
def spin():
    while True: pass
for _ in range(2): threading.Thread(target=spin, daemon=True).start()
say('spins'); sys.stdin.read()
"""


class Recorded:
    """A machine's mount table and groups, written below `folder`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.mountinfo = folder / "mountinfo"
        self.mountinfo.write_text("22 27 0:21 / /proc rw - proc proc rw\n")

    def mount(self, at: str, root: str, kind: str, options: str) -> None:
        (self.folder / at).mkdir(parents=True, exist_ok=True)
        where = str(self.folder / at).replace(" ", "\\040")
        with self.mountinfo.open("a") as table:
            table.write(f"31 23 0:28 {root} {where} rw,relatime shared:9 - {kind} {kind} rw,{options}\n")

    def write(self, folder: str, **files: str) -> None:
        (self.folder / folder).mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            (self.folder / folder / name.replace("__", ".")).write_text(text)

    def groups(self, memberships: str) -> tuple[Group, ...]:
        return groups_of(memberships, read_mounts(self.mountinfo))


def test_v2_goes_from_the_process_to_the_root(tmp_path: Path) -> None:
    machine = Recorded(tmp_path)
    machine.mount("cg", "/", "cgroup2", "nsdelegate")
    machine.write("cg/system.slice/a b.service", cpu__max="150000 100000\n", cgroup__events="populated 1\n")
    machine.write("cg/system.slice", cpu__max="max 100000\n", cgroup__events="populated 1\n")
    groups = machine.groups("0::/system.slice/a b.service\n")
    assert [(g.version, g.path) for g in groups] == [
        (2, "/system.slice/a b.service"),
        (2, "/system.slice"),
        (2, "/"),
    ]
    assert [quota_cores(group) for group in groups] == [1.5, None, None]
    assert [is_root(group) for group in groups] == [False, False, True]


@pytest.mark.parametrize("names", ["cpu,cpuacct", "cpuacct,cpu"])
def test_v1_controllers_come_in_any_order_and_mounted_anywhere(tmp_path: Path, names: str) -> None:
    machine = Recorded(tmp_path)
    machine.mount(f"elsewhere/{names}", "/", "cgroup", names)
    machine.mount("elsewhere/memory stuff", "/", "cgroup", "memory")
    machine.mount("elsewhere/unified", "/", "cgroup2", "nsdelegate")
    machine.write(f"elsewhere/{names}/job", cpu__cfs_quota_us="50000\n", cpu__cfs_period_us="100000\n")
    machine.write("elsewhere/memory stuff/job", memory__limit_in_bytes="5\n")
    groups = machine.groups(f"4:memory:/job\n3:{names}:/job\n1:name=systemd:/x\n0::/\n")
    assert [(g.version, g.path) for g in groups] == [(1, "/job"), (1, "/"), (2, "/")]
    assert quota_cores(groups[0]) == 0.5 and set(groups[0].folders) == {"cpu", "cpuacct", "memory"}
    assert (
        groups[0].file("memory", "memory.limit_in_bytes")
        == tmp_path / "elsewhere/memory stuff/job/memory.limit_in_bytes"
    )


def test_a_container_sees_its_part_of_a_hierarchy(tmp_path: Path) -> None:
    machine = Recorded(tmp_path)
    machine.mount("cpu", "/docker/abc", "cgroup", "cpu")
    machine.write("cpu", cpu__cfs_quota_us="200000\n", cpu__cfs_period_us="100000\n")
    (group,) = machine.groups("3:cpu:/docker/abc\n")
    assert (group.path, quota_cores(group), is_root(group)) == ("/docker/abc", 2.0, False)
    machine.write("cpu/inner")
    assert [g.path for g in machine.groups("3:cpu:/docker/abc/inner\n")] == [
        "/docker/abc/inner",
        "/docker/abc",
    ]
    assert machine.groups("3:cpu:/docker/other\n") == machine.groups("3:cpu:/../other\n") == ()


@given(st.text("0123456789:,/.cpua\n\\ -", max_size=60), st.text("0 :/-cgroup2rw,\\134\n", max_size=200))
def test_tables_of_any_kind_raise_nothing(
    tmp_path_factory: pytest.TempPathFactory, memberships: str, mountinfo: str
) -> None:
    folder = tmp_path_factory.mktemp("any")
    (folder / "mountinfo").write_text(mountinfo)
    groups_of(memberships, read_mounts(folder / "mountinfo"))
    machine = Recorded(folder)
    machine.mount("cg", "/", "cgroup2", "x")
    assert all(
        (folder / "cg") in (g.folders["cpu"], *g.folders["cpu"].parents) for g in machine.groups(memberships)
    )


@given(st.text(max_size=30))
def test_a_quota_is_positive_or_none(text: str) -> None:
    quota = cores_of_quota(text)
    assert quota is None or quota > 0


def test_v2_rows(tmp_path: Path) -> None:
    machine = Recorded(tmp_path)
    machine.mount("cg", "/", "cgroup2", "nsdelegate")
    machine.write("proc/7", cgroup="0::/pod/app\n")
    files = {
        "cgroup__events": "populated 1\n",
        "cpu__max": "250000 100000\n",
        "cpu__stat__local": "throttled_usec 100\n",
        "memory__current": "4096\n",
        "memory__max": "max\n",
        "cpuset__cpus__effective": "0-3,8\n",
        "cpu__pressure": PRESSURE.format(10, 5),
        "memory__pressure": PRESSURE.format(10, 5),
    }
    stat = "usage_usec {}\nuser_usec 1\nsystem_usec 1\nnr_periods {}\nnr_throttled {}\nthrottled_usec {}\n"
    machine.write("cg/pod/app", **files, cpu__stat=stat.format(1000, 10, 2, 50))
    machine.write("cg/pod", cgroup__events="populated 1\n", cpu__stat="usage_usec 5\n")
    probe = CgroupsProbe(Pids(7), tmp_path / "proc", machine.mountinfo)
    assert list(probe.read(0.0)) == []
    machine.write(
        "cg/pod/app", cpu__stat=stat.format(1900, 20, 7, 80), cpu__stat__local="throttled_usec 300\n"
    )
    machine.write("cg/pod/app", cpu__pressure=PRESSURE.format(30, 6))
    rows = list(probe.read(1.0))
    app, pod = (row for row in rows if isinstance(row, CgroupRow))
    assert app == CgroupRow(1.0, 1.0, "/pod/app", 2, 900, 2.5, 10, 5, 30, 200, 4096, None, "0-3,8")
    assert (pod.path, pod.usage_us, pod.quota_cores, pod.periods, pod.memory_bytes) == (
        "/pod",
        0,
        None,
        None,
        None,
    )
    pressures = [row for row in rows if isinstance(row, PressureRow)]
    assert [row[2:] for row in pressures] == [("/pod/app", "cpu", 20, 1), ("/pod/app", "memory", 0, 0)]
    assert "io pressure of /pod/app" in {each.what for each in probe.unseen()}
    machine.write("cg/pod/app", cpu__stat=stat.format(5, 0, 0, 0), cpu__stat__local="throttled_usec 300\n")
    assert [row.path for row in probe.read(2.0) if isinstance(row, CgroupRow)] == ["/pod"], (
        "made anew: no amounts"
    )
    probe.close()


def test_a_group_that_hides_those_above_says_so(tmp_path: Path) -> None:
    machine = Recorded(tmp_path)
    machine.mount("cg", "/", "cgroup2", "nsdelegate")
    machine.write("cg", cgroup__events="populated 1\n", cpu__stat="usage_usec 5\n")
    machine.write("proc/7", cgroup="0::/\n")
    machine.write("proc/8", cgroup="0::/../beside\n")
    probe = CgroupsProbe(Pids(7, 8), tmp_path / "proc", machine.mountinfo)
    probe.read(0.0)
    assert [row[2:6] for row in probe.read(1.0) if isinstance(row, CgroupRow)] == [("/", 2, 0, None)]
    assert {each.what for each in probe.unseen()} >= {
        "control groups above /",
        "control groups of the service",
    }
    nothing = CgroupsProbe(Pids(7), tmp_path / "proc", tmp_path / "none")
    assert list(nothing.read(0.0)) == [] and "mounted" in nothing.unseen()[0].why


def test_a_process_that_moves_is_followed(tmp_path: Path) -> None:
    machine = Recorded(tmp_path)
    machine.mount("cg", "/", "cgroup2", "nsdelegate")
    machine.write("cg/a", cpu__stat="usage_usec 5\n")
    machine.write("cg/b", cpu__stat="usage_usec 5\n")
    machine.write("proc/7", cgroup="0::/a\n")
    probe = CgroupsProbe(Pids(7), tmp_path / "proc", machine.mountinfo)
    probe.read(0.0)
    machine.write("proc/7", cgroup="0::/b\n")
    probe.read(10.0)
    assert [row.path for row in probe.read(11.0) if isinstance(row, CgroupRow)] == ["/b"]


def test_members_are_those_of_the_group_and_all_below(tmp_path: Path) -> None:
    machine = Recorded(tmp_path)
    machine.mount("cg", "/outer", "cgroup2", "nsdelegate")
    machine.write("cg/job", cgroup__procs="5\n6\n")
    machine.write("cg/job/inner/most", cgroup__procs="7\n0\n")
    machine.write("cg/empty", cgroup__procs="")
    members = by_cgroup("/outer/job", machine.mountinfo)
    assert members.pids == {5, 6, 7} and members.alive
    assert [each.why for each in members.unseen()] == ["they live outside this container's list of processes"]
    assert by_cgroup(str(tmp_path / "cg" / "job"), machine.mountinfo).pids == {5, 6, 7}
    machine.write("cg/job", cgroup__procs="6\n9\n")
    members.refresh()
    assert members.pids == {6, 7, 9}
    with pytest.raises(UsageError, match="no processes now"):
        by_cgroup("/outer/empty", machine.mountinfo)


@pytest.fixture
def quota_group() -> Iterator[Path]:
    """A real group with a quota of half a core, and one inside it."""
    outer = Path(f"/sys/fs/cgroup/cpu/headrace-test-{os.getpid()}")
    try:
        (outer / "inner").mkdir(parents=True)
        (outer / "cpu.cfs_quota_us").write_text("50000")
    except OSError as error:
        pytest.skip(f"this machine lets no test make a group with a quota (cgroup v1): {error}")
    try:
        yield outer
    finally:
        for folder in (outer / "inner", outer):
            until(lambda at=folder: (at / "cgroup.procs").read_text() == "", "the group is empty")
            folder.rmdir()


def test_a_quota_shows_as_throttling_here_and_above_and_as_waiting(quota_group: Path) -> None:
    with program(SPINNERS) as spinners:
        spinners.hear()
        (quota_group / "inner" / "cgroup.procs").write_text(str(spinners.pid))
        spinners.ask("go")
        watched = by_cgroup(str(quota_group))
        assert watched.pids == {spinners.pid}
        groups, threads = Reading(CgroupsProbe(watched)), Reading(ThreadsProbe(watched))
        groups.once()
        threads.once()
        name = f"/{quota_group.name}"
        rows = groups.until(
            CgroupRow,
            lambda rows: sum(row.throttled_periods or 0 for row in rows if row.path == name) >= 4,
            "throttled periods",
        )
        outer, inner = ([row for row in rows if row.path == path] for path in (name, f"{name}/inner"))
        assert {row.quota_cores for row in outer} == {0.5} and {row.quota_cores for row in inner} == {None}
        assert sum(row.periods or 0 for row in outer) >= 4
        assert sum(row.throttled_us or 0 for row in outer) > 50_000
        assert sum(row.throttled_us or 0 for row in inner) == 0
        if any(row.held_back_us for row in inner):
            assert sum(row.held_back_us or 0 for row in inner) > 50_000, (
                "the quota above shows in the group below"
            )
        waits = threads.until(
            ThreadRow, lambda rows: sum(row.wait_us for row in rows) > 100_000, "waiting for the quota"
        )
        assert {row.pid for row in waits} == {spinners.pid}
        assert groups.probe.unseen() == ()
    until(lambda: watched.refresh() is None and not watched.alive, "the group has no members")

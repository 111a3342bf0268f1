"""Finding what is to be watched: by a process's number, by the port it listens on, by a control group."""

from __future__ import annotations

import os
import pwd
from collections.abc import Iterator
from pathlib import Path

from headrace.errors import UsageError
from headrace.host.cgroups import read_mounts, usual_mounts
from headrace.probe.proc_text import keyed, number, readable
from headrace.probe.readings import names_in
from headrace.probe.tcp_sockets import LISTEN, TcpSocket, parse_tcp_table, socket_inodes
from headrace.probe.watched import GroupMembers, ProcessTree, has_ended, read_stat

_NAME, _PPID = 2, 4


def by_pid(pid: int, proc: Path = Path("/proc")) -> ProcessTree:
    """The process and its descendants.

    Raises:
        UsageError: there is no such process, it has ended, or the number is a thread's.
    """
    fields = read_stat(f"{proc}/{pid}/stat")
    if not fields:
        raise UsageError(f"there is no process {pid} here; `ps -e` or `pgrep -af NAME` lists those there are")
    if has_ended(fields):
        raise UsageError(f"process {pid} has ended and only waits to be collected by its parent")
    owner = _owner(pid, proc)
    if owner != pid:
        raise UsageError(f"{pid} is a thread of process {owner}; give the process: --pid {owner}")
    return ProcessTree([pid], proc)


def by_port(port: int, proc: Path = Path("/proc")) -> ProcessTree:
    """The processes that listen on a TCP port (v4 or v6, any address), and their descendants.

    Raises:
        UsageError: nothing listens there, the listener belongs to another user, or it only passes on to a container.
    """
    if not 0 < port < 1 << 16:
        raise UsageError(f"port {port} is outside 1 to 65535")
    listening = [socket for socket in _table(proc) if socket.state == LISTEN and socket.local_port == port]
    if not listening:
        raise UsageError(
            f"nothing listens on TCP port {port} here; `ss -ltn` lists the ports there are, and a service in a container is found by "
            "--pid or --cgroup"
        )
    holders = list(_holders({socket.inode for socket in listening}, proc))
    if not holders:
        users = ", ".join(sorted({_user(socket.uid) for socket in listening}))
        raise UsageError(
            f"port {port} belongs to a process of user {users}, whose files this user may not look at; run headrace as that user or "
            "with sudo, or give the process itself with --pid"
        )
    names = {pid: _name(pid, proc) for pid in holders}
    services = [pid for pid in holders if names[pid] != "systemd"]
    if services and all(names[pid] == "docker-proxy" for pid in services):
        raise UsageError(
            f"port {port} is passed on to a container (docker-proxy); give the container's own process with --pid: "
            "`docker inspect -f '{{.State.Pid}}' CONTAINER` tells it"
        )
    return ProcessTree(_topmost(services or holders, proc), proc)


def by_cgroup(path: str, mountinfo: Path = Path("/proc/self/mountinfo")) -> GroupMembers:
    """The members of a control group, given by its folder or by its path from the root as in `/proc/PID/cgroup`.

    Raises:
        UsageError: there is no such group, or it has no members.
    """
    mounts = read_mounts(mountinfo) or usual_mounts()
    by_path = [
        mount.folder / os.path.relpath(path, mount.root)
        for mount in mounts
        if path.startswith("/") and Path(path).is_relative_to(mount.root)
    ]
    groups = [folder for folder in (Path(path), *by_path) if (folder / "cgroup.procs").is_file()]
    if not groups:
        raise UsageError(
            f"there is no control group {path}; give its folder under /sys/fs/cgroup, or its path as in /proc/PID/cgroup"
        )
    for folder in groups:
        if (members := GroupMembers(folder)).alive:
            return members
    raise UsageError(f"control group {path} has no processes now; start the service first")


def _owner(pid: int, proc: Path) -> int:
    """The process that a thread belongs to."""
    try:
        status = (proc / str(pid) / "status").read_bytes()
    except OSError:
        return pid
    return keyed(status, [b"Tgid:"], b"\t").get(b"Tgid:", pid)


def _table(proc: Path) -> Iterator[TcpSocket]:
    for name in ("tcp", "tcp6"):
        try:
            yield from parse_tcp_table((proc / "net" / name).read_bytes())
        except OSError:
            continue


def _holders(inodes: set[int], proc: Path) -> Iterator[int]:
    for name in names_in(proc):
        try:
            if name.isdecimal() and not inodes.isdisjoint(socket_inodes(proc / name)):
                yield int(name)
        except OSError:
            continue


def _topmost(pids: list[int], proc: Path) -> list[int]:
    """Those that no other one of them started: a server's workers hold its socket as well."""
    return [pid for pid in pids if _above(pid, proc).isdisjoint(pids)]


def _above(pid: int, proc: Path) -> set[int]:
    """The process's parent, its parent, and so on."""
    above: set[int] = set()
    while fields := read_stat(f"{proc}/{pid}/stat"):
        parent = number(fields[_PPID])
        if not parent or parent in above:
            break
        above.add(parent)
        pid = parent
    return above


def _name(pid: int, proc: Path) -> str:
    fields = read_stat(f"{proc}/{pid}/stat")
    return readable(fields[_NAME]) if fields else ""


def _user(uid: int | None) -> str:
    try:
        return pwd.getpwuid(uid).pw_name if uid is not None else "unknown"
    except KeyError:
        return str(uid)

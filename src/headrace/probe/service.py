"""Finding a service by its address: its processes, when it runs here, and the page with its figures."""

from __future__ import annotations

import socket
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

from headrace.clock import monotonic_s
from headrace.errors import UsageError
from headrace.probe.metrics_page import PageError, fetch
from headrace.probe.targets import by_port
from headrace.probe.tcp_sockets import LISTEN, parse_tcp_table, socket_inodes
from headrace.probe.watched import ProcessTree

_LOOK_S, _LOOK_AT_ALL_S = 2.0, 5.0


class Service(NamedTuple):
    """What was found at an address."""

    watched: ProcessTree | None
    """None: it runs on another machine, or as another user."""
    metrics_url: str | None
    """Of a page in Prometheus' format; None: there is none."""


def find_service(url: str, proc: Path = Path("/proc")) -> Service:
    """By `http://HOST:PORT`, which is asked for /metrics, or by the address of the page itself.

    A headrace server has its page on another port: the other ports of the same processes are asked too, for a few seconds.

    Raises:
        UsageError: the address is none, nobody answers there, or it is neither of this machine nor has it figures.
    """
    host, port, path = _parts(url)
    try:
        watched = by_port(port, proc) if _is_here(host) else None
    except UsageError:
        page = url if path else f"{url}/metrics"
        if _no_page(page):
            raise
        return Service(None, page)
    pages = (
        [url]
        if path
        else [f"http://{_bracketed(host)}:{port}/metrics", *_other_pages(host, port, watched, proc)]
    )
    found, why = _first_page(pages)
    if watched is None and found is None:
        raise UsageError(
            f"{url} is not of this machine and shows no figures: {pages[0]}: {why}; run headrace there, or give the address of its page"
        )
    return Service(watched, found)


def _parts(url: str) -> tuple[str, int, str]:
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError as problem:
        raise UsageError(f"--service {url!r} is no address: {problem}") from None
    if parts.scheme != "http" or not host:
        raise UsageError(
            f"--service {url!r} is no address: write http://HOST:PORT or http://HOST:PORT/metrics"
        )
    return host, port or 80, parts.path.rstrip("/")


def _is_here(host: str) -> bool:
    """Whether an address of this name can be bound to, which only this machine's own can."""
    try:
        family, kind, _, _, address = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind) as trial:
            trial.bind(address)
    except OSError:
        return False
    return True


def _other_pages(host: str, port: int, watched: ProcessTree | None, proc: Path) -> Iterator[str]:
    for other in sorted(_listening(watched, proc) if watched else ()):
        if other != port:
            yield f"http://{_bracketed(host)}:{other}/metrics"


def _listening(watched: ProcessTree, proc: Path) -> set[int]:
    inodes: set[int] = set()
    ports: set[int] = set()
    for pid in watched.pids:
        try:
            inodes |= socket_inodes(proc / str(pid))
            for name in ("tcp", "tcp6"):
                table = parse_tcp_table((proc / str(pid) / "net" / name).read_bytes())
                ports |= {each.local_port for each in table if each.state == LISTEN and each.inode in inodes}
        except OSError:
            continue
    return ports


def _first_page(pages: Sequence[str]) -> tuple[str | None, str]:
    """The first that is one, or why the first is none. Ports that accept and then keep silent must not hold up the recording."""
    end_s, reasons = monotonic_s() + _LOOK_AT_ALL_S, []
    for page in pages:
        if not (reason := _no_page(page)):
            return page, ""
        reasons.append(reason)
        if monotonic_s() >= end_s:
            break
    return None, reasons[0]


def _no_page(url: str) -> str:
    """Why this is no page in Prometheus' format; empty if it is one."""
    try:
        text = fetch(url, _LOOK_S)
    except PageError as error:
        return str(error)
    return "" if "# TYPE " in text else "it is no page in Prometheus' format"


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host

"""The connections of a run: one for each request under way, kept for the next."""

from __future__ import annotations

import asyncio
import errno
import socket
import ssl
from collections import deque
from contextlib import suppress
from typing import Protocol

from headrace.clock import monotonic_s
from headrace.errors import UsageError
from headrace.load.engine.client import Connection
from headrace.load.engine.limits import Limits
from headrace.load.engine.request import Request
from headrace.load.shot import Target

CLOSE_S = 1.0
"""How long closing connections are waited for at the end."""

_OWN_LIMITS = frozenset({errno.EMFILE, errno.ENFILE, errno.EADDRNOTAVAIL, errno.ENOBUFS, errno.ENOMEM})
"""Files, ports and memory of this machine: the service never heard of the request."""


class PoolOwner(Protocol):
    def ended(self, request: Request, failure: str | None) -> None:
        """Told once of each request that was not given up; `failure` None: `request.answer` is there."""
        ...

    def broke(self, error: BaseException) -> None:
        """An error of ours: the run cannot go on."""
        ...


class Pool:
    """Takes the free connection that was used last, so that few are kept busy and the others may idle.

    A request that finds none free opens one, up to the limit; past it requests wait in order.
    """

    def __init__(self, owner: PoolOwner, target: Target, address: str, limits: Limits) -> None:
        self._owner = owner
        self._target = target
        self._address = address
        self._limits = limits
        self._ssl = ssl.create_default_context() if target.tls else None
        self._idle: list[Connection] = []
        self._waiting: deque[Request] = deque()
        self._connections: set[Connection] = set()
        self._opening: set[Request] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._all_closed = asyncio.Event()
        self._closing = False
        self.opened_count = self.failed_count = self.retried_count = 0

    def submit(self, request: Request) -> None:
        while self._idle:
            connection = self._idle.pop()
            if connection.usable:
                self._start(request, connection)
                return
        if self._has_room():
            self._open(request)
        else:
            request.waited = True
            self._waiting.append(request)

    def give_up(self, request: Request) -> None:
        """Forgets a request that has not ended; its owner keeps the books."""
        carrier = request.carrier
        if carrier is None:
            self._waiting.remove(request)  # at or near the head: the oldest are given up first
        elif isinstance(carrier, Connection):
            carrier.abort()
        else:
            self._opening.discard(request)
            carrier.cancel()
            self._serve_waiting()

    async def close(self) -> None:
        self._closing = True
        self._opening.clear()
        for task in self._tasks:
            task.cancel()
        for connection in self._connections:
            connection.abort()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._all_closed.clear()
        if self._connections:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._all_closed.wait(), CLOSE_S)

    # --- told by the connections -----------------------------------------------------------------------------------------

    def opened(self, connection: Connection, first: Request) -> bool:
        """False: nobody wants it any more."""
        if first not in self._opening:
            return False
        self._opening.discard(first)
        self._connections.add(connection)
        self.opened_count += 1
        first.carrier = connection
        return True

    def ended(self, connection: Connection, request: Request, failure: str | None) -> None:
        if failure in ("closed", "reset") and connection.answered:
            # RFC 9112, 9.3.1: the service closed an idle connection while the request was on its way. A fresh one is no such.
            self.retried_count += 1
            request.again = True
            self._open(request)
            return
        if connection.usable:
            if self._waiting:
                self._start(self._waiting.popleft(), connection)
            else:
                self._idle.append(connection)
        self._owner.ended(request, failure)

    def lost(self, connection: Connection) -> None:
        self._connections.discard(connection)
        if not self._connections:
            self._all_closed.set()
        self._serve_waiting()

    # --- opening ---------------------------------------------------------------------------------------------------------

    def _has_room(self) -> bool:
        return len(self._connections) + len(self._opening) < self._limits.connections

    def _serve_waiting(self) -> None:
        """A place may have become free."""
        if self._waiting and self._has_room() and not self._closing:
            self._open(self._waiting.popleft())

    def _start(self, request: Request, connection: Connection) -> None:
        request.started_s = monotonic_s()
        request.carrier = connection
        connection.send(request)

    def _open(self, request: Request) -> None:
        if request.started_s is None:
            request.started_s = monotonic_s()
        self._opening.add(request)
        task = asyncio.get_running_loop().create_task(self._connect(request))
        request.carrier = task
        self._tasks.add(task)
        task.add_done_callback(self._task_done)

    async def _connect(self, first: Request) -> None:
        try:
            await asyncio.get_running_loop().create_connection(
                lambda: Connection(self, first, self._limits.answer_max_bytes),
                self._address,
                self._target.port,
                ssl=self._ssl,
                server_hostname=self._target.host if self._ssl else None,
            )
        except OSError as error:
            self.failed_count += 1
            if first in self._opening:
                self._opening.discard(first)
                self._serve_waiting()
                self._owner.ended(first, failure_to_connect(error))

    def _task_done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._owner.broke(error)


def failure_to_connect(error: OSError) -> str:
    """The kind of failure of a connection that did not come to be."""
    if isinstance(error, ConnectionRefusedError):
        return "refused"
    if isinstance(error, ssl.SSLError):
        return "tls"
    if isinstance(error, ConnectionResetError | ConnectionAbortedError | BrokenPipeError):
        return "reset"
    return "no_socket" if error.errno in _OWN_LIMITS else "unreachable"


async def resolve(target: Target) -> str:
    """The first of the host's addresses that takes a connection, or the first if none does. Raises UsageError for an unknown host."""
    loop = asyncio.get_running_loop()
    try:
        found = await loop.getaddrinfo(target.host, target.port, type=socket.SOCK_STREAM)
    except OSError as error:
        raise UsageError(
            f"no address is known for the host {target.host!r}: {error.strerror or error}"
        ) from error
    addresses = list(dict.fromkeys(str(info[4][0]) for info in found))
    for address in addresses if len(addresses) > 1 else ():
        try:
            _, writer = await asyncio.wait_for(asyncio.open_connection(address, target.port), CLOSE_S)
        except OSError:
            continue
        writer.close()
        return address
    return addresses[0]

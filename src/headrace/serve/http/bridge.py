"""Between the event loop and the engine's threads: jobs in, completions back, nobody waiting for nothing.

Threads post finished jobs to a mailbox and wake the loop once for a burst of them. One tick for all requests, and not a timer or a
task for each, looks after deadlines and clients that went away: most requests are answered before the first tick.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable

from headrace.clock import monotonic_s
from headrace.errors import ClientGone, DeadlineExceeded
from headrace.records.image import Encoded, Uint8Array
from headrace.records.timeline import Timeline
from headrace.serve.engine.engine import Engine
from headrace.serve.engine.job import Job
from headrace.serve.http_protocol import Receive

TICK_S = 0.02
"""How late a deadline or a lost client may be noticed."""


class Group:
    """The jobs of one request."""

    __slots__ = ("_mailbox", "deadline_s", "future", "gone", "jobs", "left", "receive", "watch")

    def __init__(self, mailbox: Mailbox, receive: Receive, deadline_s: float) -> None:
        self._mailbox = mailbox
        self.receive = receive
        self.deadline_s = deadline_s
        self.jobs: list[Job] = []
        self.left = 0
        self.gone = False
        self.future: asyncio.Future[None] | None = None
        self.watch: asyncio.Task[None] | None = None

    def submit(
        self,
        engine: Engine,
        arrived_s: float,
        fetched_s: float,
        *,
        encoded: Encoded | None = None,
        prepared: Uint8Array | None = None,
    ) -> Job:
        """One image into the engine. Raises what `Engine.submit` raises; the group is then as it was."""
        timeline = Timeline(arrived_s)
        timeline.fetched_s = fetched_s
        job = Job(
            timeline=timeline, deadline_s=self.deadline_s, done=self.done, encoded=encoded, prepared=prepared
        )
        engine.submit(job)
        self.jobs.append(job)
        self.left += 1
        return job

    def done(self, job: Job) -> None:
        """`Job.done`: on an engine thread."""
        self._mailbox.post(self)

    def arrived(self) -> None:
        """One of the jobs is finished: on the loop."""
        self.left -= 1
        if self.left == 0:
            self.wake()

    def wake(self) -> None:
        if self.future is not None and not self.future.done():
            self.future.set_result(None)

    def abandon(self) -> None:
        for job in self.jobs:
            job.abandon()


class Mailbox:
    """Completions on their way to the loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._posted: deque[Group] = deque()
        self._called = False

    def post(self, group: Group) -> None:
        """From any thread. After the loop has closed, nobody is there to hear it."""
        self._posted.append(group)
        if not self._called:
            self._called = True
            try:
                self._loop.call_soon_threadsafe(self._deliver)
            except RuntimeError:
                pass

    def _deliver(self) -> None:
        self._called = False  # before the first look: what is posted from now on calls again
        posted = self._posted
        while posted:
            posted.popleft().arrived()


class Bridge:
    """Belongs to the event loop that runs when it is first used."""

    _loop: asyncio.AbstractEventLoop
    _mailbox: Mailbox | None = None

    def __init__(self, clock_s: Callable[[], float] = monotonic_s) -> None:
        self._clock_s = clock_s
        self._waiting: set[Group] = set()
        self._ticking = False

    def group(self, receive: Receive, deadline_s: float) -> Group:
        """For the jobs of a request whose body has been read."""
        if self._mailbox is None:
            self._loop = asyncio.get_running_loop()
            self._mailbox = Mailbox(self._loop)
        return Group(self._mailbox, receive, deadline_s)

    async def wait(self, group: Group) -> None:
        """Until every job of the group is finished.

        Raises DeadlineExceeded or ClientGone; whatever ends the wait early, the jobs are abandoned.
        """
        if not group.left:
            return
        group.future = self._loop.create_future()
        self._waiting.add(group)
        if not self._ticking:
            self._ticking = True
            self._loop.call_later(TICK_S, self._tick)
        try:
            await group.future
        finally:
            self._waiting.discard(group)
            if group.watch is not None:
                group.watch.cancel()
            if group.left:
                group.abandon()
        if group.gone:
            raise ClientGone("the client closed the connection while its answer was computed")
        if group.left:
            raise DeadlineExceeded(
                "the answer was not ready before the request's deadline; its work was dropped"
            )

    def _tick(self) -> None:
        now_s = self._clock_s()
        for group in self._waiting:
            if now_s >= group.deadline_s:
                group.wake()
            elif group.watch is None:
                group.watch = self._loop.create_task(_watch(group))
        self._ticking = bool(self._waiting)
        if self._ticking:
            self._loop.call_later(TICK_S, self._tick)


async def _watch(group: Group) -> None:
    while (await group.receive())["type"] != "http.disconnect":
        pass
    group.gone = True
    group.wake()


def last_finished(jobs: Iterable[Job]) -> Job:
    """The job that the others waited for."""
    return max(jobs, key=lambda job: job.timeline.infer_end_s)

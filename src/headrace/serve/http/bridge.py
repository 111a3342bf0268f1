"""Between the event loop and the engine's threads: jobs in, completions back, nobody waiting for nothing.

Threads post finished jobs to a mailbox and wake the loop once for a burst of them. Deadlines and clients that went away are looked
after at ticks, so that a request that is answered at once costs no timer and no task.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable

from headrace.errors import ClientGone, DeadlineExceeded
from headrace.records.image import Encoded, Uint8Array
from headrace.records.timeline import Timeline
from headrace.serve.engine.engine import Engine
from headrace.serve.engine.job import Job
from headrace.serve.http.ticks import Ticker
from headrace.serve.http_protocol import Receive


class Group:
    """The jobs of one request."""

    __slots__ = ("_looked", "_mailbox", "_receive", "_watch", "deadline_s", "future", "gone", "jobs", "left")

    def __init__(self, mailbox: Mailbox, receive: Receive, deadline_s: float) -> None:
        self._mailbox = mailbox
        self._receive = receive
        self._looked = False
        self.deadline_s = deadline_s
        self.jobs: list[Job] = []
        self.left = 0
        self.gone = False
        self.future: asyncio.Future[None] | None = None
        self._watch: asyncio.Task[None] | None = None

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

    def look(self, now_s: float) -> None:
        """At a tick: is anybody still waiting for the answer?"""
        if now_s >= self.deadline_s:
            self.wake()
        elif not self._looked:
            self._looked = True  # most are answered before the second tick, and a task for each would cost more than it saves
        elif self._watch is None:
            self._watch = asyncio.get_running_loop().create_task(self._watch_client())

    async def _watch_client(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self.gone = True
        self.wake()

    def close(self) -> None:
        """Nobody waits any more: unfinished jobs are abandoned."""
        if self._watch is not None:
            self._watch.cancel()
        if self.left:
            self.abandon()

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

    _mailbox: Mailbox | None = None

    def __init__(self, ticker: Ticker) -> None:
        self._ticker = ticker

    def group(self, receive: Receive, deadline_s: float) -> Group:
        """For the jobs of a request whose body has been read."""
        if self._mailbox is None:
            self._mailbox = Mailbox(asyncio.get_running_loop())
        return Group(self._mailbox, receive, deadline_s)

    async def wait(self, group: Group) -> None:
        """Until every job of the group is finished.

        Raises DeadlineExceeded or ClientGone; whatever ends the wait early, the jobs are abandoned.
        """
        if not group.left:
            return
        group.future = asyncio.get_running_loop().create_future()
        self._ticker.add(group)
        try:
            await group.future
        finally:
            self._ticker.remove(group)
            group.close()
        if group.gone:
            raise ClientGone("the client closed the connection while its answer was computed")
        if group.left:
            raise DeadlineExceeded(
                "the answer was not ready before the request's deadline; its work was dropped"
            )


def last_finished(jobs: Iterable[Job]) -> Job:
    """The job that the others waited for."""
    return max(jobs, key=lambda job: job.timeline.infer_end_s)

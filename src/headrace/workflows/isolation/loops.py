"""Closed loops inside this process: threads that run a model, and an engine that is kept full."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from threading import Semaphore, Thread

from headrace.clock import monotonic_s
from headrace.core.isolation.buildup import Window
from headrace.errors import HeadraceError, InternalError
from headrace.models.runner import Runner
from headrace.records.timeline import Timeline
from headrace.serve.engine.engine import Engine
from headrace.serve.engine.job import Job
from headrace.workflows.isolation.meter import Meter, Pace, of_this_process

LONGEST_S = 600.0
"""No image may take longer: a loop that waits for ever would tell nobody why."""

LOOK_S = 0.005

Fill = Callable[[Job], None]
"""Gives a job what it enters the engine with."""


def loop_model(runs: Sequence[Callable[[], object]], batch: int, runner: Runner, pace: Pace) -> Window:
    """Each of `runs`, of `batch` images on `runner`, again and again on a thread of its own. Raises what they raise."""
    meter = Meter(pace, of_this_process(runner))
    going, problems = [True], []

    def work(run: Callable[[], object]) -> None:
        try:
            while going[0]:
                run()
                meter.done(monotonic_s(), batch)
        except HeadraceError as problem:
            problems.append(problem)

    threads = [Thread(target=work, args=(run,), name="headrace-isolate", daemon=True) for run in runs]
    for thread in threads:
        thread.start()
    while meter.going_on() and not problems:
        threads[0].join(LOOK_S)
    going[0] = False
    for thread in threads:
        thread.join()
    if problems:
        raise problems[0]
    return meter.window()


def loop_engine(engine: Engine, fills: Iterator[Fill], inside: int, pace: Pace) -> Window:
    """Keeps `inside` jobs in the engine. Raises the error of a job that failed."""
    meter = Meter(pace, of_this_process(engine.runner))
    room, problems = Semaphore(inside), []

    def done(job: Job) -> None:
        if job.error is not None:
            problems.append(job.error)
        else:
            meter.done(job.timeline.infer_end_s)
        room.release()

    while meter.going_on() and not problems:
        _enter(room)
        now_s = monotonic_s()
        job = Job(timeline=Timeline(now_s), deadline_s=now_s + LONGEST_S, done=done)
        next(fills)(job)
        engine.submit(job)
    for _ in range(inside):
        _enter(room)
    if problems:
        raise problems[0]
    return meter.window()


def _enter(room: Semaphore) -> None:
    if not room.acquire(timeout=LONGEST_S):
        raise InternalError(f"no image came out of the engine for {LONGEST_S:.0f} s")

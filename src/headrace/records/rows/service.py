"""The watched service from inside: stacks, stages, work done; and what watching cost."""

from __future__ import annotations

from typing import Annotated, NamedTuple

from headrace.records.rows.column import Pid, Time, Window, boolean, float64, int32, int64, text


class StackRow(NamedTuple):
    """One Python thread at one moment, as py-spy saw it."""

    t_s: Time
    pid: Pid
    tid: Annotated[int | None, int32("Thread, as the system numbers it.")]
    thread: Annotated[str, text("Its name in Python, or empty.")]
    active: Annotated[
        bool | None, boolean("On a core or ready for one, not waiting; None: not told, as without `tid`.")
    ]
    holds_gil: Annotated[bool, boolean("It held the interpreter's lock.")]
    stack: Annotated[
        str, text("Functions from the outermost in, `function (file:line)`, with semicolons between.")
    ]


class StageRow(NamedTuple):
    """One stage of a headrace server, from its metrics."""

    t_s: Time
    window_s: Window
    stage: Annotated[str, text("fetch, decode, resize, batch, infer or reply.")]
    done: Annotated[int, int32("Images that left the stage.")]
    wait_us: Annotated[int, int64("Their time in its queue, summed.")]
    service_us: Annotated[int, int64("Their time being worked on, summed.")]
    workers: Annotated[int | None, int32("Threads of the stage.")]
    waiting: Annotated[int | None, int32("In its queue at the end of the window.")]
    working: Annotated[int | None, int32("Being worked on at the end of the window.")]
    lost: Annotated[int | None, int32("Failed or dropped.")]


class DeviceRow(NamedTuple):
    """The accelerator of a headrace server, from its metrics."""

    t_s: Time
    window_s: Window
    device: Annotated[str, text("Its name.")]
    busy_us: Annotated[int, int64("At least one batch was on it.")]
    launches: Annotated[int, int32("Batches.")]
    images: Annotated[int, int32("Images in them.")]
    emulated: Annotated[bool, boolean("An emulated accelerator.")]


class ProgressRow(NamedTuple):
    """Work done, however it can be told from outside: it tells working from spinning."""

    t_s: Time
    window_s: Window
    source: Annotated[str, text("Where it was counted: a log, a metric, a socket.")]
    unit: Annotated[str, text("requests, images, bytes, ...")]
    amount: Annotated[float, float64("How much in the window.")]


class ProbeRow(NamedTuple):
    """What watching cost, and what it missed."""

    t_s: Time
    window_s: Window
    probe: Annotated[
        str, text("Its name; `sampler` is all of the watching process, `programs` what it had others do.")
    ]
    readings: Annotated[int, int32("Times it was read.")]
    missed: Annotated[int, int32("Times it should have been read and was not.")]
    late_us: Annotated[int, int32("The latest it was read after its time.")]
    cpu_us: Annotated[int, int32("CPU time it took.")]

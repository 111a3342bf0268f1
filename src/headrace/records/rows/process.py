"""The watched service from outside: processes, threads, control groups, sockets."""

from __future__ import annotations

from typing import Annotated, NamedTuple

from headrace.records.rows.column import Pid, Tid, Time, Window, float32, int16, int32, int64, text


class TaskRow(NamedTuple):
    """Who a process or thread is: written when it is first seen and when something changed."""

    t_s: Time
    pid: Pid
    tid: Tid
    parent_pid: Annotated[int | None, int32("The process that started it; None on rows of threads.")]
    name: Annotated[str, text("Its short name (comm).")]
    command: Annotated[
        str | None, text("The command line, cut after 1,000 characters; None on rows of threads.")
    ]
    allowed_cores: Annotated[str | None, text("Cores it may run on, as in `0-3,8`.")]


class ProcessRow(NamedTuple):
    """One watched process, all its threads together (proc_pid_stat(5), proc_pid_io(5))."""

    t_s: Time
    window_s: Window
    pid: Pid
    user_us: Annotated[int, int64("CPU time in its own code, in steps of the clock tick (10 ms).")]
    system_us: Annotated[int, int64("CPU time in the kernel, in steps of the clock tick (10 ms).")]
    ended_children_us: Annotated[
        int,
        int64(
            "CPU time of children that ended and were waited for, as far as no rows of their own told it: mostly of those "
            "that came and went between two readings. In steps of the clock tick."
        ),
    ]
    threads: Annotated[int | None, int32("Threads at the end of the window.")]
    resident_bytes: Annotated[int | None, int64("Memory in use, shared pages included.")]
    minor_faults: Annotated[int, int32("Page faults served from memory.")]
    major_faults: Annotated[int, int32("Page faults that read from disk.")]
    read_bytes: Annotated[int | None, int64("Fetched from disks.")]
    written_bytes: Annotated[int | None, int64("Sent to disks.")]
    read_call_bytes: Annotated[
        int | None,
        int64("Returned by read(2) and its like for any kind of file, cached ones included; recv(2) is not."),
    ]
    written_call_bytes: Annotated[
        int | None,
        int64("Given to write(2) and its like for any kind of file, cached ones included; send(2) is not."),
    ]
    state: Annotated[str | None, text("State of its main thread, as in `threads`.")]


class ThreadRow(NamedTuple):
    """One thread. One that did nothing has no rows; `window_s` says how far back the next one reaches. Busy threads are read most often.

    What comes after `slices` is told by some rows only: its amounts count from the row that told them last.
    """

    t_s: Time
    window_s: Window
    pid: Pid
    tid: Tid
    cpu_us: Annotated[int | None, int32("On a core (schedstat).")]
    wait_us: Annotated[
        int | None,
        int32(
            "Ready to run, waiting for a core or, throttled, for the quota's next period (schedstat; told when the wait is over)."
        ),
    ]
    slices: Annotated[int | None, int32("Times it was put on a core (schedstat).")]
    system_us: Annotated[
        int | None, int32("Of the time on a core, in the kernel; in steps of the clock tick (10 ms).")
    ]
    state: Annotated[
        str | None, text("R runs or is ready, S sleeps, D waits for a disk, T stopped, Z ended.")
    ]
    core: Annotated[int | None, int16("The core it was last on.")]
    minor_faults: Annotated[int | None, int32("Page faults served from memory.")]
    major_faults: Annotated[int | None, int32("Page faults that read from disk.")]
    voluntary_switches: Annotated[int | None, int32("Times it gave its core up to wait for something.")]
    involuntary_switches: Annotated[int | None, int32("Times its core was taken away.")]


class CgroupRow(NamedTuple):
    """A control group of the service, or one above it (cgroup v1 and v2)."""

    t_s: Time
    window_s: Window
    path: Annotated[str, text("From the root of its hierarchy.")]
    version: Annotated[int, int16("1 or 2.")]
    usage_us: Annotated[int | None, int64("CPU time of all its tasks.")]
    quota_cores: Annotated[float | None, float32("CPU time a second it may use; None: no limit.")]
    periods: Annotated[int | None, int32("Periods in which it wanted CPU.")]
    throttled_periods: Annotated[int | None, int32("Periods in which its quota ran out.")]
    throttled_us: Annotated[
        int | None, int64("Time its tasks were held back by its own quota, summed over cores.")
    ]
    held_back_us: Annotated[
        int | None,
        int64(
            "The same by its own quota or any above it, hidden ones too (cpu.stat.local, Linux 6.6 and newer)."
        ),
    ]
    memory_bytes: Annotated[int | None, int64("Memory charged to it.")]
    memory_limit_bytes: Annotated[int | None, int64("The most it may use; None: no limit.")]
    allowed_cores: Annotated[str | None, text("Cores its tasks may run on, as in `0-3,8`; None: not told.")]


class SocketRow(NamedTuple):
    """The TCP sockets of the service on one local port, or to one remote one."""

    t_s: Time
    window_s: Window
    role: Annotated[
        str,
        text(
            "`listen` waits for clients, `served` has one, `asks` is a connection of the service to somebody else."
        ),
    ]
    port: Annotated[int, int32("Local port; for `asks` the remote one.")]
    sockets: Annotated[int, int32("How many.")]
    receive_queue: Annotated[
        int, int64("Bytes not yet read by the service; for `listen`: connections not yet accepted.")
    ]
    send_queue: Annotated[
        int,
        int64("Bytes not yet taken by the other side; for `listen`: room for connections not yet accepted."),
    ]
    sent_bytes: Annotated[int | None, int64("Taken by the other side.")]
    received_bytes: Annotated[int | None, int64("Received.")]
    retransmits: Annotated[int | None, int32("Segments sent again.")]
    round_trip_us: Annotated[int | None, int32("Smoothed round trip, median over the sockets.")]

"""The machine: cores, pressure, memory, disks, networks."""

from __future__ import annotations

from typing import Annotated, NamedTuple

from headrace.records.rows.column import Time, Window, int16, int32, int64, text


class CoreRow(NamedTuple):
    """CPU time of one core by kind (proc_stat(5))."""

    t_s: Time
    window_s: Window
    core: Annotated[int, int16("Number of the logical core.")]
    user_us: Annotated[int, int32("In programs, niced ones and guests included.")]
    system_us: Annotated[int, int32("In the kernel.")]
    interrupt_us: Annotated[int, int32("In hard and soft interrupts.")]
    steal_us: Annotated[int, int32("Wanted by this machine, given to another by the hypervisor.")]
    iowait_us: Annotated[
        int, int32("Idle with input or output pending. A kind of idle time, not a measure of disk waits.")
    ]
    idle_us: Annotated[int, int32("Idle with nothing pending.")]


class PressureRow(NamedTuple):
    """Time stalled for want of a resource, from the running totals of pressure stall information."""

    t_s: Time
    window_s: Window
    scope: Annotated[str, text("`host`, or the path of a cgroup.")]
    resource: Annotated[str, text("cpu, memory or io.")]
    some_us: Annotated[int, int32("At least one task was stalled.")]
    full_us: Annotated[int | None, int32("All tasks that were not idle were stalled at once.")]


class HostRow(NamedTuple):
    """Memory, paging and scheduling of the whole machine (proc_meminfo(5), proc_vmstat(5), proc_stat(5))."""

    t_s: Time
    window_s: Window
    memory_total_bytes: Annotated[int | None, int64("All memory.")]
    memory_available_bytes: Annotated[int | None, int64("Could be had without swapping.")]
    swap_used_bytes: Annotated[int | None, int64("In swap.")]
    page_faults: Annotated[int | None, int32("Faults of all kinds.")]
    major_faults: Annotated[int | None, int32("Faults that had to read from disk.")]
    swapped_in_bytes: Annotated[int | None, int64("Read back from swap.")]
    swapped_out_bytes: Annotated[int | None, int64("Written to swap.")]
    context_switches: Annotated[int | None, int64("Switches of all cores.")]
    runnable: Annotated[int | None, int32("Tasks on a core or waiting for one, at the end of the window.")]
    blocked: Annotated[int | None, int32("Tasks waiting for input or output, at the end of the window.")]


class DiskRow(NamedTuple):
    """One whole block device (proc_diskstats(5))."""

    t_s: Time
    window_s: Window
    device: Annotated[str, text("Its name in /dev.")]
    reads: Annotated[int, int32("Reads completed.")]
    read_bytes: Annotated[int, int64("Read.")]
    read_wait_us: Annotated[int, int64("Time of all reads together, queueing included.")]
    writes: Annotated[int, int32("Writes completed.")]
    written_bytes: Annotated[int, int64("Written.")]
    write_wait_us: Annotated[int, int64("Time of all writes together, queueing included.")]
    busy_us: Annotated[
        int,
        int32(
            "At least one operation was under way. 100 % does not mean full on a device that serves many at once."
        ),
    ]
    in_flight: Annotated[int, int32("Operations under way at the end of the window.")]


class NetworkRow(NamedTuple):
    """One network interface (proc_net(5))."""

    t_s: Time
    window_s: Window
    interface: Annotated[str, text("Its name.")]
    received_bytes: Annotated[int, int64("Received.")]
    sent_bytes: Annotated[int, int64("Sent.")]
    received_packets: Annotated[int, int64("Packets received.")]
    sent_packets: Annotated[int, int64("Packets sent.")]
    dropped: Annotated[int, int32("Packets dropped or damaged, both ways.")]
    speed_bytes_per_s: Annotated[
        int | None, int64("The link's speed; None where it tells none, as virtual links do.")
    ]


class TcpRow(NamedTuple):
    """TCP of the network name space as a whole (proc_net(5), snmp and netstat)."""

    t_s: Time
    window_s: Window
    segments_sent: Annotated[int, int64("Segments sent, those sent again left out.")]
    retransmits: Annotated[int, int32("Segments sent again.")]
    listen_overflows: Annotated[int | None, int32("Connections refused because an accept queue was full.")]
    resets_sent: Annotated[int | None, int32("Connections reset by this side.")]

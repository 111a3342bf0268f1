"""GPUs, by NVML."""

from __future__ import annotations

from typing import Annotated, NamedTuple

from headrace.records.rows.column import (
    Device,
    Pid,
    Time,
    Window,
    boolean,
    float32,
    int16,
    int32,
    int64,
    text,
)


class GpuRow(NamedTuple):
    """One GPU by NVML. Each share has a window of its own, and none but those by GPM says how much of the GPU worked.

    Engines, memory, power limit, temperature and the link as it runs are read about once a second: None in the rows between.
    """

    t_s: Time
    window_s: Window
    device: Device
    busy_ratio: Annotated[
        float | None,
        float32(
            "Share of `busy_window_s` in which at least one kernel ran, on however few units; None where the driver had nothing new."
        ),
    ]
    busy_window_s: Annotated[
        float | None, float32("What `busy_ratio` looks back on; None: the driver does not tell (1/6 to 1 s).")
    ]
    memory_busy_ratio: Annotated[
        float | None,
        float32(
            "Share of the same window in which memory was read or written; neither use of room nor of bandwidth."
        ),
    ]
    decoder_ratio: Annotated[float | None, float32("Video decoder; not part of `busy_ratio`.")]
    encoder_ratio: Annotated[float | None, float32("Video encoder; not part of `busy_ratio`.")]
    jpeg_ratio: Annotated[float | None, float32("JPEG decoder, where there is one.")]
    memory_used_bytes: Annotated[int | None, int64("Memory held by all processes.")]
    memory_total_bytes: Annotated[int | None, int64("All memory.")]
    sm_active_ratio: Annotated[
        float | None, float32("Share of SM cycles with work, over `window_s`, by GPM (Hopper and newer).")
    ]
    sm_occupancy_ratio: Annotated[float | None, float32("Resident warps of the most possible, by GPM.")]
    tensor_ratio: Annotated[float | None, float32("Cycles in which a tensor pipe was busy, by GPM.")]
    dram_ratio: Annotated[float | None, float32("Share of the memory's bandwidth, by GPM.")]
    sm_clock_mhz: Annotated[int | None, int32("Clock of the SMs.")]
    sm_clock_max_mhz: Annotated[int | None, int32("The highest there is.")]
    clock_reasons: Annotated[
        str | None,
        text("Why it is not higher: idle, power_cap, thermal, power_brake, ... with commas between."),
    ]
    power_w: Annotated[float | None, float32("Power drawn; a mean over about 1 s on newer parts.")]
    power_limit_w: Annotated[float | None, float32("Power allowed.")]
    temperature_c: Annotated[int | None, int16("Of the chip.")]
    pcie_sent_bytes_per_s: Annotated[
        int | None, int64("From the GPU, over `window_s` by GPM, else over some 20 ms.")
    ]
    pcie_received_bytes_per_s: Annotated[
        int | None, int64("To the GPU, over `window_s` by GPM, else over some 20 ms.")
    ]
    pcie_generation: Annotated[int | None, int16("As it runs now; idle cards slow the link on purpose.")]
    pcie_generation_max: Annotated[int | None, int16("As it could run here.")]
    pcie_width: Annotated[int | None, int16("Lanes as it runs now.")]
    pcie_width_max: Annotated[int | None, int16("Lanes as it could run here.")]
    emulated: Annotated[bool, boolean("Not a GPU, an emulated accelerator.")]


class GpuProcessRow(NamedTuple):
    """A process that holds a context on a GPU. Absent: its model is not there. Present proves little."""

    t_s: Time
    window_s: Window
    device: Device
    pid: Pid
    memory_bytes: Annotated[int | None, int64("Memory it holds; None where the driver hides it.")]
    busy_ratio: Annotated[
        float | None, float32("Its share of the SMs' time since the last row; None: not told.")
    ]

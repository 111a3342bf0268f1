"""Which processes are on a GPU, with how much of its memory and of its time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from headrace.probe.nvml.calls import Card
from headrace.records.rows.gpu import GpuProcessRow

MOST_PROCESSES = 256


class Processes:
    """Who is on one GPU."""

    def __init__(self, card: Card) -> None:
        self._card = card
        self._shares = _Shares(card)

    def read(self, now_s: float, window_s: float, busy_ratio: float | None) -> Iterator[GpuProcessRow]:
        memory = self._memory_by_process()
        shares = self._shares.read()
        if memory is None:
            return
        self._doubt(memory, busy_ratio)
        for pid, used in sorted(memory.items())[:MOST_PROCESSES]:
            share = None if shares is None else shares.get(pid, 0.0)
            yield GpuProcessRow(now_s, window_s, self._card.number, pid, used, share)

    def _memory_by_process(self) -> dict[int, int | None] | None:
        """A process that computes and draws is in both lists, with the same memory."""
        lists = [self._list("Compute"), self._list("Graphics")]
        if lists == [None, None]:
            return None
        memory: dict[int, int | None] = {}
        for info in (info for found in lists for info in found or ()):
            known, used = memory.get(info.pid), info.usedGpuMemory
            memory[info.pid] = used if known is None else max(known, used or 0)
        return memory

    def _list(self, kind: str) -> list[Any] | None:
        found: list[Any] | None = self._card.ask(
            f"{kind.lower()} processes",
            (f"nvmlDeviceGet{kind}RunningProcesses_v3",),
            (f"nvmlDeviceGet{kind}RunningProcesses_v2",),
        )
        return found

    def _doubt(self, memory: Mapping[int, int | None], busy_ratio: float | None) -> None:
        """Says when the list cannot be the whole truth: to be absent from it must not look like a model that is not on the GPU."""
        if not memory and busy_ratio:
            self._card.tell("processes", "it is busy and shows none: those outside this container are hidden")
        strangers = [pid for pid in memory if not Path(f"/proc/{pid}").exists()]
        if strangers:
            self._card.tell(
                "processes' true numbers",
                f"process {strangers[0]} is not one of this machine's: numbered outside this container, or hidden",
            )
        if memory and all(used is None for used in memory.values()):
            self._card.tell("memory of processes", "the driver hides it here")


class _Shares:
    """Each process' share of the SMs' time since the last reading."""

    def __init__(self, card: Card) -> None:
        self._card = card
        self._newest_us = 0

    def read(self) -> Mapping[int, float | None] | None:
        """Process -> share (0 to 1, None where it is impossible), only those that had work; None: not known this time."""
        found = self._card.ask(
            "shares of processes",
            ("nvmlDeviceGetProcessesUtilizationInfo", self._newest_us),
            ("nvmlDeviceGetProcessUtilization", self._newest_us),
        )
        new = [sample for sample in found or () if sample.timeStamp > self._newest_us and sample.pid]
        if not new:
            return None
        before_us, self._newest_us = self._newest_us, max(sample.timeStamp for sample in new)
        if before_us == 0:
            return None
        in_order = sorted(new, key=lambda sample: sample.timeStamp)
        return {sample.pid: sample.smUtil / 100 if sample.smUtil <= 100 else None for sample in in_order}

"""Reads probes on time, and keeps account of what that costs and what it missed."""

from __future__ import annotations

import resource
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from threading import Event
from typing import Any, NamedTuple

from headrace.clock import monotonic_s
from headrace.core.watching.schedule import BUDGET, Schedule
from headrace.probe.probe import Probe
from headrace.records.capture import Note, Unseen
from headrace.records.rows.service import ProbeRow

ACCOUNT_EVERY_S = 10.0
"""How often the cost is told, and the pace decided."""
LONGEST_SLEEP_S = 0.25
"""So soon `stop` is noticed. Waiting for it as an event would cost twice the CPU time of a sleep."""
GAP_S = 1.0
"""Longer without a reading than this is told as a gap."""

Sink = Callable[[Iterable[Any], float], None]
"""Takes the rows of one reading, and the capture's time."""


@dataclass(slots=True)
class _Account:
    """Of one probe since the last ProbeRow."""

    readings: int = 0
    missed: int = 0
    late_s: float = 0.0
    cpu_s: float = 0.0


class Sampler:
    """One thread calls `run`. `began_s` is the capture's time 0 on the monotonic clock."""

    def __init__(
        self, probes: Sequence[Probe], began_s: float, sink: Sink, note: Callable[[Note], None]
    ) -> None:
        self._probes = tuple(probes)
        self._began_s = began_s
        self._sink = sink
        self._note = note
        self._schedule = Schedule([probe.period_s for probe in probes], self._now_s())
        self._accounts = [_Account() for _ in probes]
        self._started_s = self._told_s = self._now_s()
        self._spent = _Spent.now()
        self._told_unseen: set[Unseen] = set()

    def run(self, until_s: float, stop: Event) -> None:
        """Samples until the capture's time `until_s`, or until `stop` is set. At the end comes a last reading and an account."""
        while not stop.is_set() and self._now_s() < until_s:
            wait_s = min(self._schedule.next_s, until_s) - self._now_s()
            if wait_s > 0:
                time.sleep(min(wait_s, LONGEST_SLEEP_S))
            else:
                self.tick()
        self._finish()
        self.account(last=True)

    def tick(self) -> None:
        """Reads everything that is due."""
        now_s = self._now_s()
        due = self._schedule.due(now_s)
        if late := [(which, late_s) for which, late_s, _ in due if late_s > GAP_S]:
            self._gap(now_s, late)
        for which, late_s, missed in due:
            self._read(which, late_s, missed)
        if now_s - self._told_s >= ACCOUNT_EVERY_S:
            self.account()

    def _finish(self) -> None:
        """What happened since the last readings; where these are just over, a window would be too short for the kernel's clock ticks."""
        for which, next_s in enumerate(self._schedule.planned_s):
            period_s = self._probes[which].period_s * self._schedule.stretch
            if next_s - self._now_s() < period_s / 2:
                self._read(which, 0.0, 0)

    def _read(self, which: int, late_s: float, missed: int) -> None:
        probe, account = self._probes[which], self._accounts[which]
        before_s = time.thread_time()
        now_s = self._now_s()
        self._sink(probe.read(now_s), now_s)
        account.cpu_s += time.thread_time() - before_s
        account.readings += 1
        account.missed += missed
        account.late_s = max(account.late_s, late_s)

    def _gap(self, now_s: float, late: Sequence[tuple[int, float]]) -> None:
        """One note, however many probes it is about: mostly this process stood still."""
        names = [self._probes[which].name for which, _ in late]
        late_s = max(late_s for _, late_s in late)
        what = f" of {', '.join(names)}" if 2 * len(late) < len(self._probes) else ""
        says = f"nothing was read{what} for {late_s:.1f} s"
        self._note(Note(now_s, "gap", says, {"probes": names, "seconds": late_s}))

    def account(self, last: bool = False) -> None:
        """One row a probe, one for all of this process, one for the programs it ran; and the pace for what comes."""
        now_s, spent = self._now_s(), _Spent.now()
        window_s = now_s - self._told_s
        if window_s <= 0:
            return
        rows = [
            self._row(probe.name, told, now_s)
            for probe, told in zip(self._probes, self._accounts, strict=True)
        ]
        own_s, children_s = spent.own_s - self._spent.own_s, spent.children_s - self._spent.children_s
        everything = _Account(
            readings=sum(row.readings for row in rows),
            missed=sum(row.missed for row in rows),
            late_s=max((told.late_s for told in self._accounts), default=0.0),
            cpu_s=own_s,
        )
        rows.append(self._row("sampler", everything, now_s))
        rows.append(self._row("programs", _Account(cpu_s=children_s), now_s))
        self._sink(rows, now_s)
        self._tell_unseen(now_s)
        if self._told_s > self._started_s and not last:  # the first account has the start in it
            self._pace(own_s / window_s, now_s)
        self._accounts = [_Account() for _ in self._probes]
        self._told_s, self._spent = now_s, spent

    def _row(self, name: str, told: _Account, now_s: float) -> ProbeRow:
        late_us, cpu_us = int(told.late_s * 1e6), int(told.cpu_s * 1e6)
        return ProbeRow(now_s, now_s - self._told_s, name, told.readings, told.missed, late_us, cpu_us)

    def _pace(self, share: float, now_s: float) -> None:
        if self._schedule.pace(share):
            stretch = self._schedule.stretch
            pace = "at its usual pace again" if stretch == 1 else f"{stretch:g} times as seldom as usual"
            says = f"watching took {share:.1%} of a core, {BUDGET:.0%} is allowed: it now reads {pace}"
            self._note(Note(now_s, "change", says, {"stretch": stretch}))

    def _tell_unseen(self, now_s: float) -> None:
        for item in (item for probe in self._probes for item in probe.unseen()):
            if item not in self._told_unseen:
                self._told_unseen.add(item)
                self._note(Note(now_s, "unseen", f"{item.what}: {item.why}", {"probe": item.probe}))

    def _now_s(self) -> float:
        return monotonic_s() - self._began_s


class _Spent(NamedTuple):
    """CPU time so far."""

    own_s: float
    children_s: float
    """Of programs that ran to their end, such as the reader of stacks, which is paced by itself."""

    @classmethod
    def now(cls) -> _Spent:
        told = resource.getrusage(resource.RUSAGE_CHILDREN)
        return cls(time.process_time(), told.ru_utime + told.ru_stime)

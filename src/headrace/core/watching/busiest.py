"""Which threads took CPU, and which waited for it. Memory does not grow with time, however many threads come and go."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from heapq import nlargest

from headrace.records.rows.process import TaskRow, ThreadRow

MOST_THREADS = 8_192
"""About 3 MB."""
SLACK_S = 1.0
"""A reading counts as the present one for as long as its window, and this."""


@dataclass(frozen=True, slots=True)
class Busiest:
    """A thread that took CPU."""

    pid: int
    tid: int
    name: str
    now_ratio: float
    """Of one core, at its last reading; 0 when it has slept since."""
    mean_ratio: float
    """Of one core, over the whole recording."""
    wait_ratio: float
    """Ready and waiting for a core, over the whole recording."""


class _Thread:
    """What one thread did so far."""

    __slots__ = ("cpu_s", "good_until_s", "last_ratio", "wait_s")

    def __init__(self) -> None:
        self.cpu_s = self.wait_s = self.last_ratio = self.good_until_s = 0.0


class Threads:
    """Told the rows of all threads. Not synchronised."""

    def __init__(self) -> None:
        self._threads: dict[tuple[int, int], _Thread] = {}
        self._names: dict[tuple[int, int], str] = {}
        self._forgotten_s = 0.0

    def __len__(self) -> int:
        """How many are remembered, by what they did or by name alone."""
        return len(self._threads.keys() | self._names.keys())

    @property
    def cpu_s(self) -> float:
        """Of all threads that were seen."""
        return self._forgotten_s + sum(thread.cpu_s for thread in self._threads.values())

    def name(self, tasks: Iterable[TaskRow]) -> None:
        """Of those that never ran the names are forgotten first: they might be the threads of a million requests."""
        self._names.update({(row.pid, row.tid): row.name for row in tasks})
        if len(self._names) > MOST_THREADS:
            self._names = {key: name for key, name in self._names.items() if key in self._threads}

    def tell(self, rows: Iterable[ThreadRow], now_s: float) -> None:
        for row in rows:
            if row.cpu_us is None or row.window_s <= 0:
                continue
            thread = self._threads.get((row.pid, row.tid))
            if thread is None:
                thread = self._new((row.pid, row.tid))
            thread.cpu_s += row.cpu_us * 1e-6
            thread.wait_s += (row.wait_us or 0) * 1e-6
            thread.last_ratio = row.cpu_us * 1e-6 / row.window_s
            thread.good_until_s = now_s + row.window_s + SLACK_S

    def busiest(self, most: int, now_s: float, length_s: float) -> list[Busiest]:
        """Those that took most CPU in `length_s` seconds up to `now_s`."""
        found = nlargest(most, self._threads.items(), key=lambda item: item[1].cpu_s)
        return [
            Busiest(
                *key,
                self._names.get(key, ""),
                thread.last_ratio if now_s <= thread.good_until_s else 0.0,
                thread.cpu_s / length_s,
                thread.wait_s / length_s,
            )
            for key, thread in found
        ]

    def _new(self, key: tuple[int, int]) -> _Thread:
        if len(self._threads) >= MOST_THREADS:
            self._forget()
        thread = self._threads[key] = _Thread()
        return thread

    def _forget(self) -> None:
        """Services that start a thread for each request would fill the memory: the half that took least CPU goes."""
        keys = sorted(self._threads, key=lambda key: self._threads[key].cpu_s)
        for key in keys[: len(keys) // 2]:
            self._forgotten_s += self._threads.pop(key).cpu_s
            self._names.pop(key, None)

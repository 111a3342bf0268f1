"""Which prepared images go to the accelerator together, and when. A pure machine: it is told the time.

Work-conserving: an idle accelerator never waits for images that cannot come in time. A busy one loses nothing by waiting, so an
unfilled batch stays open until the accelerator is free. The window opens at a batch's first image.

The machine also deals out places: preparation claims a place before it writes pixels there, so that pixels are written once.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

Item = TypeVar("Item")

_SMOOTHING = 0.2
"""Weight of the newest gap in the supply estimate: about the last five arrivals count."""

_LONGEST_GAP_WINDOWS = 4
"""A longer pause is idleness, not supply: it counts as this many windows, so that one pause does not hide a fast supply."""


@dataclass(frozen=True, slots=True)
class BatchPolicy:
    """Sizes and times of batching."""

    max_items: int
    window_s: float
    max_in_flight: int


class Place(NamedTuple):
    """Row `row` of buffer `buffer`."""

    buffer: int
    row: int


@dataclass(frozen=True, slots=True)
class Launch(Generic[Item]):
    """Run rows 0..rows-1 of `buffer` now. `items[row]` is None where preparation failed after it had claimed the row."""

    buffer: int
    items: tuple[Item | None, ...]

    @property
    def rows(self) -> int:
        return len(self.items)


@dataclass(frozen=True, slots=True)
class WaitUntil:
    """Nothing to run yet; ask again at `time_s`, or when something changed."""

    time_s: float


class _Batch(Generic[Item]):
    """One buffer being filled."""

    __slots__ = ("buffer", "closed", "items", "opened_s", "settled")

    def __init__(self, buffer: int) -> None:
        self.buffer = buffer
        self.items: list[Item | None] = []
        self.settled = 0
        self.closed = False
        self.opened_s: float | None = None

    @property
    def writing(self) -> bool:
        return self.settled < len(self.items)

    @property
    def empty(self) -> bool:
        return all(item is None for item in self.items)


class Batching(Generic[Item]):
    """Claim, fill, take, finish. Every method takes `now_s` from one clock that never goes back."""

    def __init__(self, policy: BatchPolicy, buffers: int) -> None:
        """`buffers` batch buffers of `policy.max_items` rows each.

        Raises ValueError when there are too few to keep `max_in_flight` busy and one open.
        """
        if buffers <= policy.max_in_flight:
            raise ValueError(
                f"{buffers} buffers cannot keep {policy.max_in_flight} batches in flight and one open"
            )
        self.policy = policy
        self._free = list(range(buffers))
        self._waiting: deque[_Batch[Item]] = deque()
        self._in_flight: set[int] = set()
        self._last_fill_s: float | None = None
        self._gap_s = 0.0

    @property
    def in_flight(self) -> int:
        return len(self._in_flight)

    @property
    def queued(self) -> int:
        """Images claimed or filled and not launched."""
        return sum(len(batch.items) for batch in self._waiting)

    def claim(self, now_s: float) -> Place | None:
        """A place to write the next image into, or None while every buffer is taken: push back."""
        batch = self._open_batch(now_s)
        if batch is None:
            return None
        batch.items.append(None)
        batch.closed = len(batch.items) >= self.policy.max_items
        return Place(batch.buffer, len(batch.items) - 1)

    def fill(self, place: Place, item: Item, now_s: float) -> None:
        """The image for `place` is written."""
        batch = self._settle(place)
        batch.items[place.row] = item
        if batch.opened_s is None:
            batch.opened_s = now_s
        self._observe_supply(now_s)

    def void(self, place: Place) -> None:
        """No image will come for `place`."""
        batch = self._settle(place)
        if not batch.writing and batch.empty:
            self._waiting.remove(batch)
            self._free.append(batch.buffer)

    def take(self, now_s: float, coming: int) -> Launch[Item] | WaitUntil | None:
        """What to run now. `coming` counts images still being prepared that have claimed no place yet. None: wait for a change."""
        if not self._waiting or len(self._in_flight) >= self.policy.max_in_flight:
            return None
        batch = self._waiting[0]
        if batch.opened_s is None:
            return None
        window_end_s = batch.opened_s + self.policy.window_s
        full = len(batch.items) >= self.policy.max_items
        if not full:
            if self._in_flight:
                return None
            if self._worth_waiting(now_s, window_end_s, coming):
                return WaitUntil(window_end_s)
        batch.closed = True
        return None if batch.writing else self._launch(batch)

    def finish(self, buffer: int) -> None:
        """The batch in `buffer` was run; its rows may be overwritten. Raises KeyError when it was not in flight."""
        self._in_flight.remove(buffer)
        self._free.append(buffer)

    def _open_batch(self, now_s: float) -> _Batch[Item] | None:
        if self._waiting and not self._waiting[-1].closed:
            return self._waiting[-1]
        if not self._free:
            return None
        batch: _Batch[Item] = _Batch(self._free.pop())
        self._waiting.append(batch)
        return batch

    def _settle(self, place: Place) -> _Batch[Item]:
        batch = next(batch for batch in self._waiting if batch.buffer == place.buffer)
        batch.settled += 1
        return batch

    def _observe_supply(self, now_s: float) -> None:
        if self._last_fill_s is not None:
            gap_s = min(now_s - self._last_fill_s, _LONGEST_GAP_WINDOWS * self.policy.window_s)
            self._gap_s += _SMOOTHING * (gap_s - self._gap_s)
        self._last_fill_s = now_s

    def _worth_waiting(self, now_s: float, window_end_s: float, coming: int) -> bool:
        if coming == 0 or now_s >= window_end_s:
            return False
        expected_s = (self._last_fill_s or now_s) + self._gap_s
        return expected_s <= window_end_s

    def _launch(self, batch: _Batch[Item]) -> Launch[Item]:
        self._waiting.popleft()
        self._in_flight.add(batch.buffer)
        return Launch(batch.buffer, tuple(batch.items))

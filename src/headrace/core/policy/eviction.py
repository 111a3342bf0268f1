"""What a cache keeps when it is full. Pure machines: no clock, no randomness, exact about bytes; not synchronised.

A machine knows keys and sizes only; the values belong to its owner, who drops those of every key that `put` returns.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping
from typing import Protocol


class Eviction(Protocol):
    """One cache. `get`, `put` and `forget` take constant time, averaged over the calls."""

    capacity_bytes: int
    used_bytes: int
    """Never above `capacity_bytes`."""

    def get(self, key: Hashable) -> bool:
        """Whether `key` is kept; it counts as used."""

    def put(self, key: Hashable, size_bytes: int) -> tuple[Hashable, ...]:
        """Keeps `key` as a new entry, in place of an older one of that name. Returns the keys that are not kept any more.

        `key` itself is the only one when it is larger than the cache: nobody makes room in vain.
        Raises ValueError when `size_bytes` is below 1.
        """

    def forget(self, key: Hashable) -> bool:
        """Lets `key` go; whether it was kept."""

    def __contains__(self, key: Hashable) -> bool:
        """Whether `key` is kept; it does not count as used."""

    def __len__(self) -> int:
        """Entries kept."""


class Lru:
    """The entry unused for longest goes first."""

    def __init__(self, capacity_bytes: int) -> None:
        self.capacity_bytes = checked(capacity_bytes)
        self.used_bytes = 0
        self._sizes: OrderedDict[Hashable, int] = OrderedDict()

    def get(self, key: Hashable) -> bool:
        if key not in self._sizes:
            return False
        self._sizes.move_to_end(key)
        return True

    def put(self, key: Hashable, size_bytes: int) -> tuple[Hashable, ...]:
        checked(size_bytes)
        self.forget(key)
        if size_bytes > self.capacity_bytes:
            return (key,)
        gone = []
        while self.used_bytes + size_bytes > self.capacity_bytes:
            oldest, size = self._sizes.popitem(last=False)
            self.used_bytes -= size
            gone.append(oldest)
        self._sizes[key] = size_bytes
        self.used_bytes += size_bytes
        return tuple(gone)

    def forget(self, key: Hashable) -> bool:
        size = self._sizes.pop(key, None)
        self.used_bytes -= size or 0
        return size is not None

    def __contains__(self, key: Hashable) -> bool:
        return key in self._sizes

    def __len__(self) -> int:
        return len(self._sizes)


class _Node:
    """A place in SIEVE's queue; `newer` and `older` are its neighbours."""

    __slots__ = ("key", "newer", "older", "size_bytes", "used")

    def __init__(self, key: Hashable, size_bytes: int) -> None:
        self.key, self.size_bytes, self.used = key, size_bytes, False
        self.newer: _Node = self
        self.older: _Node = self


class Sieve:
    """A hand walks from old to new: it spares, once, what was used since it last came by, and takes the first that was not.

    Entries never move, so one use costs one flag, and what is used once goes soon. Zhang et al., NSDI 2024.
    """

    def __init__(self, capacity_bytes: int) -> None:
        self.capacity_bytes = checked(capacity_bytes)
        self.used_bytes = 0
        self._nodes: dict[Hashable, _Node] = {}
        self._ends = _Node(None, 0)
        """Of the ring: its `newer` is the oldest entry, its `older` the newest."""
        self._hand = self._ends

    def get(self, key: Hashable) -> bool:
        node = self._nodes.get(key)
        if node is None:
            return False
        node.used = True
        return True

    def put(self, key: Hashable, size_bytes: int) -> tuple[Hashable, ...]:
        checked(size_bytes)
        self.forget(key)
        if size_bytes > self.capacity_bytes:
            return (key,)
        gone = []
        while self.used_bytes + size_bytes > self.capacity_bytes:
            node = self._next_out()
            self._remove(node)
            gone.append(node.key)
        node = self._nodes[key] = _Node(key, size_bytes)
        node.older, node.newer = self._ends.older, self._ends
        node.older.newer = node.newer.older = node
        self.used_bytes += size_bytes
        return tuple(gone)

    def _next_out(self) -> _Node:
        node = self._hand
        while node is self._ends or node.used:
            node.used = False
            node = node.newer
        self._hand = node
        return node

    def _remove(self, node: _Node) -> None:
        if self._hand is node:
            self._hand = node.newer
        node.older.newer, node.newer.older = node.newer, node.older
        del self._nodes[node.key]
        self.used_bytes -= node.size_bytes

    def forget(self, key: Hashable) -> bool:
        node = self._nodes.get(key)
        if node is not None:
            self._remove(node)
        return node is not None

    def __contains__(self, key: Hashable) -> bool:
        return key in self._nodes

    def __len__(self) -> int:
        return len(self._nodes)


SMALL_SHARE = 0.1
"""Of the bytes, for entries on trial: the share that Yang et al. found good on nearly all of 6,594 traces."""
_MOST_USES = 3
"""Uses are counted up to here (two bits)."""
_USES_TO_STAY = 2
"""What leaves its trial with fewer was a passer-by."""


class S3Fifo:
    """New entries are on trial in a small queue; those used again move to the main one, the others leave, and are let
    straight into the main queue when they come back soon. Yang et al., SOSP 2023.

    "Soon": the names of entries that failed are kept until as many bytes have failed after them as the main queue may hold.
    """

    def __init__(self, capacity_bytes: int) -> None:
        self.capacity_bytes = checked(capacity_bytes)
        self.used_bytes = 0
        self._small_most = int(SMALL_SHARE * capacity_bytes)
        self._small_bytes = 0
        self._failed_bytes = 0
        self._small: OrderedDict[Hashable, list[int]] = OrderedDict()
        """[size in bytes, uses], oldest first, as in the main queue."""
        self._main: OrderedDict[Hashable, list[int]] = OrderedDict()
        self._failed: OrderedDict[Hashable, int] = OrderedDict()

    def get(self, key: Hashable) -> bool:
        entry = self._small.get(key) or self._main.get(key)
        if entry is None:
            return False
        entry[1] = min(entry[1] + 1, _MOST_USES)
        return True

    def put(self, key: Hashable, size_bytes: int) -> tuple[Hashable, ...]:
        checked(size_bytes)
        self.forget(key)
        if size_bytes > self.capacity_bytes:
            return (key,)
        gone = []
        while self.used_bytes + size_bytes > self.capacity_bytes:
            gone.append(self._next_out())
        self.used_bytes += size_bytes
        failed_bytes = self._failed.pop(key, None)
        if failed_bytes is not None:
            self._failed_bytes -= failed_bytes
            self._main[key] = [size_bytes, 0]
        else:
            self._small_bytes += size_bytes
            self._small[key] = [size_bytes, 0]
        return tuple(gone)

    def _next_out(self) -> Hashable:
        while self._small_bytes > self._small_most or not self._main:
            key, (size, uses) = self._small.popitem(last=False)
            self._small_bytes -= size
            if uses < _USES_TO_STAY:
                self.used_bytes -= size
                self._remember(key, size)
                return key
            self._main[key] = [size, 0]
        return self._out_of_main()

    def _out_of_main(self) -> Hashable:
        while True:
            key, entry = self._main.popitem(last=False)
            if not entry[1]:
                self.used_bytes -= entry[0]
                return key
            entry[1] -= 1
            self._main[key] = entry

    def _remember(self, key: Hashable, size_bytes: int) -> None:
        self._failed[key] = size_bytes
        self._failed_bytes += size_bytes
        while self._failed_bytes > self.capacity_bytes - self._small_most:
            self._failed_bytes -= self._failed.popitem(last=False)[1]

    def forget(self, key: Hashable) -> bool:
        entry = self._small.pop(key, None)
        if entry is not None:
            self._small_bytes -= entry[0]
        else:
            entry = self._main.pop(key, None)
        self.used_bytes -= entry[0] if entry else 0
        return entry is not None

    def __contains__(self, key: Hashable) -> bool:
        return key in self._small or key in self._main

    def __len__(self) -> int:
        return len(self._small) + len(self._main)


def checked(size_bytes: int) -> int:
    """A size. Raises ValueError when it is below 1: what takes no room could never be evicted."""
    if size_bytes < 1:
        raise ValueError(f"a size of {size_bytes} bytes; the least is 1")
    return size_bytes


POLICIES: Mapping[str, Callable[[int], Eviction]] = {"lru": Lru, "sieve": Sieve, "s3fifo": S3Fifo}
"""By the name a setting or flag gives them."""

"""Eviction policies: against naive models, by their invariants, and by the traffic they are made for."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from headrace.core.policy.eviction import POLICIES, Eviction, Lru, S3Fifo, Sieve

KEYS = st.integers(0, 12)
SIZES = st.integers(1, 9)
CAPACITIES = st.integers(1, 24)
names = pytest.mark.parametrize("name", sorted(POLICIES))


class NaiveLru:
    """A list, oldest first."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.entries: list[tuple[int, int]] = []

    def get(self, key: int) -> bool:
        found = [entry for entry in self.entries if entry[0] == key]
        self.entries = [entry for entry in self.entries if entry[0] != key] + found
        return bool(found)

    def put(self, key: int, size: int) -> tuple[int, ...]:
        self.forget(key)
        if size > self.capacity:
            return (key,)
        gone = []
        while sum(size for _, size in self.entries) + size > self.capacity:
            gone.append(self.entries.pop(0)[0])
        self.entries.append((key, size))
        return tuple(gone)

    def forget(self, key: int) -> bool:
        before = len(self.entries)
        self.entries = [entry for entry in self.entries if entry[0] != key]
        return len(self.entries) < before


class NaiveSieve(NaiveLru):
    """The queue of the paper as a list, oldest first, and the key under the hand."""

    def __init__(self, capacity: int) -> None:
        super().__init__(capacity)
        self.used: set[int] = set()
        self.hand: int | None = None

    def get(self, key: int) -> bool:
        kept = any(key == other for other, _ in self.entries)
        self.used |= {key} if kept else set()
        return kept

    def put(self, key: int, size: int) -> tuple[int, ...]:
        self.forget(key)
        if size > self.capacity:
            return (key,)
        gone = []
        while sum(size for _, size in self.entries) + size > self.capacity:
            at = 0 if self.hand is None else [key for key, _ in self.entries].index(self.hand)
            while self.entries[at][0] in self.used:
                self.used.remove(self.entries[at][0])
                at = (at + 1) % len(self.entries)
            self.hand = self.entries[at][0]
            gone.append(self.hand)
            self.forget(self.hand)
        self.entries.append((key, size))
        return tuple(gone)

    def forget(self, key: int) -> bool:
        keys = [other for other, _ in self.entries]
        if key in keys and key == self.hand:
            later = keys[keys.index(key) + 1 :]
            self.hand = later[0] if later else None
        self.used.discard(key)
        return super().forget(key)


class SameAsModel(RuleBasedStateMachine):
    """A policy and its naive model are told the same and must answer the same."""

    policy: Callable[[int], Eviction]
    model: Callable[[int], NaiveLru]

    @initialize(capacity=CAPACITIES)
    def start(self, capacity: int) -> None:
        self.cache, self.naive = type(self).policy(capacity), type(self).model(capacity)

    @rule(key=KEYS)
    def get(self, key: int) -> None:
        assert self.cache.get(key) == self.naive.get(key)

    @rule(key=KEYS, size=SIZES)
    def put(self, key: int, size: int) -> None:
        assert self.cache.put(key, size) == self.naive.put(key, size)

    @rule(key=KEYS)
    def forget(self, key: int) -> None:
        assert self.cache.forget(key) == self.naive.forget(key)

    @invariant()
    def same_contents(self) -> None:
        kept = dict(self.naive.entries) if hasattr(self, "naive") else {}
        if hasattr(self, "cache"):
            assert self.cache.used_bytes == sum(kept.values()) and len(self.cache) == len(kept)
            assert all((key in self.cache) == (key in kept) for key in range(13))


class LruIsLru(SameAsModel):
    policy, model = Lru, NaiveLru


class SieveIsSieve(SameAsModel):
    policy, model = Sieve, NaiveSieve


class S3FifoKeepsTheRules(RuleBasedStateMachine):
    """What holds for every policy: bytes are exact and bounded, what was evicted is gone, what was not is there."""

    @initialize(capacity=CAPACITIES)
    def start(self, capacity: int) -> None:
        self.cache: Eviction = S3Fifo(capacity)
        self.kept: dict[int, int] = {}

    @rule(key=KEYS)
    def get(self, key: int) -> None:
        assert self.cache.get(key) == (key in self.kept)

    @rule(key=KEYS, size=SIZES)
    def put(self, key: int, size: int) -> None:
        before = set(self.kept)
        gone = self.cache.put(key, size)
        assert len(set(gone)) == len(gone) and set(gone) <= before | {key}
        assert (key in gone) == (size > self.cache.capacity_bytes)
        assert key not in gone or gone == (key,)
        self.kept[key] = size
        for other in gone:
            del self.kept[other]
            assert other not in self.cache

    @rule(key=KEYS)
    def forget(self, key: int) -> None:
        assert self.cache.forget(key) == (self.kept.pop(key, None) is not None)

    @invariant()
    def bytes_are_exact(self) -> None:
        if hasattr(self, "kept"):
            assert self.cache.used_bytes == sum(self.kept.values()) <= self.cache.capacity_bytes
            assert {key for key in range(13) if key in self.cache} == set(self.kept)
            assert len(self.cache) == len(self.kept)


for machine in (LruIsLru, SieveIsSieve, S3FifoKeepsTheRules):
    machine.TestCase.settings = settings(max_examples=30, stateful_step_count=50, deadline=None)
TestLru = LruIsLru.TestCase
TestSieve = SieveIsSieve.TestCase
TestS3Fifo = S3FifoKeepsTheRules.TestCase


@names
def test_what_is_larger_than_the_cache_is_refused_and_evicts_nothing(name: str) -> None:
    cache = POLICIES[name](10)
    assert cache.put("a", 4) == () and cache.put("b", 6) == ()
    assert cache.put("huge", 11) == ("huge",)
    assert "a" in cache and "b" in cache and "huge" not in cache and cache.used_bytes == 10
    assert cache.put("a", 11) == ("a",), "the older entry of that name is not kept either"
    assert "a" not in cache and cache.used_bytes == 6


@names
@pytest.mark.parametrize("size", [0, -1])
def test_sizes_below_one_byte_are_errors_and_change_nothing(name: str, size: int) -> None:
    cache = POLICIES[name](10)
    cache.put("a", 4)
    with pytest.raises(ValueError, match="bytes"):
        cache.put("a", size)
    assert "a" in cache and cache.used_bytes == 4
    with pytest.raises(ValueError, match="bytes"):
        POLICIES[name](size)


def test_sieve_spares_what_was_used_once_and_takes_the_next() -> None:
    cache = Sieve(3)
    for key in "abc":
        cache.put(key, 1)
    cache.get("a")
    assert cache.put("d", 1) == ("b",), "a was used and is spared, b was not"
    assert cache.put("e", 1) == ("c",), "the hand goes on from where it stood"
    assert cache.put("f", 1) == ("d",)
    assert cache.put("g", 1) == ("e",)
    assert cache.put("h", 1) == ("f",), "a was spared, and lies behind the hand"
    assert "a" in cache


def test_s3fifo_lets_what_came_back_into_the_main_queue() -> None:
    cache = S3Fifo(10)
    for key in range(11):
        cache.put(key, 1)
    assert 0 not in cache, "used once, out of the small queue"
    cache.put(0, 1)
    for key in range(100, 108):
        cache.put(key, 1)
    assert 0 in cache, "came back while its name was remembered: passers-by do not push it out"


@names
def test_a_hot_set_survives_a_scan_where_lru_loses_it(name: str) -> None:
    cache = POLICIES[name](100)
    for _ in range(4):
        misses(cache, list(range(50)))
    scanned = [key for turn in range(4000) for key in (turn % 50, *range(1000 + 3 * turn, 1003 + 3 * turn))]
    missed_hot = misses(cache, scanned) - 3 * 4000
    assert missed_hot > 3900 if name == "lru" else missed_hot < 40


@names
def test_zipf_traffic_is_no_worse_than_under_lru(name: str) -> None:
    random = np.random.default_rng(4)
    shares = 1 / np.arange(1, 5001)
    keys = np.searchsorted(np.cumsum(shares / shares.sum()), random.random(20_000)).tolist()
    assert misses(POLICIES[name](250), keys) <= misses(Lru(250), keys) * (1.0 if name == "lru" else 0.93)


def misses(cache: Eviction, keys: list[int]) -> int:
    count = 0
    for key in keys:
        if not cache.get(key):
            cache.put(key, 1)
            count += 1
    return count


@names
def test_work_for_a_request_does_not_grow_with_the_cache(name: str) -> None:
    """Lines of Python run for 3,000 requests of a mix, in a full cache of 50 and of 5,000 entries."""
    small, large = (lines_run(POLICIES[name](entries), entries) for entries in (50, 5000))
    assert large < 1.5 * small


def lines_run(cache: Eviction, entries: int) -> int:
    for key in range(entries):
        cache.put(key, 1)
        cache.get(key)
    random = np.random.default_rng(1)
    keys = np.where(random.random(3000) < 0.5, random.integers(0, entries, 3000), np.arange(3000) + 10**6)
    count = 0

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal count
        count += event == "line"
        return trace

    before = sys.gettrace()
    warm = keys.tolist()
    misses(cache, warm)
    sys.settrace(trace)
    try:
        misses(cache, [key + 10**7 if key >= 10**6 else key for key in warm])
    finally:
        sys.settrace(before)
    return count

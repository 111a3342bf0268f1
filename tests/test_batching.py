"""The batching machine: tables of numbers, and a stateful attack."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from headrace.core.policy.batching import Batching, BatchPolicy, Launch, Place, WaitUntil

POLICY = BatchPolicy(max_items=4, window_s=0.010, max_in_flight=2)


def machine(policy: BatchPolicy = POLICY) -> Batching[str]:
    return Batching(policy, policy.max_in_flight + 2)


def put(batching: Batching[str], item: str, now_s: float) -> Place:
    place = batching.claim(now_s)
    assert place is not None
    batching.fill(place, item, now_s)
    return place


def test_an_idle_accelerator_takes_a_lone_image_at_once_when_nothing_is_coming() -> None:
    batching = machine()
    put(batching, "a", 0.0)
    launch = batching.take(0.0, coming=0)
    assert isinstance(launch, Launch) and launch.items == ("a",)


def test_it_waits_for_company_that_can_arrive_in_the_window_and_no_longer() -> None:
    batching = machine()
    for step in range(12):
        put(batching, f"warm {step}", step * 0.002)
        while isinstance(launch := batching.take(step * 0.002, 0), Launch):
            batching.finish(launch.buffer)
    put(batching, "a", 0.100)
    step = batching.take(0.100, coming=3)
    assert isinstance(step, WaitUntil) and step.time_s == pytest.approx(0.110)
    launch = batching.take(0.110, coming=3)
    assert isinstance(launch, Launch) and launch.items == ("a",)


def test_it_never_waits_for_a_supply_too_slow_for_the_window() -> None:
    batching = machine()
    for step in range(20):
        put(batching, f"slow {step}", step * 0.5)
        launch = batching.take(step * 0.5, coming=5)
        if isinstance(launch, WaitUntil):
            assert step < 3, (
                "after a few arrivals half a second apart it is known that none meets in a window of 10 ms"
            )
            launch = batching.take(launch.time_s, coming=5)
        assert isinstance(launch, Launch)
        batching.finish(launch.buffer)


def test_a_busy_accelerator_collects_until_the_batch_is_full() -> None:
    batching = machine()
    put(batching, "first", 0.0)
    first = batching.take(0.0, 0)
    assert isinstance(first, Launch)
    for number in range(3):
        put(batching, f"b{number}", 0.001)
        assert batching.take(1.0, coming=0) is None, (
            "an unfilled batch has nothing to gain while the accelerator is busy"
        )
    put(batching, "b3", 0.002)
    second = batching.take(0.002, coming=0)
    assert isinstance(second, Launch) and second.items == ("b0", "b1", "b2", "b3")
    put(batching, "c", 0.003)
    assert batching.take(9.0, 0) is None, "two in flight are the limit"
    batching.finish(first.buffer)
    batching.finish(second.buffer)
    third = batching.take(9.0, 0)
    assert isinstance(third, Launch) and third.items == ("c",)


def test_a_row_being_written_is_waited_for_and_no_new_one_is_let_in() -> None:
    batching = machine()
    put(batching, "a", 0.0)
    writing = batching.claim(0.0)
    assert writing is not None
    assert batching.take(0.020, coming=0) is None
    late = batching.claim(0.021)
    assert late is not None and late.buffer != writing.buffer, "a closed batch takes no more rows"
    batching.fill(writing, "b", 0.022)
    launch = batching.take(0.022, coming=0)
    assert isinstance(launch, Launch) and launch.items == ("a", "b")


def test_a_failed_row_leaves_a_hole_and_an_empty_batch_leaves_nothing() -> None:
    batching = machine()
    place = batching.claim(0.0)
    assert place is not None
    batching.void(place)
    assert batching.queued == 0
    failing = batching.claim(1.0)
    assert failing is not None
    put(batching, "a", 1.0)
    batching.void(failing)
    launch = batching.take(1.0, 0)
    assert isinstance(launch, Launch) and launch.items == (None, "a")


def test_it_pushes_back_when_every_buffer_is_taken() -> None:
    batching = machine()
    claimed = 0
    while batching.claim(0.0) is not None:
        claimed += 1
    assert claimed == 4 * POLICY.max_items


def test_too_few_buffers_are_refused() -> None:
    with pytest.raises(ValueError, match="2 buffers"):
        Batching(POLICY, 2)


class BatchingAttack(RuleBasedStateMachine):
    """Any order of claims, fills, failures, takes and ends: nothing is lost, doubled, mixed or starved."""

    @initialize(
        max_items=st.integers(1, 5),
        window_ms=st.integers(0, 20),
        max_in_flight=st.integers(1, 3),
    )
    def begin(self, max_items: int, window_ms: int, max_in_flight: int) -> None:
        self.policy = BatchPolicy(max_items, window_ms / 1e3, max_in_flight)
        self.batching: Batching[int] = Batching(self.policy, max_in_flight + 2)
        self.now_s = 0.0
        self.next_item = 0
        self.writing: list[Place] = []
        self.placed: dict[Place, int] = {}
        self.launched: list[int] = []
        self.in_flight: list[Launch[int]] = []

    @rule(step_ms=st.integers(0, 30))
    def time_passes(self, step_ms: int) -> None:
        self.now_s += step_ms / 1e3

    @rule()
    def claim(self) -> None:
        place = self.batching.claim(self.now_s)
        if place is None:
            taken = {p.buffer for p in (*self.writing, *self.placed)} | {
                launch.buffer for launch in self.in_flight
            }
            assert len(taken) == self.policy.max_in_flight + 2, "refused although a buffer is free"
            return
        assert place not in self.writing and place not in self.placed
        assert 0 <= place.row < self.policy.max_items
        assert place.buffer not in {launch.buffer for launch in self.in_flight}, (
            "a running batch would be overwritten"
        )
        self.writing.append(place)

    @precondition(lambda self: self.writing)
    @rule(data=st.data())
    def fill(self, data: st.DataObject) -> None:
        place = data.draw(st.sampled_from(self.writing))
        self.writing.remove(place)
        self.placed[place] = self.next_item
        self.batching.fill(place, self.next_item, self.now_s)
        self.next_item += 1

    @precondition(lambda self: self.writing)
    @rule(data=st.data())
    def fail(self, data: st.DataObject) -> None:
        place = data.draw(st.sampled_from(self.writing))
        self.writing.remove(place)
        self.batching.void(place)

    @rule(coming=st.integers(0, 3))
    def take(self, coming: int) -> None:
        step = self.batching.take(self.now_s, coming)
        if isinstance(step, WaitUntil):
            assert coming > 0 and step.time_s > self.now_s
            assert not self.in_flight, "waiting is only for an idle accelerator"
        elif isinstance(step, Launch):
            self._launch(step)
        elif not self.in_flight and not self.writing:
            assert not self.placed, (
                "images are ready, the accelerator is idle, nothing is being written: it must run or wait"
            )

    def _launch(self, launch: Launch[int]) -> None:
        assert len(self.in_flight) < self.policy.max_in_flight
        assert 1 <= launch.rows <= self.policy.max_items
        for row, item in enumerate(launch.items):
            place = Place(launch.buffer, row)
            assert place not in self.writing, "a row was still being written"
            if item is not None:
                assert self.placed.pop(place) == item
                self.launched.append(item)
        assert not any(place.buffer == launch.buffer for place in self.placed)
        self.in_flight.append(launch)

    @precondition(lambda self: self.in_flight)
    @rule(data=st.data())
    def finish(self, data: st.DataObject) -> None:
        launch = data.draw(st.sampled_from(self.in_flight))
        self.in_flight.remove(launch)
        self.batching.finish(launch.buffer)

    @invariant()
    def books_balance(self) -> None:
        if hasattr(self, "batching"):
            assert self.next_item == len(self.launched) + len(self.placed)
            assert len(set(self.launched)) == len(self.launched)
            assert self.batching.in_flight == len(self.in_flight)
            assert self.batching.queued >= len(self.placed) + len(self.writing)

    def teardown(self) -> None:
        """Left alone, everything that was filled is run."""
        if not hasattr(self, "batching"):
            return
        for place in self.writing:
            self.batching.void(place)
        self.writing.clear()
        self.now_s += 1.0
        while self.placed:
            while self.in_flight:
                self.batching.finish(self.in_flight.pop().buffer)
            launch = self.batching.take(self.now_s, coming=9)
            assert isinstance(launch, Launch), "a filled image starves"
            self._launch(launch)


TestBatchingAttack = BatchingAttack.TestCase
TestBatchingAttack.settings = settings(max_examples=150, stateful_step_count=60, deadline=None)

"""Judging isolations: planted falls and planted parts are named, noise is not."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.isolation import buildup, foreign
from headrace.core.isolation.buildup import LEAST, Buildup, Step, Window, rate_of
from headrace.core.isolation.foreign import FULL, GARBAGE, LARGE_GARBAGE, SAME, TINY, Answers
from headrace.core.isolation.sentences import (
    chain_notes,
    chain_sentence,
    foreign_notes,
    foreign_sentence,
    won,
)

LINKS = ("model", "copy", "normalise", "batch", "resize", "decode", "fetch", "http")
ROUNDS = 5


def step(link: str, rates: Sequence[float], busy: float | None = 0.5, absent: str = "") -> Step:
    return Step(link, "", tuple(Window(rate, 10, busy, 1.0) for rate in rates), absent)


def climbed(rates: Sequence[float], noise: float = 0.0, drift: float = 0.0, seed: int = 0) -> list[Step]:
    """The links at these rates; every round slower by `drift`, every window off by up to `noise`."""
    rng = np.random.default_rng(seed)
    return [
        step(
            link,
            [rate * (1 - drift) ** number * (1 + rng.uniform(-noise, noise)) for number in range(ROUNDS)],
        )
        for link, rate in zip(LINKS, rates, strict=False)
    ]


# --- the buildup ---------------------------------------------------------------------------------------------------------------


@given(
    st.integers(1, 7), st.floats(0.05, 0.7), st.floats(0.0, 0.05), st.floats(0.0, 0.2), st.integers(0, 999)
)
def test_a_planted_fall_is_found(at: int, left: float, noise: float, drift: float, seed: int) -> None:
    """Whatever the link, the noise below it and the drift of the machine from round to round."""
    rates = [200.0 * (left if number >= at else 1.0) for number in range(len(LINKS))]
    found = buildup.judge(climbed(rates, noise, drift, seed))
    assert found.fall is not None and found.fall.link == LINKS[at] and found.fall.before == LINKS[at - 1]
    assert found.fall.share == pytest.approx(left - 1, abs=1e-9 + 2.5 * noise)
    assert found.ceilings[LINKS[at]] == pytest.approx(1 / left - 1, rel=0.3)


@given(st.floats(0.0, 0.024), st.floats(0.0, 0.3), st.integers(0, 999))
def test_noise_is_no_fall(noise: float, drift: float, seed: int) -> None:
    found = buildup.judge(climbed([50.0] * len(LINKS), noise, drift, seed))
    assert found.fall is None and not any(change.counts for change in found.changes)


def test_a_change_in_one_direction_that_is_smaller_than_its_noise_does_not_count() -> None:
    before, after = step("copy", [100.0] * 5), step("resize", [99.0, 98.0, 93.0, 60.0, 97.0])
    assert not buildup.compare(before, after).counts
    assert not buildup.compare(before, step("resize", [97.0] * 5)).counts
    assert not buildup.compare(before, step("resize", [80.0, 80.0, 80.0, 80.0, 101.0])).counts
    assert buildup.compare(before, step("resize", [80.0, 81.0, 79.0, 80.0, 84.0])).counts


def test_the_largest_fall_is_named_and_steps_without_windows_are_passed_over() -> None:
    steps = [
        step("model", [200.0] * 3),
        Step("copy", "", absent="no copy: the model runs in the host's memory"),
        step("resize", [150.0] * 3),
        step("decode", [30.0] * 3),
        step("http", [26.0] * 3),
    ]
    found = buildup.judge(steps)
    assert [(change.before, change.link) for change in found.changes] == [
        ("model", "resize"),
        ("resize", "decode"),
        ("decode", "http"),
    ]
    assert found.fall is not None and found.fall.link == "decode"
    assert found.ceilings == pytest.approx(
        {"resize": 200 / 26 - 1, "decode": 150 / 26 - 1, "http": 30 / 26 - 1}
    )


def test_one_step_is_no_buildup() -> None:
    with pytest.raises(ValueError, match="no buildup"):
        buildup.judge([step("model", [1.0]), Step("copy", "")])


def test_absent_figures_stay_absent() -> None:
    nobody = Step("http", "", (Window(10.0, 5, None, None), Window(12.0, 5, None, None)))
    assert nobody.busy is None and nobody.cpu_s is None and nobody.rate_per_s == 11.0
    some = Step("http", "", (Window(10.0, 5, None, None), Window(10.0, 5, 0.4, 2.0)))
    assert some.busy == 0.4 and some.cpu_s == pytest.approx(0.2)


@given(st.integers(1, 16), st.integers(2, 30), st.floats(0.001, 10.0), st.integers(0, 99))
def test_batches_are_counted_at_their_rate(size: int, batches: int, period_s: float, seed: int) -> None:
    """Whole batches, in any order: exactly their rate, however many or few."""
    ends = np.repeat(np.arange(batches) * period_s + 1000.0, size)
    np.random.default_rng(seed).shuffle(ends)
    assert rate_of(ends.tolist()) == pytest.approx(size / period_s, rel=1e-6)


def test_a_cut_batch_weighs_less_than_in_a_quotient() -> None:
    ends = sorted([0.0] * 1 + [0.2] * 8 + [0.4] * 8 + [0.6] * 8 + [0.8] * 8)
    assert rate_of(ends) == pytest.approx(40.0, rel=0.12)


def test_no_rate_from_one_moment() -> None:
    assert math.isnan(rate_of([])) and math.isnan(rate_of([1.0])) and math.isnan(rate_of([1.0] * 8))


# --- what is said of it ---------------------------------------------------------------------------------------------------------


def said(steps: Sequence[Step], preparing: Step, device: str = "cuda:0") -> tuple[str, str, Buildup]:
    found = buildup.judge(steps)
    batches = {1: step("model", [100.0] * ROUNDS), 8: steps[0]}
    notes = chain_notes(steps, found, preparing, batches, device)
    return chain_sentence(steps, found, (8, steps[0]), device), "\n".join(notes), found


def test_the_sentence_names_the_fall_the_ceiling_and_the_device() -> None:
    steps = climbed([225, 220, 218, 215, 212, 61, 60, 58])
    sentence, notes, _ = said(steps, step("preparing", [61.5] * ROUNDS))
    assert sentence == (
        "The chain falls off at decode: 61/s against 212/s before it (-71%). Ceiling: the model alone does 225/s at batch 8. "
        "Device busy 50%."
    )
    assert "A faster device wins nothing" in notes and "busy 25% in place of 50%" in notes
    assert "the chain would do 212/s (x3.66)" in notes
    assert "x2.25 at batch 8 against batch 1" in notes


def test_a_model_that_is_the_limit_is_said_to_be() -> None:
    sentence, notes, _ = said(climbed([40.0] * 8), step("preparing", [400.0] * ROUNDS))
    assert sentence.startswith("No link costs more than the noise") and "the model is the limit" in sentence
    assert "A faster device wins at most x10" in notes


def test_many_small_costs_are_not_hidden() -> None:
    rates = [100 * 0.96**number for number in range(8)]
    sentence, _, found = said(climbed(rates), step("preparing", [100.0] * ROUNDS))
    assert found.fall is None and "together they cost 25%" in sentence


def test_a_model_on_the_cpu_shares_its_cores() -> None:
    sentence, notes, _ = said(climbed([100.0] * 5 + [30.0] * 3), step("preparing", [45.0] * ROUNDS), "cpu")
    assert "the CPU, which preparation uses too" in sentence
    assert "a device of its own wins at most +50%" in notes


def test_a_noisy_run_says_so() -> None:
    _, notes, _ = said(climbed([100.0] * 8, noise=0.5), step("preparing", [100.0] * ROUNDS))
    assert "measure again when it is quiet" in notes
    _, quiet, _ = said(climbed([100.0] * 8), step("preparing", [100.0] * ROUNDS))
    assert "measure again" not in quiet


def test_changes_as_people_say_them() -> None:
    assert [won(share) for share in (0.32, -0.2, 0.999, 3.5)] == ["+32%", "-20%", "+100%", "x4.5"]


# --- a foreign service -----------------------------------------------------------------------------------------------------------

SIZES = {TINY: 0.001, "quarter": 0.75, "half": 3.0, FULL: 12.0, SAME: 12.0}


def answered(
    http_s: float,
    fixed_s: float,
    megapixel_s: float,
    body_s: float = 0.0,
    at_once: Callable[[int], float] = lambda clients: 1.0,
    same: float = 1.0,
    noise: float = 0.0,
    seed: int = 0,
) -> list[Answers]:
    """What a service of one chain would answer that works on `at_once` requests with so many clients."""
    rng = np.random.default_rng(seed)
    kinds = {GARBAGE: http_s, LARGE_GARBAGE: http_s + body_s}
    for kind, size in SIZES.items():
        kinds[kind] = http_s + fixed_s + megapixel_s * size + body_s * (size == 12.0)
    kinds[SAME] = kinds[FULL] / same
    rows = []
    for kind, seconds in kinds.items():
        for clients in (1, 4, 16):
            times = [seconds * (1 + rng.uniform(-noise, noise)) for _ in range(ROUNDS)]
            rates = tuple(at_once(clients) / time for time in times)
            latencies = tuple(clients / rate for rate in rates)
            rows.append(Answers(kind, clients, SIZES.get(kind, 0.0), 1000, rates, latencies))
    return rows


@given(
    st.sampled_from(["http", "fixed", "pixels", "body"]),
    st.floats(3.5, 50.0),
    st.floats(0.0, 0.04),
    st.integers(0, 999),
)
def test_the_planted_part_is_named(name: str, weight: float, noise: float, seed: int) -> None:
    times = {"http": 0.01, "fixed": 0.01, "pixels": 0.01, "body": 0.01}
    times[name] *= weight
    found = foreign.judge(
        answered(times["http"], times["fixed"], times["pixels"] / 12, times["body"], noise=noise, seed=seed)
    )
    assert found.slowest is not None and found.slowest.name == name
    expected = times[name] / sum(times.values())
    assert found.slowest.share == pytest.approx(expected, abs=0.03 + 2 * noise)
    assert foreign_sentence(found).startswith(f"The slowest link is {foreign.SAYS[name][0]}: ")


def test_no_part_is_named_when_none_is_half() -> None:
    found = foreign.judge(answered(0.001, 0.010, 0.009 / 12))
    assert found.slowest is not None and found.slowest.name == "fixed"
    found = foreign.judge(answered(0.004, 0.008, 0.008 / 12))
    assert found.slowest is None and foreign_sentence(found).startswith("No link takes half")


def test_shares_add_up() -> None:
    found = foreign.judge(answered(0.002, 0.04, 0.1 / 12, 0.01))
    assert sum(part.share for part in found.parts) == pytest.approx(1.0)
    assert sum(part.share for part in found.alone) == pytest.approx(1.0)
    assert [one.share >= other.share for one, other in pairwise(found.parts)] == [True] * 3


def test_cost_by_pixels_is_fitted() -> None:
    found = foreign.judge(answered(0.002, 0.038, 0.02))
    assert found.fit is not None
    assert found.fit.fixed_s == pytest.approx(0.040) and found.fit.per_megapixel_s == pytest.approx(0.02)
    assert found.fit.worst_s == pytest.approx(0.0, abs=1e-9)


def test_one_at_a_time_and_more() -> None:
    serial = answered(0.001, 0.04, 0.01)
    found = foreign.judge(serial)
    assert found.scaling == pytest.approx({1: 1.0, 4: 1.0, 16: 1.0})
    assert any("one image at a time" in note for note in foreign_notes(found, serial, None))
    two = answered(0.001, 0.04, 0.01, at_once=lambda clients: min(2.0, clients))
    assert foreign.judge(two).scaling == pytest.approx({1: 1.0, 4: 2.0, 16: 2.0})
    assert any("up to 2.0 times as much" in note for note in foreign_notes(foreign.judge(two), two, None))


def test_a_cache_shows_in_identical_bytes() -> None:
    assert foreign.judge(answered(0.001, 0.01, 0.01, same=8.0)).cached == pytest.approx(8.0)
    assert foreign.judge(answered(0.001, 0.01, 0.01, noise=0.1)).cached is None
    assert foreign.judge([row for row in answered(0.001, 0.01, 0.01) if row.kind != SAME]).cached is None


def test_a_known_model_is_held_against_the_fixed_part() -> None:
    rows = answered(0.001, 0.04, 0.01)
    notes = foreign_notes(foreign.judge(rows), rows, 0.02)
    assert any("50% of it would be the model" in note for note in notes)


def test_without_garbage_http_is_not_told_apart() -> None:
    rows = [row for row in answered(0.01, 0.03, 0.001) if row.kind not in (GARBAGE, LARGE_GARBAGE)]
    found = foreign.judge(rows)
    assert {part.name for part in found.parts} == {"fixed", "pixels"}
    assert next(part.share for part in found.parts if part.name == "fixed") == pytest.approx(
        0.040 / 0.052, abs=0.01
    )


def test_noise_alone_is_no_part() -> None:
    found = foreign.judge(answered(0.001, 0.04, 0.0, noise=0.1, seed=3))
    pixels = next(part for part in found.parts if part.name == "pixels")
    assert not pixels.counts and "decode" not in foreign_sentence(found)
    assert pixels.low <= LEAST


def test_what_cannot_be_judged() -> None:
    with pytest.raises(ValueError, match="not both answered"):
        foreign.judge([])
    with pytest.raises(ValueError, match="not both answered"):
        foreign.judge([row for row in answered(0.1, 0.1, 0.1) if row.kind != TINY])

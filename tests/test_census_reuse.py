"""Miss-ratio curves: exact against the definition, sampled against exact with the interval they claim, policies against whole runs."""

from __future__ import annotations

from collections.abc import Callable
from math import inf, isnan

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.census.cache import FEWEST_REQUESTS, cache_worth, hit_ratio
from headrace.core.census.reuse import (
    KeySample,
    KeySampler,
    Ratio,
    key_hash,
    lru_hit_ratios,
    stack_distances,
)
from headrace.core.census.traffic import repeats
from headrace.core.policy.eviction import POLICIES, Lru, S3Fifo

Trace = npt.NDArray[np.int64]


def zipf(requests: int, images: int, exponent: float, random: np.random.Generator) -> Trace:
    shares = np.arange(1, images + 1) ** -exponent
    return np.searchsorted(np.cumsum(shares / shares.sum()), random.random(requests))


def scan(requests: int, random: np.random.Generator) -> Trace:
    return np.arange(requests)


def loop(requests: int, random: np.random.Generator) -> Trace:
    return np.arange(requests) % 3000


def mixed(requests: int, random: np.random.Generator) -> Trace:
    kind = random.random(requests)
    others = np.where(kind < 0.8, 10**6 + np.cumsum(kind >= 0.6) % 2000, 10**7 + np.arange(requests))
    return np.where(kind < 0.6, zipf(requests, 8000, 1.0, random), others)


TRACES: dict[str, Callable[[int, np.random.Generator], Trace]] = {
    "zipf 1.0": lambda requests, random: zipf(requests, 8000, 1.0, random),
    "zipf 0.7": lambda requests, random: zipf(requests, 15_000, 0.7, random),
    "scan": scan,
    "loop": loop,
    "mixed": mixed,
}
SEEDS = 30
every_trace = pytest.mark.parametrize("name", TRACES)


def spread(trace: Trace, seed: int) -> npt.NDArray[np.uint64]:
    """Keys to 64 bits without pattern, another way for each seed (SplitMix64)."""
    mixed = trace.astype(np.uint64) + np.uint64((seed + 1) * 0x9E3779B97F4A7C15 % 2**64)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))


def all_of(trace: Trace, seed: int = 0) -> KeySample:
    return KeySample(spread(trace, seed), 1.0, len(trace))


@given(keys=st.lists(st.integers(0, 9), max_size=120))
def test_stack_distances_are_what_the_definition_says(keys: list[int]) -> None:
    expected, last = [], dict[int, int]()
    for place, key in enumerate(keys):
        expected.append(len(set(keys[last[key] + 1 : place])) if key in last else -1)
        last[key] = place
    assert stack_distances(np.array(keys, np.int64)).tolist() == expected


@given(keys=st.lists(st.integers(0, 30), min_size=1, max_size=150), entries=st.integers(1, 35))
def test_the_exact_curve_is_what_the_lru_cache_itself_does(keys: list[int], entries: int) -> None:
    cache, hits = Lru(entries), 0
    for key in keys:
        hits += cache.get(key)
        cache.put(key, 1)
    (ratio,) = lru_hit_ratios(all_of(np.array(keys, np.int64)), [entries])
    assert ratio == Ratio(pytest.approx(hits / len(keys)), 0.0)


@every_trace
def test_the_stated_interval_covers_the_truth_about_as_often_as_it_says(name: str) -> None:
    trace = TRACES[name](15_000, np.random.default_rng(11))
    sizes = [100, 300, 1000, 2000, 2900, 5000, inf]
    truth = np.array([ratio.value for ratio in lru_hit_ratios(all_of(trace), sizes)])
    covered, widths, errors = [], [], []
    for seed in range(SEEDS):
        sample = all_of(trace, seed).thinned(3500)
        assert sample.rate < 0.5
        found = np.array(lru_hit_ratios(sample, sizes))
        told = ~np.isnan(found[:, 0])
        assert told.sum() >= 4
        error = np.abs(found[:, 0] - truth)[told]
        covered.append(np.mean(error <= found[told, 1] + 1e-9))
        widths.append(found[told, 1].mean())
        errors.append(error.mean())
    assert np.mean(covered) >= 0.95 - 3 * np.sqrt(0.95 * 0.05 / SEEDS), "sizes of one curve are off together"
    if name != "loop":  # at the cliff of a loop the interval must be as wide as the cliff is high
        assert np.mean(errors) < 0.03 and np.mean(widths) < 0.08, "covering by being wide would be no feat"


def test_a_loop_is_a_cliff_and_the_interval_near_it_says_so() -> None:
    trace = loop(30_000, np.random.default_rng(0))
    before, near, after = lru_hit_ratios(all_of(trace).thinned(6000), [1500, 2950, 6000])
    assert before.value + before.half_width < 0.2 and after.value > 0.85 and after.half_width < 0.03
    assert near.half_width > 0.2 or not 0.1 < near.value < 0.85


@pytest.mark.parametrize("name", ["zipf 0.7", "mixed"])
def test_the_error_shrinks_with_the_sample(name: str) -> None:
    trace = TRACES[name](20_000, np.random.default_rng(12))
    (truth,) = lru_hit_ratios(all_of(trace), [1000])

    def mean_error(most: int) -> float:
        samples = [all_of(trace, seed).thinned(most) for seed in range(6)]
        return float(
            np.mean([abs(lru_hit_ratios(sample, [1000])[0].value - truth.value) for sample in samples])
        )

    half = mean_error(10_500)
    assert half < 0.03 and half < 0.7 * mean_error(700)


def test_sizes_too_small_for_the_sample_are_absent_not_guessed() -> None:
    sample = all_of(TRACES["zipf 1.0"](30_000, np.random.default_rng(1))).thinned(2000)
    small, large = lru_hit_ratios(sample, [5, 5000])
    assert isnan(small.value) and isnan(small.half_width) and 0 < large.value < 1


@given(keys=st.lists(st.integers(1, 2**64 - 1), max_size=200), most=st.integers(1, 60))
def test_the_sampler_keeps_every_request_of_the_images_it_keeps(keys: list[int], most: int) -> None:
    sampler = KeySampler(most)
    for key in keys:
        sampler.add(key)
    sample = sampler.sample()
    assert sample.requests == len(keys) and len(sample.keys) <= most
    assert sample.keys.tolist() == [key for key in keys if key < sample.rate * 2**64]
    assert (sample.rate == 1.0) == (len(keys) <= most)
    thin = sample.thinned(most // 2)
    assert thin.keys.tolist() == [key for key in keys if key < thin.rate * 2**64]


def test_one_image_asked_for_without_end_fits_any_sample() -> None:
    sampler = KeySampler(100)
    for number in range(5000):
        sampler.add(key_hash("hot") if number % 10 else key_hash(str(number)))
    sample = sampler.sample()
    assert sample.requests == 5000 and len(sample.keys) <= 100 and 0 < sample.rate < 1
    assert lru_hit_ratios(sample, [inf])[0].value == pytest.approx(0.9, abs=0.1)


def test_hashes_are_even_where_they_are_used() -> None:
    hashes = np.array([key_hash(f"/img/{number:07d}.jpg") for number in range(4000)], np.uint64)
    counts = np.bincount((hashes >> np.uint64(60)).astype(int), minlength=16)
    assert (
        len(set(hashes.tolist())) == 4000 and np.square(counts - 250).sum() / 250 < 38
    )  # chi-square, 15 df, 0.1 %
    counts = np.bincount((hashes % np.uint64(10)).astype(int))
    assert np.square(counts - 400).sum() / 400 < 28  # 9 df, 0.1 %


@every_trace
def test_s3fifo_on_a_sample_is_near_the_run_on_everything(name: str) -> None:
    """Away from the cliff that a loop of 3,000 images is to S3-FIFO at about half of them."""
    trace = TRACES[name](15_000, np.random.default_rng(13))
    whole = all_of(trace)
    errors, covered = [], []
    for entries in (800, 2200):
        (lru,) = lru_hit_ratios(whole, [entries])
        truth = hit_ratio(whole, entries, S3Fifo, lru)
        assert truth.half_width == 0.0
        for seed in range(3):
            found = hit_ratio(all_of(trace, seed).thinned(4000), entries, S3Fifo, lru)
            errors.append(abs(found.value - truth.value))
            covered.append(errors[-1] <= found.half_width + 0.005)
    assert np.mean(errors) < 0.02 and np.mean(covered) >= 0.8


def test_a_policy_on_everything_is_exact() -> None:
    keys = mixed(3000, np.random.default_rng(2))
    (lru,) = lru_hit_ratios(all_of(keys), [200])
    for name, policy in POLICIES.items():
        cache, hits = policy(200), 0
        for key in keys.tolist():
            if cache.get(key):
                hits += 1
            else:
                cache.put(key, 1)
        assert hit_ratio(all_of(keys), 200, policy, lru).value == pytest.approx(hits / 3000), name


def test_the_worth_of_a_cache_ends_at_what_can_be_answered_at_all() -> None:
    trace = TRACES["zipf 1.0"](6_000, np.random.default_rng(3))
    images = len(np.unique(trace))
    worth = cache_worth(all_of(trace), images)
    assert worth is not None and worth.rate == 1.0
    assert worth.ceiling.value == pytest.approx(1 - images / 6_000)
    assert [size.entries for size in worth.sizes] == [10, 20, 50, 100, 200, 500, 1000, images]
    assert 1000 < images < 2000
    assert all(ratio == worth.ceiling for ratio in worth.sizes[-1].hits.values())
    hits = [size.hits["lru"].value for size in worth.sizes]
    assert hits == sorted(hits) and worth.enough.hits["lru"].value >= 0.9 * worth.ceiling.value
    before = worth.sizes[worth.sizes.index(worth.enough) - 1]
    assert before.hits["lru"].value < 0.9 * worth.ceiling.value
    assert set(cache_worth(all_of(trace), images, ["sieve"]).sizes[0].hits) == {"lru", "sieve"}  # type: ignore[union-attr]


def test_sieve_is_told_of_whole_traffic_only() -> None:
    sample = all_of(TRACES["zipf 1.0"](3_000, np.random.default_rng(3)))
    exact = cache_worth(sample, sample.images, ["sieve", "s3fifo"])
    by_sample = cache_worth(sample, sample.images, ["sieve", "s3fifo"], most_simulated=1000)
    assert exact is not None and by_sample is not None
    *sizes, full = zip(exact.sizes, by_sample.sizes, strict=True)
    for size, sampled in sizes:
        assert 0 <= size.hits["sieve"].value <= 1 and isnan(sampled.hits["sieve"].value)
        assert sampled.hits["lru"] == size.hits["lru"]
    assert full[0] == full[1]
    assert any(not isnan(sampled.hits["s3fifo"].value) for _, sampled in sizes)


def test_unique_images_are_worth_nothing_and_few_requests_say_nothing() -> None:
    worth = cache_worth(all_of(np.arange(5000)), 5000)
    assert worth is not None and worth.ceiling == Ratio(0.0, 0.0)
    assert all(ratio.value == 0 for size in worth.sizes for ratio in size.hits.values())
    assert cache_worth(all_of(np.zeros(FEWEST_REQUESTS - 1, np.int64)), 1) is None


def test_repeats_of_the_first_requests() -> None:
    assert repeats(all_of(np.array([1, 2, 1, 1, 3])), 4) == {"first": 2, "repeat": 2}
    trace = zipf(40_000, 4000, 1.0, np.random.default_rng(4))
    exact = repeats(all_of(trace), 20_000)
    for seed in range(5):
        thin = all_of(trace, seed).thinned(10_000)
        tally = repeats(thin, 20_000)
        assert sum(tally.values()) == round(20_000 * thin.rate)
        assert tally["repeat"] / sum(tally.values()) == pytest.approx(exact["repeat"] / 20_000, abs=0.05)

"""Comparing two sets: distances against their definitions, no false alarm on small samples, planted differences found, the sentence."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.census.compare import Difference, compare, ks_distance, ks_noise, of_kinds, tv_noise
from headrace.core.census.facts import ImageFacts, Makeup, MakeupCounter, Sizes
from headrace.core.census.findings import duration, mismatch, percent

VALUES = st.lists(st.integers(1, 40), min_size=1, max_size=60)
FORMATS = ["jpeg", "png", "webp", "gif"]


def sizes(values: list[int]) -> Sizes:
    return Sizes.of(Counter(values))


@given(one=VALUES, other=VALUES)
def test_the_distance_is_the_largest_gap_between_the_shares_up_to_a_size(
    one: list[int], other: list[int]
) -> None:
    gaps = [
        abs(
            sum(value <= limit for value in one) / len(one)
            - sum(value <= limit for value in other) / len(other)
        )
        for limit in range(41)
    ]
    assert ks_distance(sizes(one), sizes(other)) == pytest.approx(max(gaps))
    assert ks_distance(sizes(one), sizes(one)) == 0


@given(values=VALUES, share=st.floats(0.01, 1))
def test_quantiles_are_values_that_so_many_do_not_exceed(values: list[int], share: float) -> None:
    found = sizes(values).quantile(share)
    assert found in values
    assert sum(value <= found for value in values) >= share * len(values) - 1e-6
    assert sum(value < found for value in values) < share * len(values)


def photos(random: np.random.Generator, images: int, megapixels: float = 12.0, png: float = 0.1) -> Makeup:
    """A plausible set: log-normal pixels, bytes that go with them, some kinds."""
    counter = MakeupCounter()
    for number in range(images):
        width = max(1, int(4000 * (megapixels / 12) ** 0.5 * random.lognormal(0, 0.25)))
        name = "png" if random.random() < png else "jpeg"
        scans = None if name == "png" else "progressive" if random.random() < 0.3 else "baseline"
        counter.add(ImageFacts(str(number), name, width, width * 3 // 4, width * width // 4, None, scans))
    return counter.makeup()


def test_two_samples_of_one_source_are_called_different_hardly_ever() -> None:
    random = np.random.default_rng(3)
    alarms = checks = 0
    for round_ in range(60):
        counts = [(8, 8), (8, 300), (100, 100), (40, 900)][round_ % 4]
        differences = compare(photos(random, counts[0]), photos(random, counts[1]))
        alarms += sum(difference.finding == "differs" for difference in differences)
        checks += len(differences)
    assert checks == 60 * 4
    assert alarms <= 0.02 * checks


def test_the_noise_of_sizes_is_exceeded_about_once_in_a_hundred() -> None:
    random = np.random.default_rng(4)
    for one, other in ((20, 30), (200, 200)):
        distances = [
            ks_distance(
                sizes(random.integers(0, 10**6, one).tolist()),
                sizes(random.integers(0, 10**6, other).tolist()),
            )
            for _ in range(700)
        ]
        assert 0.001 < np.mean(np.array(distances) > ks_noise(one, other)) < 0.02


def test_the_noise_of_kinds_is_a_bound_and_not_a_loose_one() -> None:
    random = np.random.default_rng(5)
    shares = np.array([0.6, 0.25, 0.1, 0.05])
    expected = dict(zip(FORMATS, shares.tolist(), strict=True))
    for one, other in ((20, 30), (200, 200)):
        draws = random.multinomial(one, shares, 2000) / one - random.multinomial(other, shares, 2000) / other
        distances = np.abs(draws).sum(axis=1) / 2
        noise = tv_noise(expected, expected, one, other)
        assert np.mean(distances > noise) <= 0.01
        assert noise < 1.7 * np.quantile(distances, 0.99)


def verdict(production: Makeup, test: Makeup) -> list[str]:
    return list(mismatch(compare(production, test), (production.images, test.images)))


def test_the_mismatch_that_started_it_all() -> None:
    production, test = MakeupCounter(), MakeupCounter()
    for number in range(200):
        production.add(ImageFacts(f"p{number}", "jpeg", 4000, 3000, 3_400_000, scans="baseline"))
        test.add(ImageFacts(f"t{number}", "jpeg", 256, 256, 20_000, scans="baseline"))
    first, *rest = verdict(production.makeup(), test.makeup())
    assert first == (
        "The test set is not like production: production images have 183 times the pixels (median 12.0 MP against 0.066 MP)."
    )
    assert rest == ["Also: production images have 170 times the bytes (median 3.2 MiB against 19.5 KiB)."]
    assert verdict(test.makeup(), production.makeup())[0] == (
        "The test set is not like production: test images have 183 times the pixels (median 12.0 MP against 0.066 MP)."
    )


def test_kinds_and_tails_that_differ_are_told() -> None:
    random = np.random.default_rng(6)
    said = verdict(photos(random, 400, png=0.6), photos(random, 400))
    assert any("format" in sentence and "of production" in sentence for sentence in said)
    counter = MakeupCounter()
    for number in range(400):
        counter.add(ImageFacts(str(number), "jpeg", 9000 if number % 5 == 0 else 3000, 3000, None))
    few = MakeupCounter()
    for number in range(400):
        few.add(ImageFacts(str(number), "jpeg", 3000, 3000, None))
    assert verdict(counter.makeup(), few.makeup())[0].endswith(
        "the largest production images have 3 times the pixels (95th percentile 27.0 MP against 9.0 MP)."
    )


def test_small_shifts_are_no_mismatch_however_sure() -> None:
    one, other = MakeupCounter(), MakeupCounter()
    for number in range(1000):
        one.add(ImageFacts(str(number), "jpeg", 4000, 3000, None))
        other.add(ImageFacts(str(number), "jpeg", 4032, 3024, None))
    (pixels,) = (found for found in compare(one.makeup(), other.makeup()) if found.property == "pixels")
    assert pixels.distance == 1.0 and pixels.finding == "alike"
    assert verdict(one.makeup(), other.makeup()) == ["The test set is like production in pixels and format."]


def test_too_few_images_are_said_to_be_too_few() -> None:
    random = np.random.default_rng(7)
    (said,) = verdict(photos(random, 5), photos(random, 6))
    assert said.startswith(
        "No difference shows between test set and production, but 5 and 6 images are too few"
    )
    many = (photos(random, 100), photos(random, 100))
    assert "100 and 100 images are too few to tell in" in verdict(*many)[0]
    assert "some 200 on each side would do" in verdict(*many)[0], "more than there are"
    assert verdict(Makeup(3, 3.0, {}, {}), photos(random, 5))[0].startswith(
        "Test set and production know no property in common"
    )


def test_a_difference_that_would_matter_is_not_called_alike_for_want_of_images() -> None:
    """Twice the pixels in the median, of sizes that spread over several hundredfold."""
    random = np.random.default_rng(3)
    found = []
    for _ in range(40):
        sides = []
        for scale in (1.0, 2.0):
            counter = MakeupCounter()
            for number, pixels in enumerate(scale * np.exp(random.normal(14, 1.5, 100))):
                counter.add(ImageFacts(str(number), None, int(pixels), 1, None))
            sides.append(counter.makeup())
        found += [one.finding for one in compare(*sides)]
    assert found.count("alike") <= 4 and found.count("differs") >= 10


def test_one_image_asked_for_all_the_time_is_no_proof() -> None:
    one, other = MakeupCounter(), MakeupCounter()
    for counter, hot in ((one, 4000), (other, 400)):
        counter.add(ImageFacts("hot", "jpeg", hot, hot, None), times=9000)
        for number in range(300):
            counter.add(ImageFacts(str(number), "jpeg", 1000, 1000, None))
    (pixels,) = (found for found in compare(one.makeup(), other.makeup()) if found.property == "pixels")
    assert pixels.distance > 0.9 and pixels.noise > 1 and pixels.finding == "too few to tell"


def test_images_count_as_often_as_they_are_asked_for() -> None:
    counter = MakeupCounter()
    counter.add(ImageFacts("a", "jpeg", 10, 10, 5), times=3)
    counter.add(ImageFacts("b", "png", 20, 20, 7), times=1)
    counter.add(ImageFacts("never", "gif", 1, 1, 1), times=0)
    makeup = counter.makeup()
    assert makeup.worth == 4**2 / (3**2 + 1**2)
    assert makeup.images == 2 and makeup.kinds["format"] == {"jpeg": 3, "png": 1}
    assert makeup.sizes["pixels"].counts.tolist() == [3, 1] and makeup.sizes["bytes"].quantile(0.5) == 5


def test_a_given_label_is_the_one_told_of() -> None:
    found = of_kinds(
        "repeats", {"first": 90, "repeat": 10}, {"first": 10, "repeat": 90}, (100, 100), label="repeat"
    )
    assert (found.label, found.production, found.test) == ("repeat", 0.1, 0.9)
    (said,) = mismatch([found], (100, 100))
    assert said == (
        "The test set is not like production: 10.0 % of production's requests repeat an image, 90.0 % of the test set's."
    )
    assert isinstance(found, Difference) and found.finding == "differs"


@pytest.mark.parametrize(
    ("share", "text"),
    [
        (0, "0 %"),
        (1, "100 %"),
        (0.00001, "0.01 %"),
        (0.0004, "0.04 %"),
        (0.12345, "12.3 %"),
        (0.99999, "99.99 %"),
        (0.9995, "99.95 %"),
    ],
)
def test_percent_never_rounds_to_all_or_nothing(share: float, text: str) -> None:
    assert percent(share) == text


@pytest.mark.parametrize(
    ("span_s", "text"),
    [(0.4, "0 s"), (59, "59 s"), (100, "1 min 40 s"), (8016, "2 h 13 min"), (90_000, "1 d 1 h")],
)
def test_durations_in_two_units(span_s: float, text: str) -> None:
    assert duration(span_s) == text

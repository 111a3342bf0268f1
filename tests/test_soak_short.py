"""A few hundred mixed requests leave no thread, no open file and no heap of memory behind."""

from __future__ import annotations

from pathlib import Path

import pytest
from bench.soak import Look, Soak, growth, soak

from pictures import encoded, picture

REQUESTS = 400
MEMORY_BOUND = 256 * 2**20
"""Resident: several times what the process needs for these images."""


def test_a_short_soak(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(Path(__file__).parent.parent)  # where the bench's processes find their module
    large = encoded(picture(1600, 1200), "JPEG", quality=95)
    found = soak(
        REQUESTS,
        {
            "small": [encoded(picture(256, 256), "JPEG")],
            "large": [large],
            "png": [encoded(picture(640, 480), "PNG")],
            "junk": [bytes(20_000)],
            "truncated": [large[:5_000]],
            "cut": [large],
        },
    )
    first, last = found.looks[0], found.looks[-1]
    assert last.sent == REQUESTS
    assert not found.wrong
    assert last.threads <= first.threads
    assert last.files <= first.files
    assert last.peak_bytes < MEMORY_BOUND


def look(sent: int, threads: int = 8, files: int = 20) -> Look:
    return Look(sent, 100, 100, threads, files, 0.0, 1.0)


def test_growth_is_that_of_the_fitted_line() -> None:
    assert growth([(x, 1000) for x in range(10)]) == 0
    assert growth([(x, 1000 + 10 * x) for x in range(11)]) == pytest.approx(100 / 1050)
    assert growth([(0, 1010), (1, 990), (2, 1010), (3, 990), (4, 1010)]) == pytest.approx(0)


def test_the_start_is_left_out_and_the_rest_is_judged() -> None:
    filling = tuple((x, 100 + min(x, 25)) for x in range(101))
    assert Soak((look(1), look(2)), filling, {}).complaints == ()
    leaking = tuple((x, 1000 + x) for x in range(101))
    assert "resident memory grew by 6.6%" in Soak((look(1), look(2)), leaking, {}).complaints[0]


def test_threads_files_and_wrong_answers_are_complaints() -> None:
    flat = ((0, 100), (100, 100))
    found = Soak((look(1), look(2, threads=9, files=21)), flat, {("small", 500): 3}).complaints
    assert found == (
        "threads grew from 8 to 9",
        "open files grew from 20 to 21",
        "3 requests of kind 'small' were answered 500",
    )

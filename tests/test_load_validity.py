"""A run is doubted for each thing the tester did to it, and for nothing else."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.load.figures import PhaseFigures
from headrace.core.load.server_timing import StageTime, stage_times
from headrace.core.load.validity import percent, touched_max, validity
from headrace.records.timeline import Span, server_timing

GOOD = PhaseFigures(
    name="run",
    began_s=5.0,
    ended_s=15.0,
    intended=20_000,
    sent=20_000,
    late=0,
    waited=0,
    again=0,
    last_start_s=14.9995,
    ok=20_000,
    failed={},
    unsent=0,
    cpu_s=3.0,
    worst_lag_s=0.002,
    lagged_s=0.0,
)


def test_a_run_without_blemish_is_valid() -> None:
    assert validity(GOOD) == validity(GOOD, 0.999)
    assert validity(GOOD).valid and validity(GOOD).reasons == ()


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"late": 101}, "the tester could not keep up"),
        ({"late": 101, "waited": 101}, "all connections were taken"),
        ({"unsent": 101, "ok": 19_899}, "never sent"),
        ({"last_start_s": 15.2}, "intended"),
        ({"failed": {"no_socket": 101}, "ok": 19_899}, "socket or port"),
        ({"failed": {"abandoned": 101}, "ok": 19_899}, "wait longer"),
        ({"cpu_s": 8.1}, "bottleneck"),
        ({"lagged_s": 0.051, "worst_lag_s": 0.051}, "stood still"),
        ({"ok": 999, "failed": {"http_503": 19_001}}, "too few for p99"),
    ],
)
def test_each_fault_of_the_tester_is_named(change: dict[str, object], word: str) -> None:
    found = validity(replace(GOOD, **change))  # type: ignore[arg-type]
    assert not found.valid
    assert any(word in reason for reason in found.reasons), found.reasons


@pytest.mark.parametrize(
    "change",
    [
        {"late": 100},
        {"unsent": 100, "ok": 19_900},
        {"last_start_s": 15.05},
        {"cpu_s": 7.9},
        {"lagged_s": 0.049, "worst_lag_s": 0.049},
        {"ok": 1000, "failed": {"http_503": 19_000}},
        {"failed": {"timeout": 10_000, "http_404": 1}, "ok": 9_999},
    ],
)
def test_what_stays_within_the_lines_or_is_the_services_fault_is_not_held_against_it(
    change: dict[str, object],
) -> None:
    assert validity(replace(GOOD, **change)).reasons == ()  # type: ignore[arg-type]


@given(st.sampled_from([0.5, 0.9, 0.95, 0.99, 0.999]), st.integers(0, 20_000))
def test_the_higher_the_quantile_the_less_may_be_late(quantile: float, late: int) -> None:
    found = validity(replace(GOOD, late=late), quantile)
    assert found.valid == (late <= touched_max(quantile) * 20_000)


def test_a_phase_in_which_nothing_was_intended_has_too_few() -> None:
    nothing = replace(GOOD, intended=0, sent=0, ok=0, ended_s=5.0, cpu_s=0.0)
    assert len(validity(nothing).reasons) == 1


def test_a_higher_quantile_takes_more_answers() -> None:
    assert "10,000" in validity(replace(GOOD, ok=9_999), 0.999).reasons[-1]
    assert validity(replace(GOOD, ok=10_000), 0.999).valid


# --- Server-Timing ---------------------------------------------------------------------------------------------------------


def test_what_our_server_writes_is_read_back() -> None:
    spans = (Span("fetch", 0.0, 0.001), Span("decode", 0.0015, 0.008), Span("batch", 0.002, 0.0))
    assert stage_times(server_timing(spans)) == [
        StageTime("fetch", 0, 1000),
        StageTime("decode", 1500, 8000),
        StageTime("batch", 2000, 0),
    ]


@pytest.mark.parametrize(
    ("header", "times"),
    [
        ('cache;desc="hit, or not";dur=1.5', [StageTime("cache", 0, 1500)]),
        ('db; DUR="2"', [StageTime("db", 0, 2000)]),
        ("miss, db;dur=abc, x;dur=nan, y;dur=-1, z;dur=1e300", []),
        ("-wait;dur=1", []),
        ("a;dur=1, a;dur=2", [StageTime("a", 0, 3000)]),
        ("n" * 65 + ";dur=1", []),
    ],
)
def test_what_others_write_is_read_as_far_as_it_makes_sense(header: str, times: list[StageTime]) -> None:
    assert stage_times(header) == times


@given(st.text(max_size=300))
def test_no_header_is_too_strange(header: str) -> None:
    for _, wait_us, service_us in stage_times(header):
        assert 0 <= wait_us < 2**31 and 0 <= service_us < 2**31


def test_no_more_than_32_entries_are_read() -> None:
    assert len(stage_times(", ".join(f"s{n};dur=1" for n in range(1000)))) == 32


def test_a_short_run_is_no_excuse_for_late_requests() -> None:
    short = replace(GOOD, intended=200, ok=200)
    assert validity(short, 0.99, answers_for=0.9).valid
    assert validity(replace(short, late=1), 0.99, answers_for=0.9).valid, "one of them says nothing"
    assert not validity(replace(short, late=2), 0.99, answers_for=0.9).valid
    assert validity(replace(short, late=2), 0.9).valid


@pytest.mark.parametrize(
    ("share", "text"),
    [(0.0, "0 %"), (0.0312, "3.1 %"), (0.31, "31 %"), (0.994, "99 %"), (0.99999, "99.9 %"), (1.0, "100 %")],
)
def test_shares_are_told_in_plain_figures(share: float, text: str) -> None:
    assert percent(share) == text


def test_a_run_without_any_right_answer_says_so() -> None:
    found = validity(replace(GOOD, ok=0, failed={"http_503": 20_000}))
    assert found.reasons == ("no request was answered right",)

"""Service curves: what the emulated accelerator's setting means, and what it refuses."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.queueing.service_curve import ServiceCurve, parse_curve, parse_emulated
from headrace.errors import SettingError


@pytest.mark.parametrize("text", ["2ms+5ms", "2+5", " 2 ms + 5 ms ", "2000us+0.005s", "2.0+5."])
def test_base_and_per_image(text: str) -> None:
    curve = parse_curve(text)
    assert [curve.seconds(n) for n in (1, 2, 8)] == pytest.approx([0.007, 0.012, 0.042])


@pytest.mark.parametrize(
    ("batch", "milliseconds"),
    [(1, 12), (2, 12 + 28 / 3), (4, 40), (6, 50), (8, 60), (9, 65), (16, 100)],
)
def test_table_is_linear_between_and_above(batch: int, milliseconds: float) -> None:
    curve = parse_curve("1=12ms,4=40ms,8=60ms")
    assert curve.seconds(batch) == pytest.approx(milliseconds * 1e-3)


def test_table_edges() -> None:
    late = parse_curve("4=40,8=60")
    assert late.seconds(1) == late.seconds(4) == pytest.approx(0.040)
    assert parse_curve("4=40").seconds(8) == pytest.approx(0.080)
    assert parse_curve("1=9,2=4").seconds(100) == pytest.approx(0.004), "never falls above the last point"


def test_options() -> None:
    spec = parse_emulated("emulated:1=12ms,4=40ms;launch=0.1ms;copy=1ms+0.2ms")
    assert spec.launch_s == pytest.approx(1e-4)
    assert [spec.copy.seconds(n) for n in (1, 6)] == pytest.approx([1.2e-3, 2.2e-3])
    assert parse_emulated("emulated:2+5;copy=1").copy.seconds(64) == pytest.approx(1e-3)
    assert parse_emulated("2+5").copy.seconds(3) == 0.0


@pytest.mark.parametrize(
    ("text", "quoted"),
    [
        ("emulated:", "''"),
        ("emulated:5ms", "'5ms'"),
        ("emulated:2+5+1", "'2+5+1'"),
        ("emulated:2+fast", "'fast'"),
        ("emulated:-2+5", "'-2'"),
        ("emulated:2ms+5kg", "'5kg'"),
        ("emulated:nan+1", "'nan'"),
        ("emulated:1e3+1", "'1e3'"),
        ("emulated:0+0", "no time"),
        ("emulated:2h+1", "'2h'"),
        ("emulated:1=12ms,1=13ms", "do not rise"),
        ("emulated:4=12ms,1=13ms", "do not rise"),
        ("emulated:0=12ms", "outside 1 to"),
        ("emulated:1=1,99999999999999999999=2", "outside 1 to"),
        ("emulated:one=12ms", "'one=12ms'"),
        ("emulated:١=12ms", "BATCH=TIME"),
        ("emulated:1=12ms,", "''"),
        ("emulated:2+5;lunch=1ms", "'lunch=1ms'"),
        ("emulated:2+5;copy=1;copy=2", "'copy=2'"),
        ("emulated:2+5;", "''"),
        ("emulated:2+5;launch=", "''"),
    ],
)
def test_refusals_quote_the_part_and_give_the_grammar(text: str, quoted: str) -> None:
    with pytest.raises(SettingError) as caught:
        parse_emulated(text)
    assert quoted in str(caught.value)
    assert len(str(caught.value)) < 700


def test_no_batch_without_images() -> None:
    with pytest.raises(ValueError, match="at least one image"):
        ServiceCurve(((1, 0.1),), 0.0).seconds(0)


@given(st.text(alphabet="0123456789=,.;+ msuhcopylaunch:-e\n", max_size=30))
def test_any_text_parses_or_is_refused(text: str) -> None:
    try:
        spec = parse_emulated(text)
    except SettingError:
        return
    assert spec.launch_s >= 0.0 and spec.compute.seconds(1) > 0.0 and spec.copy.seconds(1) >= 0.0


@given(
    st.dictionaries(st.integers(1, 500), st.integers(1, 10_000), min_size=1, max_size=6),
    st.integers(1, 600),
)
def test_tables_pass_through_their_points_and_stay_between_neighbours(
    table: dict[int, int], batch: int
) -> None:
    points = sorted(table.items())
    curve = parse_curve(",".join(f"{size}={micros}us" for size, micros in points))
    for size, micros in points:
        assert curve.seconds(size) == pytest.approx(micros * 1e-6)
    around = [micros for size, micros in points if size <= batch][-1:] + [
        m for size, m in points if size >= batch
    ][:1]
    if batch <= points[-1][0]:
        assert min(around) * 1e-6 <= curve.seconds(batch) * (1 + 1e-9) and curve.seconds(batch) <= max(
            around
        ) * 1e-6 * (1 + 1e-9)
    else:
        assert curve.seconds(batch) >= points[-1][1] * 1e-6 * (1 - 1e-9)

"""Settings, units, timelines, histograms: the small things everything leans on."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.stats.histogram import DURATION_BOUNDS_S, Histogram
from headrace.core.stats.share import ShareWindow
from headrace.errors import HeadraceError, SettingError
from headrace.records.recipe import Recipe
from headrace.records.settings import BY_NAME, TABLE, Settings, changed
from headrace.records.timeline import STAGES, Timeline, server_timing
from headrace.serve.engine.cores import cpu_quota_cores
from headrace.store.settings_files import load_settings, split_assignment
from headrace.units import format_bytes, parse_bytes, parse_duration_s


def test_every_setting_has_a_sentence_a_dotted_name_and_a_default_within_bounds() -> None:
    for info in TABLE:
        assert info.says.endswith(".") and len(info.says) > 10, info.name
        assert changed(Settings(), {info.name: info.default}) == Settings()
        if info.kind in (int, float) and not info.one_of:
            assert info.low is not None and info.high is not None, f"{info.name} has no bounds"


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("batch.max_items", "0", "outside 1 to 1024"),
        ("batch.max_items", "four", "whole number"),
        ("batch.max_items", "4.5", "whole number"),
        ("batch.window_ms", "nan", "outside"),
        ("decode.fidelity", "best", "fast, exact"),
        ("decode.skip_scans", "maybe", "true or false"),
        ("limits.max_body_bytes", "3 parsecs", "64MiB"),
        ("decode.wrokers", "2", "decode.workers"),
        ("colour", "2", "headrace settings"),
        ("batch.max_items", True, "whole number"),
    ],
)
def test_a_wrong_setting_is_named_with_what_would_fit(name: str, value: object, says: str) -> None:
    with pytest.raises(SettingError) as caught:
        changed(Settings(), {name: value})
    assert says in str(caught.value) and (name in str(caught.value))


def test_sources_win_in_order_and_say_where_they_are_wrong(tmp_path: Path) -> None:
    file = tmp_path / "settings.toml"
    file.write_text("[batch]\nmax_items = 2\nwindow_ms = 9\n[limits]\nmax_body_bytes = '1MiB'\n")
    settings = load_settings(file, {"HEADRACE_BATCH_MAX_ITEMS": "3", "PATH": "/"}, {"batch.max_items": "5"})
    assert (settings.batch_max_items, settings.batch_window_ms, settings.limits_max_body_bytes) == (
        5,
        9.0,
        2**20,
    )
    assert load_settings(file, {"HEADRACE_BATCH_MAX_ITEMS": "3"}, {}).batch_max_items == 3
    with pytest.raises(SettingError, match="HEADRACE_BATCH_ITEMS"):
        load_settings(None, {"HEADRACE_BATCH_ITEMS": "3"}, {})
    with pytest.raises(SettingError, match=r"command line.*0"):
        load_settings(None, {}, {"batch.max_items": "0"})
    file.write_text("[batch\n")
    with pytest.raises(SettingError, match="not TOML"):
        load_settings(file, {}, {})
    with pytest.raises(SettingError, match="cannot be read"):
        load_settings(tmp_path / "none.toml", {}, {})
    with pytest.raises(SettingError, match="NAME=VALUE"):
        split_assignment("batch.max_items")


def test_names_and_attributes_agree() -> None:
    assert BY_NAME["server.metrics_port"].attribute == "server_metrics_port"
    assert len(BY_NAME) == len(TABLE)


@given(st.integers(0, 2**50))
def test_bytes_round_trip(count: int) -> None:
    assert parse_bytes(str(count)) == count
    assert parse_bytes(f"{count}KiB") == count * 1024
    assert format_bytes(count)


def test_durations_need_a_unit() -> None:
    assert parse_duration_s("250ms") == 0.25 and parse_duration_s("5m") == 300
    for text in ("250", "", "-1s", "1 day", "ms"):
        with pytest.raises(ValueError, match="250ms"):
            parse_duration_s(text)


@given(st.lists(st.one_of(st.just(0.0), st.floats(0.001, 100)), min_size=10, max_size=10))
def test_spans_are_never_negative_and_add_up_whatever_the_marks(marks: list[float]) -> None:
    timeline = Timeline(1.0)
    names = [name for name in Timeline.__slots__ if name != "arrived_s"]
    for name, mark in zip(names, marks, strict=True):
        setattr(timeline, name, mark)
    spans = timeline.spans()
    assert tuple(span.stage for span in spans) == STAGES
    assert all(span.wait_s >= 0 and span.service_s >= 0 for span in spans)
    assert timeline.latency_s == pytest.approx(max(1.0, *marks) - 1.0)
    assert "-0" not in server_timing(spans)


@given(st.lists(st.floats(0, 60), min_size=1, max_size=200))
def test_a_histogram_keeps_count_and_sum_and_brackets_its_quantiles(values: list[float]) -> None:
    histogram = Histogram(DURATION_BOUNDS_S)
    for value in values:
        histogram.add(value)
    assert histogram.count == len(values) and histogram.total == pytest.approx(sum(values))
    for share in (0.5, 0.99, 1.0):
        exact = sorted(values)[max(0, math.ceil(share * len(values)) - 1)]
        high = next((bound for bound in DURATION_BOUNDS_S if exact <= bound), DURATION_BOUNDS_S[-1])
        low = max((bound for bound in DURATION_BOUNDS_S if bound < exact), default=0.0)
        assert min(low, DURATION_BOUNDS_S[-1]) <= histogram.quantile(share) <= high
    assert math.isnan(Histogram((1,)).quantile(0.5))


def test_a_busy_share_is_that_of_the_last_window() -> None:
    window = ShareWindow(0.0, 10.0)
    assert window.share(0.0, 0.0) == (0.0, 0.0)
    assert window.share(5.0, 5.0) == (5.0, 1.0)
    window.share(10.0, 10.0)
    window.share(20.0, 10.0)
    span_s, share = window.share(25.0, 10.0)
    assert span_s == 15.0 and share == 0.0


def test_quotas_are_found_from_the_group_up_to_the_root(tmp_path: Path) -> None:
    proc, groups = tmp_path / "proc", tmp_path / "cgroup"
    (groups / "pod" / "container").mkdir(parents=True)
    proc.mkdir()
    (proc / "cgroup").write_text("0::/pod/container\n")
    assert cpu_quota_cores(proc, groups) > 1000
    (groups / "pod" / "container" / "cpu.max").write_text("max 100000\n")
    (groups / "pod" / "cpu.max").write_text("250000 100000\n")
    assert cpu_quota_cores(proc, groups) == 2.5
    (groups / "cpu" / "job").mkdir(parents=True)
    (groups / "cpu" / "job" / "cpu.cfs_quota_us").write_text("50000\n")
    (groups / "cpu" / "job" / "cpu.cfs_period_us").write_text("100000\n")
    (proc / "cgroup").write_text("3:cpu,cpuacct:/job\n0::/\n")
    assert cpu_quota_cores(proc, groups) == 0.5
    (groups / "cpu" / "job" / "cpu.cfs_quota_us").write_text("garbage\n")
    assert cpu_quota_cores(proc, groups) > 1000
    assert cpu_quota_cores(tmp_path / "none", groups) > 1000


def test_a_recipe_digest_names_every_field() -> None:
    assert Recipe(width=8, height=8).digest == Recipe(width=8, height=8).digest
    assert Recipe(width=8, height=8).digest != Recipe(width=8, height=8, filter="bilinear").digest


def test_error_codes_are_stable_and_statuses_sane() -> None:
    def walk(kind: type[HeadraceError]) -> list[type[HeadraceError]]:
        return [kind, *(below for child in kind.__subclasses__() for below in walk(child))]

    for kind in walk(HeadraceError):
        assert kind.code.isidentifier() and 400 <= kind.http_status < 600 and 1 <= kind.exit_code < 128

"""From samples to figures: what the measures say, means weighted by windows, deadlines that do not drift."""

from __future__ import annotations

from threading import Event
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.clock import monotonic_s
from headrace.core.watching.figures import MOST_SERIES, Figures, Series
from headrace.core.watching.lines import main_lines
from headrace.core.watching.measures import Measure, measures
from headrace.core.watching.schedule import BUDGET, SLOWEST, Schedule
from headrace.probe.sampler import Sampler
from headrace.records.capture import Note, Unseen
from headrace.records.rows.gpu import GpuRow
from headrace.records.rows.host import CoreRow, HostRow
from headrace.records.rows.process import CgroupRow, TaskRow, ThreadRow
from headrace.records.rows.service import ProbeRow, StageRow
from headrace.records.tables import TABLES, columns

# --- the schedule ------------------------------------------------------------------------------------------------------------


def test_deadlines_are_absolute() -> None:
    schedule = Schedule([0.2, 1.0], 10.0)
    assert [(due.which, due.missed) for due in schedule.due(10.0)] == [(0, 0), (1, 0)]
    assert schedule.next_s == pytest.approx(10.2)
    assert [due.which for due in schedule.due(10.35)] == [0]
    assert schedule.next_s == pytest.approx(10.4), "a late reading does not move the next one"
    late = schedule.due(11.05)
    assert [(due.which, due.missed) for due in late] == [(0, 3), (1, 0)]
    assert late[0].late_s == pytest.approx(0.65)
    assert schedule.next_s == pytest.approx(11.2)


@given(
    st.lists(st.floats(0.05, 5.0), min_size=1, max_size=5),
    st.lists(st.floats(0.0, 3.0), min_size=1, max_size=60),
)
def test_readings_and_misses_are_all_the_deadlines_there_were(
    periods: list[float], steps: list[float]
) -> None:
    schedule, now = Schedule(periods, 0.0), 0.0
    told = [0] * len(periods)
    for step in steps:
        now += step
        for due in schedule.due(now):
            assert 0 <= due.late_s <= now
            told[due.which] += 1 + due.missed
        assert schedule.next_s > now
    for count, period in zip(told, periods, strict=True):
        assert abs(count - (int(now / period) + 1)) <= 1


def test_the_pace_slows_above_the_budget_and_recovers() -> None:
    schedule = Schedule([0.2], 0.0)
    for _ in range(10):
        schedule.pace(BUDGET * 3)
    assert schedule.stretch == SLOWEST
    assert not schedule.pace(BUDGET * 0.7), "between the budget and a third of it nothing changes"
    while schedule.pace(BUDGET * 0.1):
        pass
    assert schedule.stretch == 1.0


# --- series and figures ------------------------------------------------------------------------------------------------------


@given(st.lists(st.tuples(st.floats(0, 1), st.floats(0.1, 10)), min_size=1, max_size=50))
def test_means_are_weighted_by_the_window(told: list[tuple[float, float]]) -> None:
    series = Series()
    for value, window_s in told:
        series.add(Measure("x_ratio", value, window_s))
    length = sum(window_s for _, window_s in told)
    assert series.mean == pytest.approx(sum(value * window_s for value, window_s in told) / length)
    assert series.high == max(value for value, _ in told) and series.last == told[-1][0]
    below = sum(window_s for value, window_s in told if int(value * 100) < 5)
    assert series.share_below(0.05) == pytest.approx(below / length)
    assert series.share_below(0.95) + series.share_from(0.95) == pytest.approx(1.0)
    wanted = series.quantile(0.5)
    assert (
        sum(window_s for value, window_s in told if int(value * 100) <= round(wanted * 100))
        >= 0.5 * length - 1e-6
    )


def core(t_s: float, number: int, busy: float) -> CoreRow:
    return CoreRow(t_s, 0.2, number, int(busy * 200_000), 0, 0, 0, 50_000, int((1 - busy) * 150_000))


def test_waiting_for_a_disk_is_no_work_of_a_core() -> None:
    found = {
        measure.name: measure.value
        for measure in measures([CoreRow(1.0, 1.0, 0, 250_000, 0, 0, 0, 500_000, 250_000)])
    }
    assert found["host.cpu_ratio"] == pytest.approx(0.25)


def test_one_full_core_of_sixty_four_shows_beside_the_mean() -> None:
    figures = Figures()
    for tick in range(10):
        rows = [core(tick * 0.2, number, 0.0) for number in range(63)]
        figures.tell([*rows, CoreRow(tick * 0.2, 0.2, 63, 200_000, 0, 0, 0, 0, 0)], tick * 0.2)
    (line,) = (line for line in main_lines(figures) if line.label == "CPU")
    assert line.mean == "2%" and "busiest core 100%" in line.note


def row_of(kind: type[Any], **values: Any) -> Any:
    """A row with nothing else read."""
    return kind(**(dict.fromkeys(columns(kind)) | values))


def gpu(t_s: float, busy: float, window_s: float) -> GpuRow:
    told = {"device": 0, "busy_ratio": busy, "busy_window_s": window_s, "emulated": False}
    row: GpuRow = row_of(GpuRow, t_s=t_s, window_s=1.0, **told)
    return row


def test_a_burst_is_told_from_a_trickle_of_the_same_mean() -> None:
    bursts, trickle = Figures(), Figures()
    for tick in range(100):
        bursts.tell([gpu(tick, float(tick % 4 == 0), 0.17)], tick)
        trickle.tell([gpu(tick, 0.25, 0.17)], tick)
    (burst,) = (line for line in main_lines(bursts) if line.label == "GPU 0 busy")
    (steady,) = (line for line in main_lines(trickle) if line.label == "GPU 0 busy")
    assert burst.mean == steady.mean == "25%"
    assert "windows of 0.17 s: idle in 75%, full in 25%" in burst.note
    assert "idle in 0%, full in 0%" in steady.note


def test_the_busiest_threads_are_named() -> None:
    figures = Figures()
    figures.tell([TaskRow(0.0, 5, tid, None, f"worker-{tid}", None, None) for tid in (7, 8, 9)], 0.0)
    for tick in range(1, 11):
        figures.tell([thread(tick, 7, 900_000, 50_000), thread(tick, 8, 100_000, 800_000)], float(tick))
    first, second = figures.busiest(3)
    assert (first.tid, first.name, first.mean_ratio) == (7, "worker-7", pytest.approx(0.9))
    assert (second.tid, second.wait_ratio) == (8, pytest.approx(0.8))
    text = next(line for line in main_lines(figures) if "worker-8" in line.label)
    assert "waits for a core 80%" in text.note


def thread(t_s: float, tid: int, cpu_us: int | None, wait_us: int | None) -> ThreadRow:
    return ThreadRow(t_s, 1.0, 5, tid, cpu_us, wait_us, 1, None, "R", 0, None, None, None, None)


def test_a_service_that_starts_a_thread_a_request_does_not_fill_the_memory() -> None:
    figures = Figures()
    figures.tell([thread(0.0, 1, 999_999, 1)], 0.0)
    for tid in range(2, 3 * MOST_SERIES):
        figures.tell([thread(float(tid), tid, 10, 1)], float(tid))
    assert len(figures.series) <= MOST_SERIES + 2
    assert figures.busiest(1)[0].tid == 1


@pytest.mark.parametrize("name", list(TABLES))
def test_readings_that_could_not_be_had_measure_nothing(name: str) -> None:
    """Every optional column missing, every other at its least: no error, and no ratio above 1."""
    row = TABLES[name]
    least = {"text": "x", "bool": False}
    values = [
        None if "None" in str(row.__annotations__[column]) else least.get(info.kind, 0)
        for column, info in columns(row).items()
    ]
    for measure in measures([row(*values)]):
        assert measure.value == measure.value and (measure.value <= 1 or not measure.name.endswith("_ratio"))


def test_a_quota_shows() -> None:
    figures = Figures()
    group = row_of(
        CgroupRow,
        t_s=1.0,
        window_s=1.0,
        path="/a",
        version=2,
        quota_cores=0.5,
        periods=10,
        throttled_periods=9,
    )
    figures.tell([group], 1.0)
    (line,) = (line for line in main_lines(figures) if line.label == "throttled")
    assert line.mean == "90%" and "quota 0.5 cores, /a" in line.note


def test_the_end_of_a_capture_has_the_figures() -> None:
    figures = Figures()
    figures.tell([StageRow(1.0, 1.0, "decode", 4, 8_000, 40_000, 2, 0, 1, 0)], 1.0)
    figures.tell([HostRow(1.0, 1.0, 100, 25, *[None] * 8)], 1.0)
    told = figures.as_dict()["measures"]
    assert told["stage.decode.service_ms"]["mean"] == 10.0 and told["stage.decode.wait_ms"]["mean"] == 2.0
    assert told["host.memory_used_ratio"]["p50"] == 0.75


# --- the sampler -------------------------------------------------------------------------------------------------------------


class Counting:
    """A probe that counts its readings and finds something hidden at the third."""

    def __init__(self, period_s: float, stop_after: int, stop: Event) -> None:
        self.name, self.period_s = "counting", period_s
        self.times: list[float] = []
        self._stop_after, self._stop = stop_after, stop

    def read(self, now_s: float) -> list[HostRow]:
        self.times.append(now_s)
        if len(self.times) == self._stop_after:
            self._stop.set()
        return [HostRow(now_s, self.period_s, *[None] * 10)]

    def unseen(self) -> list[Unseen]:
        return [Unseen("counting", "the dark side", "it is dark")] if len(self.times) >= 3 else []

    def close(self) -> None: ...


def test_the_sampler_reads_on_time_and_tells_what_it_cost_and_missed() -> None:
    stop, rows, notes = Event(), [], []  # type: ignore[var-annotated]
    probe = Counting(0.01, 10, stop)
    sampler = Sampler([probe], monotonic_s(), lambda found, now_s: rows.extend(found), notes.append)
    sampler.run(60.0, stop)
    assert len([row for row in rows if isinstance(row, HostRow)]) == 10
    assert all(abs(time / 0.01 - round(time / 0.01)) < 1 for time in probe.times)
    costs = {row.probe: row for row in rows if isinstance(row, ProbeRow)}
    assert costs["counting"].readings == 10 == costs["sampler"].readings
    assert costs["counting"].cpu_us <= costs["sampler"].cpu_us
    assert [note.says for note in notes if note.kind == "unseen"] == ["the dark side: it is dark"]


def test_a_gap_is_told() -> None:
    stop, notes = Event(), []  # type: ignore[var-annotated]
    probe = Counting(0.01, 2, stop)
    sampler = Sampler([probe], monotonic_s() - 0.0, lambda found, now_s: None, notes.append)
    sampler._began_s -= 5.0  # the machine slept
    sampler.tick()
    gap = next(note for note in notes if note.kind == "gap")
    assert isinstance(gap, Note) and gap.data["seconds"] >= 4.9


def test_it_stops_at_its_time() -> None:
    stop, rows = Event(), []  # type: ignore[var-annotated]
    Sampler(
        [Counting(0.01, 10**6, stop)],
        monotonic_s(),
        lambda found, now_s: rows.extend(found),
        lambda note: None,
    ).run(0.1, stop)
    assert 1 <= len([row for row in rows if isinstance(row, HostRow)]) <= 11

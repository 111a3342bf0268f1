"""From samples to figures: what the measures say, means weighted by windows, deadlines that do not drift."""

from __future__ import annotations

from collections.abc import Sequence
from threading import Event
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.clock import monotonic_s
from headrace.core.watching.busiest import MOST_THREADS
from headrace.core.watching.figures import MOST_SERIES, Figures, Series
from headrace.core.watching.headline import headline
from headrace.core.watching.lines import Line, columns_of, main_lines, own_cost
from headrace.core.watching.measures import Measure, measures
from headrace.core.watching.schedule import BUDGET, SLOWEST, Schedule
from headrace.probe.sampler import Sampler
from headrace.records.capture import Note, Unseen
from headrace.records.rows.gpu import GpuRow
from headrace.records.rows.host import CoreRow, HostRow, PressureRow
from headrace.records.rows.process import CgroupRow, ProcessRow, TaskRow, ThreadRow
from headrace.records.rows.service import ProbeRow, ProgressRow, StageRow
from headrace.records.tables import TABLES, columns

# --- the schedule ------------------------------------------------------------------------------------------------------------


def test_deadlines_are_absolute() -> None:
    schedule = Schedule([0.2, 1.0], 10.0)
    assert [(due.which, due.missed) for due in schedule.due(10.0)] == [(0, 0), (1, 0)]
    assert schedule.next_s == pytest.approx(10.2)
    assert [due.which for due in schedule.due(10.34)] == [0]
    assert schedule.next_s == pytest.approx(10.4), "a late reading does not move the next one"
    late = schedule.due(11.05)
    assert [(due.which, due.missed) for due in late] == [(0, 3), (1, 0)]
    assert late[0].late_s == pytest.approx(0.65)
    assert schedule.next_s == pytest.approx(11.2)


def test_just_after_a_late_reading_comes_none() -> None:
    """After a standstill the next deadline may be a moment away: one tick of the kernel's clock in it would be several cores."""
    schedule = Schedule([1.0], 0.0)
    schedule.due(0.0)
    assert schedule.due(4.98) == [(0, pytest.approx(3.98), 4)]
    assert schedule.next_s == 6.0


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
    assert line.mean == "2%" and line.note == "of 64 cores; the busiest one 100%"


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
    assert burst.note == "idle in 75%, full in 25% of windows of 0.17 s"
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
    for tid in range(2, 3 * MOST_THREADS):
        figures.tell([TaskRow(float(tid), 5, tid, None, "request", None, None)], float(tid))
        figures.tell([thread(float(tid), tid, 10, 1)], float(tid))
    assert len(figures.threads) <= 2 * MOST_THREADS
    assert figures.threads.cpu_s == pytest.approx(0.999999 + (3 * MOST_THREADS - 2) * 10e-6), (
        "forgotten, but counted"
    )
    assert figures.busiest(1)[0].tid == 1


def test_names_without_end_do_not_fill_the_memory() -> None:
    """A page whose stages have another name each time."""
    figures = Figures()
    for number in range(2 * MOST_SERIES):
        figures.tell([StageRow(1.0, 1.0, f"s{number}", 4, 8, 4, 2, 0, 1, 0)], float(number))
    assert len(figures.series) == MOST_SERIES


def test_names_of_threads_that_never_ran_do_not_fill_the_memory_either() -> None:
    figures = Figures()
    figures.tell([TaskRow(0.0, 5, 1, None, "worker", None, None), thread(0.0, 1, 999_999, 1)], 0.0)
    for tid in range(2, 3 * MOST_THREADS):
        figures.tell([TaskRow(0.0, 5, tid, None, "idle", None, None)], float(tid))
    assert len(figures.threads) <= MOST_THREADS
    assert figures.busiest(1)[0].name == "worker"


def test_a_thread_that_fell_asleep_is_not_shown_busy_now() -> None:
    """One that does nothing has no rows: its last one must not stand for the present for ever."""
    figures = Figures()
    figures.tell([core(0.0, 0, 0.5)], 0.0)
    for tick in range(1, 6):
        figures.tell([thread(tick, 7, 1_000_000, 0)], float(tick))
    assert figures.busiest(1)[0].now_ratio == 1.0
    figures.tell([core(6.5, 0, 0.5)], 6.5)
    assert figures.busiest(1)[0].now_ratio == 1.0, "the window of its next row may not be over yet"
    figures.tell([core(20.0, 0, 0.5)], 20.0)
    assert figures.busiest(1)[0].now_ratio == 0.0
    assert figures.busiest(1)[0].mean_ratio == pytest.approx(5 / 20)


def test_a_page_that_answers_no_more_has_no_present_rate() -> None:
    figures = Figures()
    figures.tell([StageRow(1.0, 1.0, "decode", 4, 8_000_000, 40_000, 2, 0, 1, 0)], 1.0)
    (line,) = (line for line in main_lines(figures) if line.label == "stage decode")
    assert (line.now, line.mean, line.note) == ("4/s", "4/s", "waits 2000 ms, works 10 ms")
    figures.tell([core(9.0, 0, 0.5)], 9.0)
    (line,) = (line for line in main_lines(figures) if line.label == "stage decode")
    assert (line.now, line.mean) == ("-", "4/s")


def test_the_mean_of_a_thread_counts_from_the_first_reading_not_from_the_start() -> None:
    """Finding the target, opening its files and waiting for a first difference take time in which nothing was measured."""
    figures = Figures()
    figures.tell([], 2.0)
    figures.tell([thread(3.0, 7, 1_000_000, 0)], 3.0)
    assert figures.busiest(1)[0].mean_ratio == pytest.approx(1.0)


def process(t_s: float, **values: Any) -> ProcessRow:
    told = {
        "t_s": t_s,
        "window_s": 1.0,
        "pid": 5,
        "user_us": 0,
        "system_us": 0,
        "ended_children_us": 0,
        "minor_faults": 0,
    }
    row: ProcessRow = row_of(ProcessRow, **(told | {"threads": 1, "major_faults": 0, "state": "S"} | values))
    return row


def labels(figures: Figures) -> dict[str, Line]:
    return {line.label: line for line in main_lines(figures)}


def test_work_of_children_that_nobody_saw_is_a_line_of_its_own() -> None:
    figures = Figures()
    figures.tell([process(1.0, user_us=100_000, ended_children_us=1_500_000)], 1.0)
    found = labels(figures)
    assert found["service"].mean == "0.10 cores" and found["  and children"].mean == "1.50 cores"
    assert found["service"].note == "1 process, 1 thread, 0 B"


@pytest.mark.parametrize(("seen_us", "told"), [(1_800_000, None), (200_000, "180%")])
def test_work_of_threads_that_nobody_saw_is_a_line_of_its_own(seen_us: int, told: str | None) -> None:
    """A service that starts a thread for each request: the threads that are seen are not what it does."""
    figures = Figures()
    figures.tell([], 0.0)
    figures.tell([process(1.0, user_us=2_000_000, threads=3), thread(1.0, 7, seen_us, 0)], 1.0)
    line = labels(figures).get("  other threads")
    assert (line and line.mean) == told


def test_sources_of_progress_are_kept_apart() -> None:
    figures = Figures()
    for source, amount in (("log:/a", 10.0), ("metric:x", 1000.0)):
        figures.tell([ProgressRow(1.0, 1.0, source, "requests", amount)], 1.0)
    found = [line for line in main_lines(figures) if line.label == "work done"]
    assert [(line.mean, line.note) for line in found] == [
        ("10/s", "requests, by log:/a"),
        ("1,000/s", "requests, by metric:x"),
    ]


def test_columns_have_a_head_and_nothing_in_them_steers_a_terminal() -> None:
    figures = Figures()
    figures.tell([StageRow(1.0, 1.0, "\x1b[2J\nred", 4, 8_000, 40_000, 2, 0, 1, 0), core(1.0, 0, 0.5)], 1.0)
    live, end = columns_of(main_lines(figures), end=False), columns_of(main_lines(figures), end=True)
    assert live[0].split() == ["now", "mean"] and end[0].split() == ["mean"]
    assert any("?[2J?red" in line for line in end)
    assert all(line.isprintable() for line in (*live, *end))
    assert live[0].index("mean") + 4 == live[1].index("%", live[1].index("%") + 1) + 1, "under its head"


def test_readings_that_were_missed_are_told() -> None:
    figures = Figures()
    figures.tell(
        [
            ProbeRow(1.0, 10.0, "sampler", 60, 40, 5_000_000, 1000),
            ProbeRow(1.0, 10.0, "programs", 0, 0, 0, 0),
        ],
        10.0,
    )
    assert (
        own_cost(figures)
        == "watching took 0.01% of one core (its start included); 40% of its readings were missed"
    )


# --- what stands out ---------------------------------------------------------------------------------------------------------


def quota(throttled: int) -> CgroupRow:
    told = {"t_s": 1.0, "window_s": 1.0, "path": "/a", "version": 2, "quota_cores": 0.5, "periods": 10}
    row: CgroupRow = row_of(CgroupRow, throttled_periods=throttled, **told)
    return row


def task(tid: int, name: str) -> TaskRow:
    return TaskRow(0.0, 5, tid, None, name, None, None)


IDLE = core(1.0, 0, 0.0), core(1.0, 1, 0.0)
FULL_CORES = tuple(CoreRow(1.0, 0.2, number, 200_000, 0, 0, 0, 0, 0) for number in range(2))


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        ([], ""),
        (IDLE, "Nothing was at its limit, the CPU was 0% busy."),
        ((*FULL_CORES, process(1.0, user_us=300_000)), "The 2 cores were 100% busy, 0.30 of them for the service."),
        (
            (*IDLE, task(7, "decode-0"), thread(1.0, 7, 970_000, 0), process(1.0, user_us=970_000)),
            "Thread decode-0 kept one core busy (97%) while all 2 cores together were 0% busy.",
        ),
        (
            (*IDLE, thread(1.0, 7, 490_000, 0), thread(1.0, 8, 490_000, 0), process(1.0, user_us=980_000, threads=2)),
            "The service's 2 threads together took one core (0.98) while all 2 cores together were 0% busy.",
        ),
        ((*IDLE, quota(9)), "The CPU quota of 0.5 cores of /a ran out in 90% of its periods."),
        ((*IDLE, quota(0)), "Nothing was at its limit, the CPU was 0% busy."),
        ((*IDLE, gpu(1.0, 0.12, 0.17)), "GPU 0 was busy 12% of the time; nothing was at its limit, the CPU was 0% busy."),
        ((*IDLE, process(1.0, state="T")), "Of the service's processes 1 stood still at the end"),
        ((*IDLE, PressureRow(1.0, 1.0, "host", "io", 400_000, 0)), "Tasks waited for disks in 40% of the time."),
    ],
)  # fmt: skip
def test_what_stands_out_is_one_sentence(rows: Sequence[Any], says: str) -> None:
    figures = Figures()
    figures.tell([], 0.0)
    figures.tell(rows, 1.0)
    assert headline(figures).startswith(says) and bool(says) == bool(headline(figures))


def test_many_gpus_are_one_phrase() -> None:
    figures = Figures()
    figures.tell(IDLE, 1.0)
    for device in range(8):
        figures.tell([gpu(1.0, device / 10, 0.17)._replace(device=device)], 1.0)
    assert headline(figures).startswith("8 GPUs were busy 0% to 70% of the time; ")


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
    (gap,) = (note for note in notes if note.kind == "gap")
    assert isinstance(gap, Note) and gap.data["seconds"] >= 4.9
    assert gap.data["probes"] == ["counting"] and gap.says.startswith("nothing was read for 5")


def test_a_gap_of_many_probes_is_one_note() -> None:
    stop, notes = Event(), []  # type: ignore[var-annotated]
    probes = [Counting(period_s, 100, stop) for period_s in (0.1, 0.1, 0.1, 100.0, 100.0, 100.0, 100.0)]
    sampler = Sampler(probes, monotonic_s(), lambda found, now_s: None, notes.append)
    sampler.tick()
    sampler._began_s -= 5.0
    sampler.tick()
    (gap,) = (note for note in notes if note.kind == "gap")
    assert gap.says.startswith("nothing was read of counting, counting, counting for 4.9")


def test_the_end_is_read_too() -> None:
    """Else what happened since the last reading, up to a whole period, would be missing from each total."""
    stop, rows = Event(), []  # type: ignore[var-annotated]
    probe = Counting(0.4, 100, stop)
    Sampler([probe], monotonic_s(), lambda found, now_s: rows.extend(found), lambda note: None).run(
        0.75, stop
    )
    assert len(probe.times) == 3 and probe.times[-1] >= 0.75


def test_the_end_is_not_read_when_a_reading_is_just_over() -> None:
    """In so short a window one tick of the kernel's clock would be a core and more."""
    stop = Event()
    probe = Counting(1000.0, 1, stop)
    Sampler([probe], monotonic_s(), lambda found, now_s: None, lambda note: None).run(60.0, stop)
    assert len(probe.times) == 1


def test_it_stops_at_its_time() -> None:
    stop, rows = Event(), []  # type: ignore[var-annotated]
    Sampler(
        [Counting(0.01, 10**6, stop)],
        monotonic_s(),
        lambda found, now_s: rows.extend(found),
        lambda note: None,
    ).run(0.1, stop)
    assert 1 <= len([row for row in rows if isinstance(row, HostRow)]) <= 11

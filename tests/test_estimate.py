"""Estimates from bare figures and from captures: the story's figures, laws that must hold, wrong input."""

from __future__ import annotations

import argparse
import json
import math
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.cli.verbs import estimate as verb
from headrace.core.queueing.laws import Chain, ceilings, closed, offered
from headrace.core.queueing.stations import Station, parse_rate_per_s, parse_station, parse_stations
from headrace.errors import CaptureError, HeadraceError, UsageError
from headrace.records.capture import End, Manifest
from headrace.records.rows.service import DeviceRow, StageRow
from headrace.store.captures.writer import CaptureWriter
from headrace.workflows.estimate import Asked, estimate, from_capture

STORY = ("decode=250ms/1", "model=40ms/1")
times = st.floats(1e-4, 5.0)
stations = st.builds(
    lambda name, time, workers, device: Station(name, time, time, workers, 1.0, device),
    st.uuids().map(str),
    times,
    st.integers(1, 8),
    st.booleans(),
)
chains = st.lists(stations, min_size=1, max_size=5).map(lambda found: Chain(tuple(found)))


def chain(*texts: str, cores: float | None = None) -> Chain:
    return Chain(parse_stations(texts), cores)


# --- the story -----------------------------------------------------------------------------------------------------------------


def test_the_story() -> None:
    """40 ms of GPU are 25/s, 250 ms of preparation 4/s: the GPU waits and is 16 % busy."""
    found = estimate(Asked(chain(*STORY), clients=16, rate_per_s=20.0, waiting=64))
    assert found.sentence == "decode is the limit: 4/s; waiting for that: model (could do 25/s, is 16% busy)."
    assert found.closed is not None
    assert found.closed.most_per_s == 4.0 and found.closed.least_latency_s == 4.0
    assert found.closed.enough_clients == pytest.approx(1.16)
    assert found.offered[0].grows_per_s == 16.0 and found.full_after_s == 4.0
    assert found.offered[1].arrives_per_s == 4.0 and found.offered[1].utilisation == pytest.approx(0.16)


def test_placebos_of_the_story() -> None:
    """A stronger GPU halves its own utilisation and wins nothing; clients only wait longer."""
    rows = {(row.resource, row.change): row for row in ceilings(chain(*STORY), clients=16)}
    stronger = rows["model", "twice as fast"]
    assert stronger.gain == 0.0
    assert (stronger.busy_before, stronger.busy_after) == pytest.approx((0.16, 0.08))
    assert rows["decode", "one worker more"].gain == 1.0 and rows["decode", "twice as fast"].gain == 1.0
    few, many = closed(chain(*STORY), 16), closed(chain(*STORY), 64)
    assert few.most_per_s == many.most_per_s and many.least_latency_s == 4 * few.least_latency_s


def test_batches_raise_what_a_stage_can_do() -> None:
    flat, curve = parse_station("model=40ms/1x8"), parse_station("model=2ms+5ms/2x8")
    assert flat.rate_per_s == pytest.approx(200.0) and flat.alone_s == 0.04
    assert curve.alone_s == pytest.approx(0.007) and curve.go_s == pytest.approx(0.042)
    assert curve.rate_per_s == pytest.approx(2 * 8 / 0.042)
    table = parse_station("model=1=12ms,4=40ms,8=60ms/1x8")
    assert (table.alone_s, table.go_s) == pytest.approx((0.012, 0.06))


def test_cores_are_shared() -> None:
    found = chain("decode=40ms/8", "resize=5ms/2", "model=2ms+5ms/1x8", cores=4)
    assert [row.name for row in found.limits] == ["cores"]
    assert found.limit_per_s == pytest.approx(4 / 0.045)
    assert ceilings(found)[0].resource == "decode"
    more = next(row for row in ceilings(found) if row.change == "one core more")
    assert more.gain == pytest.approx(0.25)
    assert offered(found, 100.0)[-1].grows_per_s == pytest.approx(100 - 4 / 0.045)
    assert offered(found, 100.0)[-2].arrives_per_s == pytest.approx(4 / 0.045)
    assert all(row.mean_wait_s is None for row in offered(found, 50.0))


def test_as_many_cores_as_workers_are_no_limit() -> None:
    assert chain("a=10ms/2", "b=10ms/2", cores=4).limit_per_s == pytest.approx(200.0)
    assert chain("a=10ms/2", "gpu=10ms/9", cores=2).limits[0].name == "a"


def test_stages_about_as_slow_limit_together() -> None:
    found = estimate(Asked(chain("a=100ms/1", "b=98ms/1", "c=1ms/1")))
    assert found.limits == ("a", "b")
    assert found.sentence.startswith("a and b are the limit: 10/s; waiting for that: c (")
    assert all(row.gain == pytest.approx(0.0, abs=0.03) for row in found.ceilings)


# --- laws -----------------------------------------------------------------------------------------------------------------------


@given(chains, st.integers(1, 100), st.floats(0.0, 5.0))
def test_bounds_are_in_order(found: Chain, clients: int, think_s: float) -> None:
    got = closed(found, clients, think_s)
    assert got.most_per_s <= found.limit_per_s * (1 + 1e-12)
    assert got.least_latency_s >= found.alone_s * (1 - 1e-9)
    assert got.balanced is not None
    low, high = got.balanced
    assert low <= high * (1 + 1e-9) and high <= got.most_per_s * (1 + 1e-9)


@given(st.lists(times, min_size=1, max_size=5), st.integers(1, 40), st.floats(0.0, 5.0))
def test_balanced_job_bounds_hold_the_exact_solution(
    services: list[float], clients: int, think_s: float
) -> None:
    """Single servers, exponential service: exact mean value analysis lies between the bounds."""
    queues, rate = [0.0] * len(services), 0.0
    for inside in range(1, clients + 1):
        spent = [service * (1.0 + queue) for service, queue in zip(services, queues, strict=True)]
        rate = inside / (think_s + sum(spent))
        queues = [rate * time for time in spent]
    stations = tuple(Station(str(at), time, time, 1) for at, time in enumerate(services))
    got = closed(Chain(stations), clients, think_s)
    assert got.balanced is not None
    assert got.balanced[0] * (1 - 1e-9) <= rate <= got.balanced[1] * (1 + 1e-9)


@given(chains, st.floats(0.01, 1e4))
def test_requests_are_not_lost_between_stages(found: Chain, rate: float) -> None:
    rows = offered(found, rate)
    assert rows[0].arrives_per_s == rate
    for before, after in pairwise(rows):
        assert after.arrives_per_s == pytest.approx(before.arrives_per_s - before.grows_per_s)
    through = rows[-1].arrives_per_s - rows[-1].grows_per_s
    assert through == pytest.approx(min(rate, found.limit_per_s))


@given(chains, st.one_of(st.none(), st.integers(1, 50)))
def test_no_change_makes_it_worse(found: Chain, clients: int | None) -> None:
    for row in ceilings(found, clients):
        assert row.gain >= 0.0 and 0.0 <= row.busy_after <= 1.0


@given(chains)
def test_two_requests_in_time_do_not_change_the_answer(found: Chain) -> None:
    """Units: all times doubled halve every rate and keep every share."""
    slow = Chain(tuple(Station(s.name, 2 * s.alone_s, 2 * s.go_s, s.workers) for s in found.stations))
    assert slow.limit_per_s == pytest.approx(found.limit_per_s / 2)
    assert closed(slow, 5).enough_clients == pytest.approx(closed(found, 5).enough_clients)


# --- a capture --------------------------------------------------------------------------------------------------------------


def capture(folder: Path, *, device: bool = True) -> Path:
    """One minute: 240 images, decode 250 ms on one thread, the device 80 launches of 3 images in 60 ms."""
    manifest = Manifest(
        headrace="0", made_by="record", began_wall_s=0.0, began_monotonic_s=0.0, boot_id=None, emulated=True
    )
    with CaptureWriter.create(folder, manifest) as writer:
        for minute_half in (30.0, 60.0):
            writer.add(
                [
                    StageRow(minute_half, 30.0, "fetch", 120, 0, 1_200_000, None, 0, 0, 0),
                    StageRow(minute_half, 30.0, "decode", 120, 240_000_000, 30_000_000, 1, 8, 1, 0),
                    StageRow(minute_half, 30.0, "batch", 120, 600_000, 0, 0, 0, 0, 0),
                    StageRow(minute_half, 30.0, "infer", 120, 0, 7_200_000, 2, 0, 0, 0),
                    StageRow(minute_half, 30.0, "unused", 0, 0, 0, 2, 0, 0, 0),
                ]
            )
            if device:
                writer.add([DeviceRow(minute_half, 30.0, "emulated", 2_400_000, 40, 120, True)])
        writer.finish(End(60.0, "finished"))
    return folder


def test_a_capture(tmp_path: Path) -> None:
    found, measured = from_capture(capture(tmp_path / "c"))
    by_name = {station.name: station for station in found.stations}
    assert set(by_name) == {"fetch", "decode", "batch", "infer"}
    assert by_name["fetch"].workers is None and by_name["batch"].workers is None
    assert by_name["decode"].go_s == pytest.approx(0.25) and found.limit_per_s == pytest.approx(4.0)
    assert by_name["infer"] == Station("infer", 0.06, 0.06, 1, 3.0, True)
    assert measured.rate_per_s == pytest.approx(4.0) and measured.emulated
    assert measured.busy == pytest.approx({"decode": 1.0, "infer": 0.08})
    assert measured.inside == pytest.approx((480 + 60 + 2.4 + 1.2 + 14.4) / 60)
    assert measured.latency_s == pytest.approx(measured.inside / 4.0)


def test_a_capture_without_a_device_counts_the_threads(tmp_path: Path) -> None:
    found, measured = from_capture(capture(tmp_path / "c", device=False))
    infer = found.stations[-1]
    assert infer.workers == 2 and infer.go_s == pytest.approx(0.06) and infer.on_device
    assert measured.busy["infer"] == pytest.approx(0.12)


def test_a_stage_of_a_capture_replaced(tmp_path: Path) -> None:
    folder = capture(tmp_path / "c")
    found, _ = from_capture(folder, parse_stations(["decode=250ms/4"]))
    assert found.limit_per_s == pytest.approx(16.0)
    with pytest.raises(UsageError, match=r"no stage preparation; it has fetch, decode, batch and infer"):
        from_capture(folder, parse_stations(["preparation=1ms/1"]))


def test_captures_that_tell_nothing(tmp_path: Path) -> None:
    manifest = Manifest(headrace="0", made_by="load", began_wall_s=0.0, began_monotonic_s=0.0, boot_id=None)
    with CaptureWriter.create(tmp_path / "c", manifest) as writer:
        writer.finish(End(0.0, "finished"))
    with pytest.raises(UsageError, match="holds no stages"):
        from_capture(tmp_path / "c")
    with pytest.raises(CaptureError, match="no capture"):
        from_capture(tmp_path / "nothing")


def test_a_cut_capture_is_read_up_to_the_cut(tmp_path: Path) -> None:
    folder = capture(tmp_path / "c")
    index = (folder / "index.jsonl").read_bytes()
    (folder / "index.jsonl").write_bytes(index[:-5])
    _, measured = from_capture(folder)
    assert any("index.jsonl" in line for line in measured.damage)


# --- the command --------------------------------------------------------------------------------------------------------------


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    parser = argparse.ArgumentParser(exit_on_error=False)
    verb.flags(parser)
    assert verb.run(parser.parse_args(arguments)) == 0
    return capsys.readouterr().out


def given_stages(*texts: str) -> list[str]:
    return [part for text in texts for part in ("--stage", text)]


def test_text_says_the_finding_first(capsys: pytest.CaptureFixture[str]) -> None:
    out = run(capsys, *given_stages(*STORY), "--concurrency", "16", "--rate", "20/s", "--cores", "4")
    assert out.startswith("decode is the limit: 4/s;")
    assert "grows by 16 requests a second, 64 wait after 4 s" in out
    assert "N* = 1.16" in out and "placebo" in out and "16% -> 8%" in out
    quiet = run(capsys, *given_stages(*STORY), "--rate", "120/min")
    assert "2/s can be kept up with" in quiet and "125 ms to 250 ms" in quiet


def test_json_has_the_same_figures(capsys: pytest.CaptureFixture[str]) -> None:
    found = json.loads(run(capsys, *given_stages(*STORY), "--concurrency", "16", "--json"))
    assert found["format"] == 1 and found["limit_per_s"] == 4.0 and found["limits"] == ["decode"]
    assert found["closed"]["least_latency_s"] == 4.0 and found["measured"] is None
    assert [stage["utilisation"] for stage in found["stages"]] == pytest.approx([1.0, 0.16])


def test_text_of_a_capture(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    out = run(capsys, str(capture(tmp_path / "c")), "--concurrency", "9")
    assert "busy as measured" in out and "measured: 4/s, 9.3 requests inside on average" in out
    assert "EMULATED" in out and "counted at its measured 3 images a launch" in out
    json.loads(run(capsys, str(tmp_path / "c"), "--json"))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("decode=250ms/0", "workers must be a whole number from 1 up, not '0'"),
        ("decode=250ms/-1", "not '-1'"),
        ("decode=250ms/²", "not '²'"),
        ("decode=250ms/1x0", "images in a batch must be"),
        ("decode=-250ms/1", "'-250ms'"),
        ("decode=250/1", "needs one of the units"),
        ("decode=250parsec/1", "needs one of the units"),
        ("decode=0ms/1", "takes no time"),
        ("decode=0ms+0ms/1x4", "takes no time"),
        ("decode=2ms+x/1x4", "NAME=BASE+PER_IMAGE"),
        ("decode=250ms", "cannot be read"),
        ("250ms/1", "cannot be read"),
        ("decode=250ms/1@moon", "@moon"),
        ("", "cannot be read"),
    ],
)
def test_wrong_stages_are_named(text: str, says: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_stations([text])
    assert says in str(caught.value) and "\n" not in str(caught.value)


@given(st.text(max_size=60))
def test_no_text_ends_in_a_traceback(text: str) -> None:
    for head in ("", "a=", "a=1ms/", "a=1ms/1x", "a=1=1ms,"):
        try:
            found = parse_station(head + text)
        except HeadraceError as problem:
            assert str(problem)
        else:
            assert found.go_s > 0.0 and math.isfinite(found.go_s) and found.workers and found.batch >= 1


def test_wrong_use_of_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments, says in (
        ([], "no stage"),
        (given_stages("a=1ms/1", "a=2ms/1"), "a is given twice"),
        (["/nowhere/at/all"], "no capture"),
    ):
        with pytest.raises(HeadraceError, match=says):
            run(capsys, *arguments)
    for flag, value in (
        ("--rate", "0/s"),
        ("--rate", "20/year"),
        ("--cores", "0"),
        ("--cores", "nan"),
        ("--concurrency", "0"),
    ):
        with pytest.raises(argparse.ArgumentError):
            run(capsys, *given_stages("a=1ms/1"), flag, value)


def test_rates() -> None:
    assert [parse_rate_per_s(text) for text in ("20/s", "20", ".5/s", "1200/min", "7200/h")] == [
        20,
        20,
        0.5,
        20,
        2,
    ]

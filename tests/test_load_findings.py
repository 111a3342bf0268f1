"""What a load report says, in sentences: nothing that failed is passed over, nothing is said more exactly than it is known."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from headrace.core.load.capacity import Answer
from headrace.core.load.figures import PhaseFigures
from headrace.core.load.goal import parse_goal
from headrace.core.load.tally import Tally
from headrace.errors import UsageError
from headrace.load import run as engine
from headrace.load.run import Limits, most_connections
from headrace.workflows.load import Load
from headrace.workflows.loading.findings import finding, verdict
from headrace.workflows.loading.replays import replay_of
from headrace.workflows.loading.report import CapacityReport, LoadReport, phase_report


def phase(**other: Any) -> PhaseFigures:
    given: dict[str, Any] = {
        "name": "run", "began_s": 0.0, "ended_s": 10.0, "intended": 2000, "sent": 2000, "late": 0, "waited": 0, "again": 0,
        "last_start_s": 9.99, "ok": 2000, "failed": {}, "unsent": 0, "cpu_s": 1.0, "worst_lag_s": 0.001, "lagged_s": 0.0,
    }  # fmt: skip
    return PhaseFigures(**given | other)


def report(*phases: PhaseFigures, capacity: CapacityReport | None = None) -> LoadReport:
    return LoadReport(
        url="http://x/",
        pattern="",
        closed_loop=False,
        images=1,
        settings={},
        phases=tuple(phase_report(one, Tally()) for one in phases),
        stages=(),
        elsewhere_us=None,
        connections={},
        emulated=False,
        interrupted=False,
        remarks=(),
        capacity=capacity,
    )


def test_requests_that_had_to_be_sent_twice_are_told_where_they_are_many() -> None:
    few, many = finding(report(phase(again=10))), finding(report(phase(again=200)))
    assert few.endswith("no request failed.")
    assert "no request failed; 200 (10 %) had to be sent twice" in many


def test_failures_of_all_requests_are_told_in_plain_figures() -> None:
    found = report(phase(ok=0, failed={"http_503": 2000}))
    assert verdict(found) == "NOT VALID: no request was answered right."
    assert finding(found).endswith("2,000 requests (100 %) failed, most as http_503.")


def test_phases_that_are_not_valid_are_counted() -> None:
    bad = [phase(name=f"{n}/s", intended=8, sent=8, ok=8) for n in range(3)]
    assert verdict(report(*bad[:2], phase())).endswith("; so is 1 more.")
    assert verdict(report(*bad)).endswith("; so are 2 more.")


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (Answer(100.0, 104.0, "bracket", 100.0, 104.0), "up to about 100/s; 104/s is too much."),
        (
            Answer(77.113, 80.52, "bracket", 66.3, 84.1),
            "up to about 77.1/s; 80.5/s is too much. By more than the error of the trials, 66.3/s holds it, 84.1/s does not; longer ones",
        ),
        (Answer(77.0, 80.0, "bracket", None, 80.0), "no rate is known to hold it, 80/s does not"),
        (
            Answer(1500.0, 1600.0, "client", 1500.0, None),
            "about 1,500/s at least; at 1,600/s the tester itself",
        ),
        (Answer(None, 0.05, "lowest rate"), "Not even 0.05/s holds p99 < 200 ms."),
    ],
)
def test_a_capacity_is_told_as_exactly_as_it_is_known(answer: Answer, says: str) -> None:
    found = report(capacity=CapacityReport(parse_goal("p99<200ms"), answer, ()))
    assert says in finding(found)


def test_a_goal_of_minutes_is_not_told_in_milliseconds() -> None:
    assert [str(parse_goal(text)) for text in ("p99<1.5s", "p99<1m")] == ["p99 < 1500 ms", "p99 < 60 s"]


def test_no_more_connections_are_allowed_than_the_system_lets_open(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine.resource, "getrlimit", lambda which: (64, 128))
    most = most_connections()
    assert 64 < most < 128
    Load(url="http://x/", images=(Path("x"),), limits=Limits(connections=most))
    with pytest.raises(UsageError, match=f"{most + 1} connections cannot be"):
        Load(url="http://x/", images=(Path("x"),), limits=Limits(connections=most + 1))


def test_requests_that_carry_their_image_are_replayed_with_one_image_after_the_other(tmp_path: Path) -> None:
    """Their address is the service's, not the image's."""
    log = tmp_path / "access.jsonl"
    lines = [{"time": 1.7e9 + n / 10, "method": "POST", "url": "/predict"} for n in range(5)]
    log.write_text("\n".join(map(json.dumps, lines)))
    found = replay_of(log)
    assert found.images.tolist() == [0, 1, 2, 3, 4]
    assert "5 requests of the log carry their image in the body" in found.remarks[0]

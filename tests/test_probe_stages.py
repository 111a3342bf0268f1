"""The stages of a real headrace server by its metrics page, and of pages that no server writes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.server_process import Serving, ask, free_port, picture_bytes, serving, until

from headrace.clock import monotonic_s
from headrace.errors import UsageError
from headrace.probe import stages
from headrace.probe.metrics_page import Page, parse
from headrace.probe.stages import NAMES, StageProbe
from headrace.records.rows.service import DeviceRow, StageRow


class Watching:
    """A probe that is read as the sampler does, and everything it said."""

    def __init__(self, url: str) -> None:
        self.probe = StageProbe(url, period_s=0.02)
        self.began_s = monotonic_s()
        self.rows: list[Any] = []

    def read(self) -> None:
        self.rows.extend(self.probe.read(monotonic_s() - self.began_s))

    def stages(self) -> list[StageRow]:
        return [row for row in self.rows if isinstance(row, StageRow)]

    def done(self) -> Counter[str]:
        total: Counter[str] = Counter()
        for row in self.stages():
            total[row.stage] += row.done
        return total

    def images(self) -> int:
        return sum(row.images for row in self.rows if isinstance(row, DeviceRow))

    def until_a_new_page(self) -> None:
        """One that was asked for after this call. The first may be long in hand, and the second under way."""
        for _ in range(3):
            before = self.probe._before

            def came(before: Any = before) -> bool:
                self.read()
                return self.probe._before is not before

            until(came, "a page")

    def until_done(self, count: int) -> None:
        def came() -> bool:
            self.read()
            return self.done()["reply"] >= count and self.images() >= count

        until(came, f"{count} replies")


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    path = tmp_path / "recipe.toml"
    path.write_text("[recipe]\nwidth = 32\nheight = 32\n")
    return path


@pytest.fixture
def watching() -> Iterator[list[Watching]]:
    watched: list[Watching] = []
    yield watched
    for one in watched:
        one.probe.close()


def emulated(recipe: Path, metrics_port: int) -> Any:
    ports = ("--server-port", "0", "--server-metrics-port", str(metrics_port))
    return serving("--recipe", recipe, "--accelerator", "emulated:3ms+1ms", *ports)


def ready_port(server: Serving) -> int:
    port, _ = server.wait_announced()
    until(lambda: ask(port, "GET", "/v2/health/ready")[0] == 200, "readiness")
    return port


def test_what_a_real_server_did_and_what_it_does_after_a_restart(
    recipe: Path, watching: list[Watching]
) -> None:
    metrics_port, picture = free_port(), picture_bytes()
    watch = Watching(f"http://127.0.0.1:{metrics_port}/metrics")
    watching.append(watch)
    with emulated(recipe, metrics_port) as server:
        port = ready_port(server)
        watch.until_a_new_page()
        watch.rows.clear()  # The warm-up is work of the device too.
        assert [ask(port, "POST", "/predict", picture)[0] for _ in range(7)] == [200] * 7
        assert ask(port, "POST", "/predict", b"no picture")[0] == 415
        watch.until_done(7)
        watch.until_a_new_page()
    assert watch.done() == {"fetch": 7, "decode": 7, "resize": 7, "batch": 7, "infer": 7, "reply": 7}
    assert watch.images() == 7
    check_rows(watch)
    infer_us = sum(row.service_us for row in watch.stages() if row.stage == "infer")
    busy_us = sum(row.busy_us for row in watch.rows if isinstance(row, DeviceRow))
    assert infer_us >= 7 * 4000 and 7 * 4000 - 50 <= busy_us <= infer_us, (
        "3 ms and 1 ms an image, one at a time"
    )
    with emulated(recipe, metrics_port) as server:
        port = ready_port(server)
        watch.until_a_new_page()
        assert [ask(port, "POST", "/predict", picture)[0] for _ in range(2)] == [200] * 2
        watch.until_done(9)
    assert watch.done()["infer"] == watch.done()["reply"] == 9, "the first server's work is counted once"
    check_rows(watch)
    assert {item.what for item in watch.probe.unseen()} <= {
        f"stages at http://127.0.0.1:{metrics_port}/metrics"
    }


def check_rows(watch: Watching) -> None:
    for row in watch.stages():
        assert row.window_s > 0 and min(row.done, row.wait_us, row.service_us) >= 0
        if row.stage in ("fetch", "reply"):
            assert (row.workers, row.waiting, row.working, row.lost) == (None,) * 4
        else:
            assert (
                row.workers is not None
                and row.waiting is not None
                and row.working is not None
                and row.lost is not None
            )
    devices = [row for row in watch.rows if isinstance(row, DeviceRow)]
    assert {(row.device, row.emulated) for row in devices} == {("emulated", True)}
    assert all(0 <= row.t_s <= monotonic_s() - watch.began_s for row in watch.rows), "on the capture's clock"


def test_nobody_answers(watching: list[Watching]) -> None:
    watch = Watching(f"http://127.0.0.1:{free_port()}/metrics")
    watching.append(watch)

    def told() -> bool:
        watch.read()
        return bool(watch.probe.unseen())

    until(told, "that nobody answers")
    (item,) = watch.probe.unseen()
    assert item.what.startswith("stages at http://127.0.0.1:") and "Connection refused" in item.why
    assert watch.rows == []


def test_a_bad_address_is_refused_at_once() -> None:
    with pytest.raises(UsageError, match="is not an address"):
        StageProbe("127.0.0.1:8002")


# --- pages written by hand ----------------------------------------------------------------------------------------------------


class Pages:
    """Stands for the thread that fetches."""

    url = "http://h/metrics"

    def __init__(self, *texts: str) -> None:
        self._pages = [Page(float(at_s), tuple(parse(text, NAMES))) for at_s, text in enumerate(texts)]

    def take(self) -> Page | None:
        return self._pages.pop(0) if self._pages else None

    def close(self) -> None:
        pass


def rows_of(*texts: str) -> tuple[StageProbe, list[Any]]:
    probe = StageProbe.__new__(StageProbe)
    probe.period_s, probe._pages, probe._before = 1.0, Pages(*texts), None  # type: ignore[assignment]
    probe._unseen = stages.UnseenOnce("stages")
    return probe, [row for _ in texts for row in probe.read(0.0)]


def page(
    started: float = 1.0, left: float = 0, service_s: float = 0, busy_s: float = 0, extra: str = ""
) -> str:
    stage = 'model="m",stage="decode"'
    return f"""process_start_time_seconds {started}
headrace_stage_duration_seconds_sum{{{stage}}} {service_s}
headrace_stage_wait_seconds_sum{{{stage}}} 0
headrace_stage_items_total{{direction="left",{stage}}} {left}
headrace_device_busy_seconds_total{{device="cuda:0",model="m"}} {busy_s}
headrace_device_launches_total{{device="cuda:0",model="m"}} {left}
headrace_device_images_total{{device="cuda:0",model="m"}} {left}
headrace_build_info{{device="cuda:0",emulated="false",model="m",path="staged",version="9"}} 1
{extra}
"""


def test_rows_are_what_changed_between_two_pages() -> None:
    failed = 'headrace_stage_items_total{direction="failed",stage="decode"} 2'
    dropped, queue = failed.replace("failed", "dropped"), 'headrace_stage_queue_length{stage="decode"} 4'
    extra = "\n".join((failed, dropped, queue))
    _, rows = rows_of(
        page(left=10, service_s=1, busy_s=1), page(left=13, service_s=1.25, busy_s=1.5, extra=extra)
    )
    stage, device = rows
    assert (stage.window_s, stage.stage, stage.done, stage.service_us, stage.waiting, stage.lost) == (
        1.0,
        "decode",
        3,
        250_000,
        4,
        4,
    )
    assert stage.workers is None and stage.working is None, "what the page does not say is absent"
    assert (device.device, device.busy_us, device.emulated) == ("cuda:0", 500_000, False)


def test_two_models_on_one_page_are_summed() -> None:
    second = 'headrace_stage_items_total{direction="left",model="n",stage="decode"} '
    _, rows = rows_of(page(left=1, extra=second + "5"), page(left=2, extra=second + "7"))
    assert rows[0].done == 3


@pytest.mark.parametrize(
    "after",
    [page(left=9), page(left=20, service_s=0.5), page(started=2.0, left=11, service_s=2), page(left=2.0**40, service_s=2)],
)  # fmt: skip
def test_pages_that_cannot_be_compared_give_no_row_and_the_next_ones_do(after: str) -> None:
    _, rows = rows_of(page(left=10, service_s=1), after)
    assert rows == []
    _, rows = rows_of(page(left=10, service_s=1), after, after)
    assert [row.done for row in rows if isinstance(row, StageRow)] == [0]


def test_a_page_that_lacks_something_gives_no_row_about_it() -> None:
    before, after = (page(left=left).replace("headrace_stage_items_total", "renamed") for left in (1, 2))
    _, rows = rows_of(before, after)
    assert [type(row) for row in rows] == [DeviceRow]


def test_a_page_of_somebody_else() -> None:
    probe, rows = rows_of("process_start_time_seconds 5\n", "process_start_time_seconds 5\n")
    assert rows == []
    (item,) = probe.unseen()
    assert (
        "not the metrics page of a headrace server" in item.why and "--progress metric:URL#NAME" in item.why
    )


NUMBERS = st.floats() | st.integers(-(2**70), 2**70) | st.sampled_from([0, 1, 2, 2**31, 2**63])
LINES = st.lists(
    st.tuples(st.sampled_from(NAMES), st.sampled_from(["decode", "infer", "", "x;\\n"]), st.sampled_from(["left", "failed"]), NUMBERS),
    max_size=12,
)  # fmt: skip


@given(st.lists(LINES, max_size=4))
@settings(deadline=None)
def test_whatever_a_page_says_rows_fit_their_columns(pages: Any) -> None:
    texts = [
        "\n".join(f'{name}{{stage="{stage}",direction="{way}"}} {value}' for name, stage, way, value in lines)
        for lines in pages
    ]
    _, rows = rows_of(*texts)
    for row in rows:
        for name, value in row._asdict().items():
            if name in ("done", "workers", "waiting", "working", "lost", "launches", "images"):
                assert value is None or 0 <= value < 2**31
            if name in ("wait_us", "service_us", "busy_us"):
                assert 0 <= value < 2**63

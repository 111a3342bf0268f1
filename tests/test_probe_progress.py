"""Progress of foreign services: logs that grow, turn over and shrink; metrics pages that are slow, huge or no pages at all."""

from __future__ import annotations

import math
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.server_process import until

from headrace.errors import UsageError
from headrace.probe import metrics_page, progress
from headrace.probe.metrics_page import PageError, Sample, fetch, parse, parse_line, parse_url
from headrace.probe.progress import LogProgress, LogSource, MetricProgress, MetricSource, parse_progress
from headrace.records.rows.service import ProgressRow

# --- what is counted --------------------------------------------------------------------------------------------------------


def test_sources_by_text() -> None:
    assert parse_progress("log:/var/log/a b.log") == LogSource(Path("/var/log/a b.log"))
    assert parse_progress("metric:http://h:1/m#done_total") == MetricSource("http://h:1/m", "done_total", {})
    assert parse_progress('metric:http://[::1]:9/m?x=1#a:b{code="200",path="/a\\"}",}') == MetricSource(
        "http://[::1]:9/m?x=1", "a:b", {"code": "200", "path": '/a"}'}
    )


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "neither log"), ("log", "names no file"), ("log:", "names no file"), ("log:a\0b", "names no file"),
        ("file:/x", "neither log"), ("metric:", "not an address"), ("metric:https://h/m#a", "not an address"),
        ("metric:http://h/m", "does not name a metric"), ("metric:http://h/m#", "does not name a metric"),
        ("metric:http://h/m#1a", "does not name a metric"), ("metric:http:///m#a", "not an address"),
        ("metric:http://h:99999/m#a", "not an address"), ("metric:http://h:x/m#a", "not an address"),
        ("metric:http://u:p@h/m#a", "not an address"), ("metric:http://h/a b#a", "not an address"),
        ("metric:http://h/m\r\nX: y#a", "not an address"),
        ("metric:http://h/m#a{", "not of the form"), ("metric:http://h/m#a{b=1}", "not of the form"),
        ('metric:http://h/m#a{b="1"}x', "not of the form"), ('metric:http://h/m#a b="1"', "not of the form"),
    ],
)  # fmt: skip
def test_bad_sources_are_named(text: str, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        parse_progress(text)


@given(
    st.text()
    | st.text().map(lambda text: f"metric:http://h/m#{text}")
    | st.text().map(lambda text: f"metric:{text}")
)
@settings(deadline=None)
def test_any_text_is_a_source_or_a_usage_error(text: str) -> None:
    try:
        assert isinstance(parse_progress(text), LogSource | MetricSource)
    except UsageError as error:
        assert "\n" not in text or str(error)


@pytest.mark.parametrize(
    ("name", "unit"),
    [("http_requests_total", "requests"), ("sent_bytes_total", "bytes"), ("nv_inference_count", "requests"), ("images_total", "images")],
)  # fmt: skip
def test_units_by_name(name: str, unit: str) -> None:
    assert MetricSource("http://h/m", name, {}).unit == unit


# --- logs -------------------------------------------------------------------------------------------------------------------


def amounts(probe: LogProgress, now_s: float) -> list[float]:
    return [row.amount for row in probe.read(now_s) if isinstance(row, ProgressRow)]


def append(path: Path, text: str) -> None:
    with path.open("a") as log:
        log.write(text)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "access.log"
    path.write_text("old\n" * 1000)
    return path


def test_lines_that_are_appended_are_counted_and_old_ones_are_not(log: Path) -> None:
    probe = LogProgress(LogSource(log))
    assert list(probe.read(10.0)) == []
    append(log, "a\nb\nhalf")
    assert list(probe.read(11.5)) == [ProgressRow(11.5, 1.5, f"log:{log}", "requests", 2.0)]
    append(log, " a line\n")
    assert amounts(probe, 12.0) == [1.0]
    assert amounts(probe, 13.0) == [0.0], "no progress is a reading too"
    assert probe.unseen() == ()
    probe.close()


def test_a_log_that_is_turned_over(log: Path) -> None:
    probe = LogProgress(LogSource(log))
    probe.read(0.0)
    append(log, "a\n")
    log.rename(log.with_suffix(".1"))
    append(log.with_suffix(".1"), "b\n")
    assert amounts(probe, 1.0) == [2.0], "until there is a new one, the old one is the log"
    append(log.with_suffix(".1"), "c\n")
    append(log, "d\ne\n")
    assert amounts(probe, 2.0) == [3.0], "the rest of the old one and all of the new one"
    append(log.with_suffix(".1"), "not counted\n")
    append(log, "f\n")
    assert amounts(probe, 3.0) == [1.0]


def test_a_log_that_is_truncated_or_deleted(log: Path) -> None:
    probe = LogProgress(LogSource(log))
    probe.read(0.0)
    append(log, "a\n")
    assert amounts(probe, 1.0) == [1.0]
    log.write_text("b\nc\n")
    assert amounts(probe, 2.0) == [2.0]
    log.unlink()
    assert amounts(probe, 3.0) == [0.0]
    log.write_text("d\n" * 5000)
    assert amounts(probe, 4.0) == [5000.0]


def test_a_log_that_comes_later_is_counted_from_its_first_line(tmp_path: Path) -> None:
    log = tmp_path / "later.log"
    probe = LogProgress(LogSource(log))
    assert amounts(probe, 0.0) == amounts(probe, 1.0) == [], "no log is not the same as no progress"
    assert [(item.what, item.why) for item in probe.unseen()] == [
        (f"lines of {log}", "No such file or directory")
    ]
    log.write_text("a\nb\n")
    assert amounts(probe, 2.0) == [2.0]


def test_a_log_that_may_not_be_read_at_first(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def forbidden(*arguments: Any) -> int:
        raise PermissionError(13, "Permission denied")

    probe = LogProgress(LogSource(log))
    with monkeypatch.context() as patch:
        patch.setattr("headrace.probe.progress.os.open", forbidden)
        assert amounts(probe, 0.0) == amounts(probe, 1.0) == []
    assert [item.why for item in probe.unseen()] == ["Permission denied"]
    assert amounts(probe, 2.0) == [], "what was written before it could be read is not of this window"
    append(log, "a\n")
    assert amounts(probe, 3.0) == [1.0]


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir, lambda path: path.symlink_to("/dev/zero")])
def test_what_is_no_log_neither_blocks_nor_never_ends(make: Callable[[Path], None], tmp_path: Path) -> None:
    make(tmp_path / "odd")
    probe = LogProgress(LogSource(tmp_path / "odd"))
    assert amounts(probe, 0.0) == amounts(probe, 1.0) == []
    assert [item.why for item in probe.unseen()] == ["it is no regular file"]


def test_a_long_piece_is_caught_up_with(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "MOST_BYTES_A_READING", 100)
    monkeypatch.setattr(progress, "_PIECE", 50)
    probe = LogProgress(LogSource(log))
    probe.read(0.0)
    append(log, "1234567\n" * 30)
    log.rename(log.with_suffix(".1"))
    append(log, "x\n")
    counts = [amounts(probe, float(now_s))[0] for now_s in range(1, 6)]
    assert sum(counts) == 31 and max(counts) <= 13 and counts[-1] == 0, (
        "the old log is read up before it is left"
    )


@given(st.lists(st.integers(0, 7), min_size=1, max_size=12), st.binary(max_size=20))
@settings(deadline=None)
def test_lines_are_counted_however_they_are_cut(
    tmp_path_factory: pytest.TempPathFactory, cuts: Any, tail: bytes
) -> None:
    path = tmp_path_factory.mktemp("log") / "a.log"
    path.touch()
    probe = LogProgress(LogSource(path))
    probe.read(0.0)
    counted = 0.0
    for place, cut in enumerate(cuts):
        with path.open("ab") as file:
            file.write(b"x\n" * cut + tail)
        counted += amounts(probe, 1.0 + place)[0]
    assert counted == path.read_bytes().count(b"\n")
    probe.close()


# --- metrics pages ----------------------------------------------------------------------------------------------------------


@contextmanager
def answering(answer: Callable[[socket.socket], None]) -> Iterator[str]:
    """A server that answers each connection with whatever `answer` does to it."""
    server = socket.create_server(("127.0.0.1", 0))
    stop = threading.Event()

    def serve() -> None:
        while not stop.is_set():
            connection, _ = server.accept()
            with connection:
                try:
                    answer(connection)
                except OSError:
                    pass  # The probe hung up, as it should.

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    url = f"http://127.0.0.1:{server.getsockname()[1]}/metrics"
    try:
        yield url
    finally:
        stop.set()
        socket.create_connection(server.getsockname()).close()
        thread.join()
        server.close()


def page(text: str, head: str = "HTTP/1.1 200 OK\r\n") -> bytes:
    body = text.encode()
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


def saying(*pieces: bytes) -> Callable[[socket.socket], None]:
    def answer(connection: socket.socket) -> None:
        connection.recv(4096)
        for piece in pieces:
            connection.sendall(piece)

    return answer


def dripping(connection: socket.socket) -> None:
    """A byte at a time, for ever: no single wait is long."""
    connection.recv(4096)
    connection.sendall(b"HTTP/1.1 200 OK\r\nX: ")
    while True:
        connection.sendall(b"x")
        time.sleep(0.01)


def hanging(connection: socket.socket) -> None:
    while connection.recv(4096):
        pass


def endless(connection: socket.socket) -> None:
    connection.recv(4096)
    connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
    while True:
        connection.sendall(b"a 1\n" * 10_000)


def test_a_page_whole_in_pieces_and_chunked() -> None:
    whole = page("a 1\n")
    for answer in (
        saying(whole),
        saying(*(bytes([byte]) for byte in whole)),
        saying(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\na \r\n2\r\n1\n\r\n0\r\n\r\n"),
        saying(b"HTTP/1.0 200 OK\r\n\r\na 1\n"),
    ):
        with answering(answer) as url:
            assert fetch(url) == "a 1\n"


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (dripping, "no answer within 0.3 s"),
        (hanging, "no answer within 0.3 s"),
        (endless, "larger than 1 MiB"),
        (saying(page("a 1\n", "HTTP/1.1 503 Busy\r\n")), "answers 503"),
        (saying(page("", "HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\n")), "answers 302"),
        (saying(page("a 1\n", "HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n")), "packed .'gzip'., though nobody asked"),
        (saying(b"SSH-2.0-OpenSSH\r\n"), "no HTTP, or broke off"),
        (saying(b""), "the connection failed: Remote end closed"),
        (saying(bytes(range(256)) * 10), "no HTTP, or broke off"),
        (saying(page("a 1\nb 2\n")[:-3]), "broke off"),
        (saying(b"HTTP/1.1 200 OK\r\nContent-Length: 999999999999999999\r\n\r\na 1\n"), "broke off"),
        (saying(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nFFFFFFFFFFFFFFF\r\na 1\n"), "broke off"),
        (saying(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\na 1\n"), "broke off"),
        (saying(b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 500 + b"\r\n"), "no HTTP, or broke off"),
        (saying(b"HTTP/1.1 200 OK\r\nX: " + b"y" * 100_000), "no HTTP, or broke off"),
    ],
)  # fmt: skip
def test_pages_that_are_none(answer: Callable[[socket.socket], None], says: str) -> None:
    with answering(answer) as url, pytest.raises(PageError, match=says):
        fetch(url, timeout_s=0.3, most_bytes=2**20)


def test_nobody_there() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"http://127.0.0.1:{server.getsockname()[1]}/metrics"
    with pytest.raises(PageError, match="the connection failed: Connection refused"):
        fetch(url)
    with pytest.raises(PageError, match="the connection failed"):
        fetch(f"http://{'a' * 64}.invalid/metrics")


@given(st.text())
@settings(deadline=None)
def test_any_address_is_one_or_a_usage_error(url: str) -> None:
    for text in (url, f"http://{url}", f"http://h{url}"):
        try:
            host, port, path = parse_url(text)
        except UsageError:
            continue
        assert host and 0 < port < 65536 and path.startswith("/") and "\n" not in path


PAGE = """# HELP a_total One.
# TYPE a_total counter
a_total{code="200",path="/x{y} z"} 5 1700000000000
a_total{code="5\\"00",path="a\\\\b\\nc"}\t7.5e1
a_total_created 9
  a_total 99
a_total
a_total{code="200" 5
a_total{code=200} 5
a_total{} 1
a_total{code="x",} NaN
a_total +Inf
a_total nonsense
b 3 # {trace="1"} 4
"""


def test_a_page_with_all_sorts_of_lines() -> None:
    found = list(parse(PAGE.replace("\n", "\r\n", 3), ["a_total", "b"]))
    assert found[:3] == [
        Sample("a_total", {"code": "200", "path": "/x{y} z"}, 5.0),
        Sample("a_total", {"code": '5"00', "path": "a\\b\nc"}, 75.0),
        Sample("a_total", {}, 1.0),
    ]
    assert math.isnan(found[3].value) and found[3].labels == {"code": "x"}
    assert found[4:] == [Sample("a_total", {}, math.inf), Sample("b", {}, 3.0)]


LABELS = st.dictionaries(st.from_regex("[a-z_]{1,5}", fullmatch=True), st.text(max_size=8), max_size=3)


@given(LABELS, st.floats(allow_nan=False))
@settings(deadline=None)
def test_a_line_as_prometheus_writes_it_comes_back(labels: dict[str, str], value: float) -> None:
    escaped = {
        name: text.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')
        for name, text in labels.items()
    }
    block = ",".join(f'{name}="{text}"' for name, text in escaped.items())
    assert parse_line(f"m{{{block}}} {value!r}") == Sample("m", labels, value)


@given(st.text())
@settings(deadline=None)
def test_any_line_is_a_sample_or_none(text: str) -> None:
    for line in (text, f"m{text}", f"m{{{text}", f'm{{a="{text}'):
        sample = parse_line(line)
        assert sample is None or isinstance(sample.value, float)
    list(parse(text, ["m", ""]))


class Service:
    """A page whose text can be changed."""

    def __init__(self, text: str = "") -> None:
        self.text = text
        self.asked = 0

    def __call__(self, connection: socket.socket) -> None:
        connection.recv(4096)
        self.asked += 1
        connection.sendall(page(self.text))

    def rows(self, probe: MetricProgress) -> list[ProgressRow]:
        """What the probe makes of the pages up to one that was asked for after this call: the next is asked for when it has come."""
        enough = self.asked + 2
        rows: list[Any] = []

        def came() -> bool:
            had = self.asked
            rows.extend(probe.read(time.monotonic()))
            return had >= enough

        until(came, "two more pages")
        return rows


@contextmanager
def progressing(service: Service, selector: str) -> Iterator[MetricProgress]:
    with answering(service) as url:
        source = parse_progress(f"metric:{url}#{selector}")
        assert isinstance(source, MetricSource)
        probe = MetricProgress(source, period_s=0.01)
        try:
            yield probe
        finally:
            probe.close()


def test_what_a_metric_grew_by() -> None:
    service = Service('n{code="200",m="a"} 5\nn{code="200",m="b"} 7\nn{code="500",m="a"} 1000\n')
    with progressing(service, 'n{code="200"}') as probe:
        assert sum(row.amount for row in service.rows(probe)) == 0.0
        service.text = 'n{code="200",m="a"} 15\nn{code="200",m="b"} 8\nn{code="500",m="a"} 9000\n'
        rows = service.rows(probe)
        assert sum(row.amount for row in rows) == 11.0 and all(row.window_s > 0 for row in rows)
        ((source, unit),) = {(row.source, row.unit) for row in rows}
        assert (
            source.startswith("metric:127.0.0.1:")
            and source.endswith('#n{code="200"}')
            and unit == "requests"
        )
        assert probe.unseen() == ()
        service.text = 'n{code="200",m="a"} 2\n'
        assert sum(row.amount for row in service.rows(probe)) == 0.0, "a restart is no negative progress"
        service.text = 'n{code="200",m="a"} 3\n'
        assert sum(row.amount for row in service.rows(probe)) == 1.0
        (unseen,) = probe.unseen()
        assert unseen.what == "growth of n" and "the service began anew" in unseen.why


def test_what_goes_down_all_the_time_or_leaps_is_told_to_be_no_counter() -> None:
    """Else nothing would be told of it at all, and the user would wonder where his metric is."""
    service = Service("n 1000\n")
    with progressing(service, "n") as probe:
        service.rows(probe)
        service.text = "n 1e300\n"
        assert sum(row.amount for row in service.rows(probe)) == 0.0
        (unseen,) = probe.unseen()
        assert "no counter" in unseen.why


@pytest.mark.parametrize("value", ["NaN", "+Inf"])
def test_a_metric_that_is_there_but_no_number_is_told_as_such(value: str) -> None:
    service = Service(f"n {value}\n")
    with progressing(service, "n") as probe:
        assert service.rows(probe) == []
        (unseen,) = probe.unseen()
        assert "has this metric, but no number for it" in unseen.why


def test_a_token_in_the_address_of_a_page_is_not_told() -> None:
    source = parse_progress("metric:http://h:9090/metrics?token=hunter2#n")
    assert isinstance(source, MetricSource) and source.told_as == "metric:h:9090#n"
    service = Service("m 1\n")
    with answering(service) as url:
        source = parse_progress(f"metric:{url}?token=hunter2#n")
        assert isinstance(source, MetricSource)
        probe = MetricProgress(source, period_s=0.01)
        assert service.rows(probe) == []
        assert probe.unseen() and "hunter2" not in repr(probe.unseen())
        probe.close()


@pytest.mark.parametrize("text", ["", "m 5\n", 'n{code="404"} 5\n', "<html>n</html>"])
def test_a_page_without_the_metric_is_told(text: str) -> None:
    service = Service(text)
    with progressing(service, 'n{code="200"}') as probe:
        assert service.rows(probe) == []
        (item,) = probe.unseen()
        assert item.what == "n" and "has no such metric" in item.why


def test_a_slow_page_never_makes_the_sampler_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """While the service does not answer, readings go on: a hundred of them, none of which could pass if it waited for the page."""
    asked, let_go = threading.Event(), threading.Event()

    def slow(connection: socket.socket) -> None:
        connection.recv(4096)
        asked.set()
        let_go.wait(20.0)
        connection.sendall(page("n 1\n"))

    monkeypatch.setattr(metrics_page, "TIMEOUT_S", 20.0)
    with answering(slow) as url:
        probe = MetricProgress(MetricSource(url, "n", {}), period_s=0.01)
        assert asked.wait(20.0)
        assert [list(probe.read(float(now_s))) for now_s in range(100)] == [[]] * 100
        assert not let_go.is_set()
        let_go.set()
        until(lambda: list(probe.read(time.monotonic())), "progress, once it answers")
        probe.close()


def test_closing_does_not_wait_for_a_page() -> None:
    with answering(hanging) as url:
        probe = MetricProgress(MetricSource(url, "n", {}), period_s=0.01)
        probe.close()
        assert list(probe.read(1.0)) == []

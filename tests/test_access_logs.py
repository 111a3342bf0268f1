"""Access logs: every format, whole, cut at every byte, damaged and hostile."""

from __future__ import annotations

import gzip
import io
import math
import os
import threading
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.census.log_lines import LogEntry, recognise, seconds, whole
from headrace.errors import UsageError
from headrace.store.access_logs import (
    LONGEST_LINE,
    LogNotes,
    is_access_log,
    parse_fields,
    read_access_log,
    read_access_logs,
)

COMBINED = (
    '10.0.0.1 - - [10/Oct/2025:13:55:36 +0200] "GET /a.jpg?v=1 HTTP/1.1" 200 1234 "https://x/" "Mozilla/5.0 [en]"\n'
    '10.0.0.2 - kim [10/Oct/2025:13:55:37 +0200] "POST /predict HTTP/1.1" 200 88\n'
    '10.0.0.2 - - [10/Oct/2025:13:55:37.250 +0200] "GET /b \\"c\\".jpg HTTP/2.0" 404 -\n'
)
JSON_LINES = (
    '{"ts": 1760097336.0, "request": {"uri": "/a.jpg?v=1", "method": "GET"}, "status": 200, "size": 1234}\n'
    '{"ts": 1760097337.0, "request": {"uri": "/predict", "method": "POST"}, "status": 200, "size": 88}\n'
    '{"ts": 1760097337.25, "request": {"uri": "/b \\"c\\".jpg", "method": "GET"}, "status": 404, "size": null}\n'
)
CSV = (
    "timestamp,method,url,status,bytes\n"
    "2025-10-10T13:55:36+02:00,GET,/a.jpg?v=1,200,1234\n"
    "2025-10-10T11:55:37Z,POST,/predict,200,88\n"
    '2025-10-10 11:55:37.250,GET,"/b ""c"".jpg",404,-\n'
)
LOGS = {"combined": COMBINED, "json": JSON_LINES, "csv": CSV, "tabs": CSV.replace(",", "\t")}
ENTRIES = [
    LogEntry(1760097336.0, "/a.jpg?v=1", 1234, 200),
    LogEntry(1760097337.0, "/predict", 88, 200, posted=True),
    LogEntry(1760097337.25, '/b "c".jpg', None, 404),
]
every_format = pytest.mark.parametrize("text", LOGS.values(), ids=LOGS)


def saved(folder: Path, text: str | bytes, packed: bool = False) -> Path:
    path = folder / "access.log"
    data = text.encode() if isinstance(text, str) else text
    path.write_bytes(gzip.compress(data) if packed else data)
    return path


def read(path: Path, **options: object) -> tuple[list[LogEntry], LogNotes]:
    notes = LogNotes()
    return list(read_access_log(path, notes=notes, **options)), notes  # type: ignore[arg-type]


def unescaped(entries: list[LogEntry]) -> list[LogEntry]:
    """A quote in a request is written with a backslash, and stays so in the key."""
    return [entry._replace(key=entry.key.replace('\\"', '"')) for entry in entries]


@every_format
@pytest.mark.parametrize("packed", [False, True], ids=["plain", "gzip"])
@pytest.mark.parametrize("change", ["", "crlf", "bom", "blank lines", "no last line end"])
def test_every_format_says_the_same(tmp_path: Path, text: str, packed: bool, change: str) -> None:
    text = text.replace("\n", "\r\n") if change == "crlf" else text
    text = "\ufeff" + text if change == "bom" else text
    text = text.replace("\n", "\n\n") if change == "blank lines" else text
    text = text.rstrip() if change == "no last line end" else text
    entries, notes = read(saved(tmp_path, text, packed))
    assert unescaped(entries) == ENTRIES
    assert notes.skipped == 0 and notes.damage == [] and len(notes.formats) == 1


@every_format
def test_a_log_cut_at_any_byte_is_read_up_to_the_cut(tmp_path: Path, text: str) -> None:
    data = text.encode()
    for cut in range(len(data) + 1):
        path = saved(tmp_path, data[:cut])
        try:
            entries, notes = read(path)
        except UsageError as problem:
            assert str(path) in str(problem)
            assert data[:cut].count(b"\n") < 2, "two whole lines are enough for any format"
            continue
        whole_lines = max(0, data[:cut].count(b"\n") - text.startswith("time"))
        assert unescaped(entries)[:whole_lines] == ENTRIES[:whole_lines]
        assert len(entries) + notes.skipped <= whole_lines + 1


def test_gzip_cut_at_any_byte_is_read_up_to_the_cut(tmp_path: Path) -> None:
    line = COMBINED.splitlines(keepends=True)[0]
    packed = gzip.compress("".join(line.replace("a.jpg", f"{n}.jpg") for n in range(60)).encode())
    longest = 0
    for cut in range(1, len(packed)):
        try:
            entries, notes = read(saved(tmp_path, packed[:cut]))
        except UsageError as problem:
            assert "cut or damaged" in str(problem) or "no access log" in str(problem)
            continue
        longest = max(longest, len(entries))
        assert [entry.key for entry in entries] == [f"/{n}.jpg?v=1" for n in range(len(entries))]
        assert len(notes.damage) == 1 and f"after line {len(entries)}" in notes.damage[0]
    assert longest == 60


def test_gzip_with_one_byte_wrong_never_ends_in_a_traceback(tmp_path: Path) -> None:
    line = COMBINED.splitlines(keepends=True)[0]
    packed = bytearray(gzip.compress("".join(line.replace("a.jpg", f"{n}.jpg") for n in range(60)).encode()))
    told = 0
    for place in range(10, len(packed)):
        damaged = bytes(packed[:place]) + bytes([packed[place] ^ 0x55]) + bytes(packed[place + 1 :])
        try:
            _, notes = read(saved(tmp_path, damaged))
            told += bool(notes.damage)
        except UsageError:
            told += 1
    assert told == len(packed) - 10, "the checksum gives every wrong byte away"


def test_members_of_gzip_one_after_the_other_are_one_log(tmp_path: Path) -> None:
    lines = COMBINED.splitlines(keepends=True)
    path = saved(tmp_path, b"".join(gzip.compress(line.encode()) for line in lines))
    assert unescaped(read(path)[0]) == ENTRIES


@given(data=st.binary(max_size=300))
def test_any_bytes_are_read_or_refused(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    path = saved(tmp_path_factory.getbasetemp(), data)
    try:
        read(path)
    except UsageError as problem:
        assert str(path) in str(problem)


@given(
    text=st.sampled_from(list(LOGS.values())),
    changes=st.lists(st.tuples(st.integers(0, 500), st.characters()), max_size=4),
)
def test_any_change_of_a_few_letters_costs_at_most_the_lines_it_is_in(
    tmp_path_factory: pytest.TempPathFactory, text: str, changes: list[tuple[int, str]]
) -> None:
    body_at = text.index("\n") + 1
    text += text[body_at:] * 3
    letters = list(text)
    for place, letter in changes:
        letters[body_at + place % (len(text) - body_at)] = letter
    path = saved(tmp_path_factory.getbasetemp(), "".join(letters).encode("utf-8", "surrogatepass"))
    entries, _ = read(path)
    lines = len(text.splitlines()) - text.startswith("timestamp")
    assert lines - 2 * len(changes) <= len(entries) <= lines + 2 * len(changes)
    assert all(isinstance(entry.key, str) and entry.key for entry in entries)


@every_format
def test_bad_lines_are_counted_with_examples_and_passed_over(tmp_path: Path, text: str) -> None:
    head, _, body = text.partition("\n")
    bad = ["x" * 70_000, "nonsense", '{"half": ', "\x00\x01", "1,2"]
    entries, notes = read(saved(tmp_path, "\n".join([head, *bad, body])))
    assert unescaped(entries) == ENTRIES
    assert notes.skipped == len(bad) and len(notes.examples) == 5
    assert "line 2: it is longer than 65536 bytes" in notes.examples[0] and "line 3" in notes.examples[1]


def test_lines_before_the_first_entry_are_passed_over(tmp_path: Path) -> None:
    entries, notes = read(saved(tmp_path, "started\n{}\n" + COMBINED))
    assert len(entries) == 3 and notes.skipped == 2


def test_a_line_without_end_takes_no_memory(tmp_path: Path) -> None:
    bomb = gzip.compress(COMBINED.encode() + b"x" * (16 << 20) + b"\n" + COMBINED.encode())
    assert len(bomb) < 100_000
    tracemalloc.start()
    entries, notes = read(saved(tmp_path, bomb))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(entries) == 6 and notes.skipped == 1
    assert peak < 20 * LONGEST_LINE


@pytest.mark.parametrize("bracket", ["[", "[[[[", '"', "\\"])
def test_a_hostile_line_is_answered_in_bounded_steps(bracket: str) -> None:
    line = bracket * LONGEST_LINE
    assert recognise(line, {}) is None
    assert recognise(COMBINED.splitlines()[0][:60] + line, {}) is None


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "holds no line"),
        ("\n\n", "holds no line"),
        ("hello\n" * 200, "no access log"),
        ("x" * 200_000, "no access log"),
        ("time,size\n1,2\n", "no access log"),
        ('{"message": "no address"}\n', "no access log"),
        ("[" * 100_000, "no access log"),
        ('{"a":' * 30_000, "no access log"),
    ],
)
def test_what_is_no_log_is_refused_in_one_sentence(tmp_path: Path, text: str, says: str) -> None:
    path = saved(tmp_path, text)
    with pytest.raises(UsageError, match=says) as caught:
        read_access_log(path)
    assert str(path) in str(caught.value) and "\n" not in str(caught.value)
    assert text.strip() == "" or not is_access_log(path)


def test_what_cannot_be_opened_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read"):
        read_access_log(tmp_path / "absent.log")
    with pytest.raises(UsageError, match="cannot be read"):
        read_access_log(tmp_path)


def test_fields_are_named_for_logs_with_names_of_their_own(tmp_path: Path) -> None:
    path = saved(tmp_path, '{"when": "1760097336000", "what": {"pic": "p1"}, "verb": "POST", "n": 12}\n')
    with pytest.raises(UsageError, match="no access log"):
        read_access_log(path)
    fields = parse_fields("time=when, url=what.pic ,bytes=n")
    assert read(path, fields=fields)[0] == [LogEntry(1760097336.0, "p1", 12)]
    with pytest.raises(UsageError, match="url=pic"):
        read_access_log(path, fields={"url": "pic"})
    with pytest.raises(UsageError, match="bytes=absent"):
        read_access_log(path, fields={"url": "what.pic", "bytes": "absent"})


@pytest.mark.parametrize("text", ["", "time", "time=", "=ts", "when=ts", "time=ts,,"])
def test_wrong_fields_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match="--fields"):
        parse_fields(text)


IIS = (
    "#Software: Microsoft Internet Information Services 10.0\n"
    "#Fields: date time s-ip cs-method cs-uri-stem cs-uri-query sc-status sc-bytes\n"
    "2025-10-10 11:55:36 10.0.0.1 GET /a.jpg v=1 200 1234\n"
    "2025-10-10 11:55:37 10.0.0.1 POST /predict - 200 88\n"
    "#Date: 2025-10-10 11:55:37\n"
    "2025-10-10 11:55:37.250 10.0.0.1 GET /b.jpg - 404 -\n"
)


@pytest.mark.parametrize(
    "text", [IIS, "\n".join(line if line[0] == "#" else line.replace(" ", "\t") for line in IIS.splitlines())]
)
def test_logs_of_w3c_name_their_fields_in_a_remark(tmp_path: Path, text: str) -> None:
    entries, notes = read(saved(tmp_path, text))
    assert entries == [*ENTRIES[:2], LogEntry(1760097337.25, "/b.jpg", None, 404)]
    assert notes.formats == ["W3C extended log format"] and notes.skipped == 2
    entries, notes = read(saved(tmp_path, text.replace("/a.jpg", "-").replace("/predict", "/a\tb c")))
    assert len(entries) == 1 and notes.skipped == 4


@pytest.mark.parametrize(
    ("line", "entry"),
    [
        ('h - - [10/Oct/2025:11:55:36] "GET /a.jpg?v=1 HTTP/1.1" 200 1234\n', ENTRIES[0]),
        ('h - - [2025-10-10 11:55:36] "GET /a.jpg?v=1 HTTP/1.1" 200 1234\n', ENTRIES[0]),
        (
            'own bucket [10/Oct/2025:11:55:36 +0000] 1.2.3.4 me 3E57 REST.GET.OBJECT a.jpg "GET /a.jpg?v=1 HTTP/1.1" 200 - 1234 1234\n',
            ENTRIES[0]._replace(size_bytes=None),
        ),
        (
            '{"StartUTC": "2025-10-10T11:55:36Z", "RequestMethod": "GET", "RequestPath": "/a.jpg?v=1", "DownstreamStatus": 200, '
            '"DownstreamContentSize": 1234}\n',
            ENTRIES[0],
        ),
    ],
    ids=["no zone", "iso", "s3", "traefik"],
)
def test_formats_of_other_servers(tmp_path: Path, line: str, entry: LogEntry) -> None:
    assert read(saved(tmp_path, line))[0] == [entry]


def test_what_uvicorn_prints_has_requests_without_a_time(tmp_path: Path) -> None:
    entries, notes = read(
        saved(
            tmp_path,
            "INFO:     Started server process [7]\n"
            'INFO:     127.0.0.1:5000 - "GET /predict?url=a.jpg HTTP/1.1" 200 OK\n'
            'INFO:     127.0.0.1:5000 - "POST /predict HTTP/1.1" 503 Service Unavailable\n',
        )
    )
    assert [entry[1:] for entry in entries] == [
        ("/predict?url=a.jpg", None, 200, False),
        ("/predict", None, 503, True),
    ]
    assert all(math.isnan(entry.t_s) for entry in entries) and notes.skipped == 1


def test_a_posted_image_is_told_from_a_named_one(tmp_path: Path) -> None:
    def posted(line: str) -> list[bool]:
        return [entry.posted for entry in read(saved(tmp_path, line))[0]]

    assert posted('h - - [10/Oct/2025:13:55:36 +0200] "POST /predict HTTP/1.1" 200 5\n') == [True]
    assert posted('h - - [10/Oct/2025:13:55:36 +0200] "POST /predict?image=7 HTTP/1.1" 200 5\n') == [False]
    assert posted('{"ts": 1, "url": "/predict", "method": "post"}\n') == [True]
    assert posted('{"ts": 1, "image_url": "/i/7.jpg", "method": "POST"}\n') == [False]
    assert posted('{"ts": 1, "request": "POST /predict HTTP/1.1"}\n') == [True]


def test_the_query_is_left_out_when_asked(tmp_path: Path) -> None:
    entries, _ = read(saved(tmp_path, COMBINED), strip_query=True)
    assert [entry.key for entry in entries] == ["/a.jpg", "/predict", '/b \\"c\\".jpg']


def test_a_log_without_times_keeps_them_absent(tmp_path: Path) -> None:
    entries, _ = read(saved(tmp_path, "url\n/a\n/b\n"))
    assert [entry.key for entry in entries] == ["/a", "/b"] and all(
        math.isnan(entry.t_s) for entry in entries
    )


def test_logs_are_merged_by_time(tmp_path: Path) -> None:
    def log(name: str, times: list[int]) -> Path:
        path = tmp_path / name
        path.write_text("t,url\n" + "".join(f"{time},/{name}-{time}\n" for time in times))
        return path

    paths = [log("new", [50, 60]), log("old", [10, 20]), log("other", [15, 55])]
    assert [entry.t_s for entry in read_access_logs(paths)] == [10, 15, 20, 50, 55, 60]


def test_standard_input_and_pipes_are_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Stdin:
        buffer = io.BufferedReader(io.BytesIO(gzip.compress(COMBINED.encode())))  # type: ignore[arg-type]

    monkeypatch.setattr("sys.stdin", Stdin)
    assert unescaped(read(Path("-"))[0]) == ENTRIES
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_text, args=(COMBINED,))
    writer.start()
    assert unescaped(read(pipe)[0]) == ENTRIES
    writer.join()


@pytest.mark.parametrize(
    ("value", "time_s"),
    [
        (1760097336, 1760097336.0),
        (1760097336123, 1760097336.123),
        (1760097336123456, 1760097336.123456),
        (1760097336123456789, 1760097336.1234567),
        ("1760097336.5", 1760097336.5),
        (0.25, 0.25),
        ("2025-10-10T11:55:36Z", 1760097336.0),
        ("2025-10-10 11:55:36", 1760097336.0),
        ("2025-10-10T13:55:36.5+02:00", 1760097336.5),
        ("10/Oct/2025:13:55:36 +0200", 1760097336.0),
    ],
)
def test_times_in_every_spelling(value: object, time_s: float) -> None:
    assert seconds(value) == pytest.approx(time_s, abs=1e-6)


@pytest.mark.parametrize(
    "value",
    ["", "-", "now", "1e9", "99/Oct/2025:13:55:36 +0200", "9" * 70, math.nan, math.inf, True, None, [], {}],
)
def test_what_is_no_time_is_an_error(value: object) -> None:
    with pytest.raises(ValueError, match="no time"):
        seconds(value)


@pytest.mark.parametrize("value", ["-", "", "-1", -1, 1.5, True, None, [], "9" * 19, 1 << 70, "٣", math.nan])
def test_counts_that_are_none_stay_absent(value: object) -> None:
    assert whole(value) is None


@given(
    value=st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(), st.lists(st.integers()))
)
def test_values_of_any_kind_are_read_or_refused(value: object) -> None:
    count = whole(value)
    assert count is None or count >= 0
    try:
        assert isinstance(seconds(value), float)
    except ValueError:
        pass

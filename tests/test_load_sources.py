"""Where the load tester's requests come from: packs, lists, folders, mixes, patterns, logs, and how they are written."""

from __future__ import annotations

import itertools
import struct
from collections import Counter
from pathlib import Path

import numpy as np
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.load.mix import Mix, parse_mix, picks
from headrace.core.load.patterns import (
    Clients,
    Ramp,
    Rate,
    Replay,
    Steps,
    arrivals_of,
    parse_ramp,
    parse_rate,
    parse_steps,
    phases_of,
)
from headrace.core.load.recorded import recorded
from headrace.errors import UsageError
from headrace.load.oip import Input, as_oip, model_path, parse_inputs
from headrace.load.template import as_template, parse_template
from headrace.load.wire import Endpoint, Item, as_body, as_form, as_url, expecting
from headrace.records.recipe import Recipe
from headrace.serve.http.forms import images_in_form
from headrace.serve.http.oip_tensors import encoded_images, parse_infer, prepared_images
from headrace.store.record_packs import MAGIC, RecordPack
from headrace.workflows.image_sets import open_images
from pictures import small_files

JPEG = small_files()["jpeg baseline"]
PNG = small_files()["png rgb"]


# --- record packs ------------------------------------------------------------------------------------------------------------


def chunk(kind: int, data: bytes) -> bytes:
    return MAGIC + struct.pack("<I", kind << 29 | len(data)) + data + bytes(-len(data) % 4)


def record(data: bytes) -> bytes:
    """As RecordIO writes it: the magic number at a multiple of four is left out and begins another part."""
    cuts = [at for at in range(0, len(data) - 3, 4) if data[at : at + 4] == MAGIC]
    edges = [*zip([0, *(cut + 4 for cut in cuts)], [*cuts, len(data)], strict=True)]
    kinds = [0] if not cuts else [1, *[2] * (len(cuts) - 1), 3]
    return b"".join(chunk(kind, data[low:high]) for kind, (low, high) in zip(kinds, edges, strict=True))


def image_record(image: bytes, number: int = 0, labels: int = 0) -> bytes:
    return record(struct.pack("<IfQQ", labels, 1.0, number, 0) + bytes(4 * labels) + image)


def write_pack(path: Path, images: list[bytes], labels: int = 0, index: bool = False) -> list[int]:
    """The pack, with its index when asked for; where each record begins, and the size at the end."""
    offsets, at = [], 0
    with path.open("wb") as file:
        for number, image in enumerate(images):
            offsets.append(at)
            at += file.write(image_record(image, number, labels))
    if index:
        lines = (f"{number}\t{offset}\n" for number, offset in enumerate(offsets))
        path.with_suffix(".idx").write_text("".join(lines))
    return [*offsets, at]


def everything(pack: RecordPack) -> list[bytes]:
    return [pack.read(number) for number in range(len(pack))]


TRICKY = [
    JPEG,
    b"a",
    b"ab" + MAGIC + b"cd",
    MAGIC,
    MAGIC * 3,
    bytes(8) + MAGIC + MAGIC + b"tail" + MAGIC,
    PNG + b"x",
]


@pytest.mark.parametrize("index", [False, True])
@pytest.mark.parametrize("labels", [0, 5])
def test_a_pack_gives_back_what_went_in(tmp_path: Path, index: bool, labels: int) -> None:
    write_pack(tmp_path / "a.rec", TRICKY, labels, index)
    pack = RecordPack.open(tmp_path / "a.rec")
    assert everything(pack) == TRICKY and pack.damage is None
    assert [pack.name(number) for number in (0, 6)] == ["a.rec#0", "a.rec#6"]


@given(
    st.lists(
        st.lists(st.sampled_from([MAGIC, b"abcd", b"z", bytes(4)]), min_size=1, max_size=8),
        min_size=1,
        max_size=5,
    )
)
def test_any_bytes_survive_packing(
    tmp_path_factory: pytest.TempPathFactory, pieces: list[list[bytes]]
) -> None:
    images = [b"".join(words) for words in pieces]
    path = tmp_path_factory.mktemp("packs") / "a.rec"
    write_pack(path, images)
    assert everything(RecordPack.open(path)) == images


def test_a_pack_cut_anywhere_reads_up_to_the_cut(tmp_path: Path) -> None:
    images = [b"first image", b"ab" + MAGIC + b"cd", b"the third"]
    whole = tmp_path / "whole.rec"
    ends = write_pack(whole, images)
    data = whole.read_bytes()
    cut = tmp_path / "cut.rec"
    # The zeros after a record are no part of it: its image is whole before they are.
    whole_at = [end - (-len(image) % 4) for image, end in zip(images, ends[1:], strict=True)]
    for size in range(len(data)):
        cut.write_bytes(data[:size])
        readable = sum(end <= size for end in whole_at)
        if not readable:
            with pytest.raises(UsageError, match=r"cut\.rec is no record pack"):
                RecordPack.open(cut)
            continue
        pack = RecordPack.open(cut)
        assert everything(pack) == images[:readable]
        if whole_at[readable - 1] <= size <= ends[readable]:
            assert pack.damage is None
        else:
            assert pack.damage is not None and f"up to there, {readable} records" in pack.damage


def test_a_pack_damaged_anywhere_never_ends_in_a_traceback(tmp_path: Path) -> None:
    images = [b"first image", b"ab" + MAGIC + b"cd", b"the third"]
    whole = tmp_path / "whole.rec"
    ends = write_pack(whole, images)
    data = whole.read_bytes()
    harmed = tmp_path / "harmed.rec"
    for at in range(len(data)):
        harmed.write_bytes(data[:at] + bytes([data[at] ^ 0xFF]) + data[at + 1 :])
        before = sum(end <= at for end in ends[1:])
        try:
            pack = RecordPack.open(harmed)
        except UsageError as problem:
            assert before == 0 and "harmed.rec" in str(problem)
            continue
        assert len(pack) >= before
        for number in range(len(pack)):
            try:
                found = pack.read(number)
            except UsageError as problem:
                assert f"record {number}" in str(problem)
            else:
                assert number >= before or found == images[number]


def test_a_length_beyond_the_file_is_told_with_its_place(tmp_path: Path) -> None:
    path = tmp_path / "a.rec"
    path.write_bytes(image_record(b"fine") + MAGIC + struct.pack("<I", 2**29 - 1) + b"abc")
    pack = RecordPack.open(path)
    assert everything(pack) == [b"fine"]
    assert pack.damage is not None and "byte 36" in pack.damage and "536870911" in pack.damage


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "empty"),
        (b"PK\x03\x04 not a pack", "no record begins at byte 0"),
        (MAGIC, "within the head"),
        (chunk(3, b"abcd"), "without a beginning"),
        (chunk(2, b"abcd"), "without a beginning"),
        (chunk(7, b"abcd"), "without a beginning"),
        (chunk(1, b"abcd") + chunk(0, b"abcd"), "begins inside another"),
        (chunk(1, b"abcd") + chunk(2, b"") * 10_001, "too large for an image"),
    ],
)
def test_what_is_no_pack_is_refused(tmp_path: Path, data: bytes, says: str) -> None:
    path = tmp_path / "a.rec"
    path.write_bytes(data)
    with pytest.raises(UsageError, match=says):
        RecordPack.open(path)


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"short", "too few for an image"),
        (struct.pack("<IfQQ", 0, 0.0, 0, 0), "no image"),
        (struct.pack("<IfQQ", 2**32 - 1, 0.0, 0, 0) + b"abc", "4294967295 labels"),
    ],
)
def test_a_record_without_an_image_is_told_when_it_is_read(tmp_path: Path, data: bytes, says: str) -> None:
    path = tmp_path / "a.rec"
    path.write_bytes(record(data) + image_record(b"fine"))
    pack = RecordPack.open(path)
    with pytest.raises(UsageError, match=says):
        pack.read(0)
    assert pack.read(1) == b"fine"


@pytest.mark.parametrize(
    "index", ["", "0\n", "0\tx\n", "0\t99999999\n", "0\t4\n", "0\t0\n1\t5\n", "0\t-1\n", "\xff"]
)
def test_an_index_that_does_not_fit_is_left_alone(tmp_path: Path, index: str) -> None:
    write_pack(tmp_path / "a.rec", TRICKY)
    (tmp_path / "a.idx").write_text(index, "latin-1")
    assert everything(RecordPack.open(tmp_path / "a.rec")) == TRICKY


def test_with_an_index_damage_costs_one_record_only(tmp_path: Path) -> None:
    path = tmp_path / "a.rec"
    ends = write_pack(path, [b"one", b"two", b"three"], index=True)
    data = bytearray(path.read_bytes())
    data[ends[1]] ^= 0xFF
    path.write_bytes(data)
    pack = RecordPack.open(path)
    assert len(pack) == 3 and (pack.read(0), pack.read(2)) == (b"one", b"three")
    with pytest.raises(UsageError, match=f"record 1: no record begins at byte {ends[1]}"):
        pack.read(1)


# --- image sets --------------------------------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    inside = tmp_path / "photos" / "more"
    inside.mkdir(parents=True)
    (tmp_path / "photos" / "a.jpg").write_bytes(JPEG)
    (inside / "b.PNG").write_bytes(PNG)
    (inside / "notes.md").write_text("no image")
    return tmp_path / "photos"


def test_images_come_from_folders_files_lists_and_packs(tmp_path: Path, folder: Path) -> None:
    write_pack(tmp_path / "p.rec", [b"one", b"two"])
    (tmp_path / "list.txt").write_text(
        "\ufeff# a remark\n\n photos/a.jpg \nhttp://localhost/x.jpg\nphotos/gone.jpg\n", "utf-8"
    )
    found = open_images(folder, tmp_path / "p.rec", tmp_path / "list.txt", folder / "a.jpg")
    names = [found.name(number) for number in range(len(found))]
    assert names == [
        str(folder / "a.jpg"),
        str(folder / "more" / "b.PNG"),
        "p.rec#0",
        "p.rec#1",
        str(folder / "a.jpg"),
        "http://localhost/x.jpg",
        str(folder / "gone.jpg"),
        str(folder / "a.jpg"),
    ]
    assert [found.read(number) for number in (0, 1, 2, 3, 4, 7)] == [JPEG, PNG, b"one", b"two", JPEG, JPEG]
    with pytest.raises(UsageError, match="lies on the network"):
        found.read(5)
    with pytest.raises(UsageError, match=r"gone\.jpg cannot be read"):
        found.read(6)
    assert len(open_images(folder, most=1)) == 1 and len(open_images(folder, most=9)) == 2


def test_a_damaged_pack_says_so(tmp_path: Path) -> None:
    (tmp_path / "p.rec").write_bytes(image_record(b"one") + b"rest")
    found = open_images(tmp_path / "p.rec")
    assert len(found) == 1 and len(found.remarks) == 1 and "byte 36" in found.remarks[0]


def test_places_without_images_are_refused(tmp_path: Path) -> None:
    (tmp_path / "empty.txt").write_text("# nothing\n")
    (tmp_path / "binary.txt").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "folder").mkdir()
    for place, says in [
        (tmp_path / "empty.txt", "no image at"),
        (tmp_path / "binary.txt", "not UTF-8"),
        (tmp_path / "folder", "holds no image"),
        (tmp_path / "gone.rec", "does not exist"),
    ]:
        with pytest.raises(UsageError, match=says):
            open_images(place)


# --- mixes -------------------------------------------------------------------------------------------------------------------


def taken(mix: str, images: int, count: int, seed: int = 1) -> list[int]:
    return list(itertools.islice(picks(parse_mix(mix), images, np.random.default_rng(seed)), count))


def test_in_order_goes_round() -> None:
    assert taken("in-order", 3, 7) == [0, 1, 2, 0, 1, 2, 0]


def test_uniform_takes_each_as_often() -> None:
    counts = Counter(taken("uniform", 10, 20_000))
    assert set(counts) == set(range(10)) and all(1_800 < count < 2_200 for count in counts.values())


@pytest.mark.parametrize("exponent", [0.5, 1.0, 1.5])
def test_zipf_takes_ranks_as_its_exponent_says(exponent: float) -> None:
    counts = Counter(taken(f"zipf:{exponent}", 50, 100_000))
    shares = np.arange(1, 51) ** -exponent
    expected = shares / shares.sum() * 100_000
    for rank, (_, count) in enumerate(counts.most_common(8)):
        assert abs(count - expected[rank]) < 6 * np.sqrt(expected[rank])
    assert [number for number, _ in counts.most_common(8)] != list(range(8))


@given(st.sampled_from(["uniform", "zipf:0.3", "zipf", "zipf:10"]), st.integers(1, 50), st.integers(0, 99))
def test_picks_are_images_and_repeat_with_the_seed(mix: str, images: int, seed: int) -> None:
    first = taken(mix, images, 1500, seed)
    assert first == taken(mix, images, 1500, seed) and all(0 <= number < images for number in first)


@pytest.mark.parametrize(
    "text", ["", "zipf:", "zipf:0", "zipf:-1", "zipf:nan", "zipf:11", "pareto", "uniform:1", "zipf:x"]
)
def test_wrong_mixes(text: str) -> None:
    if text == "zipf:":
        assert parse_mix(text) == Mix("zipf", 1.0)
        return
    with pytest.raises(UsageError, match="none of uniform"):
        parse_mix(text)


# --- patterns ----------------------------------------------------------------------------------------------------------------


def test_patterns_are_read() -> None:
    assert parse_rate("200") == parse_rate("200/s") == Rate(200.0)
    assert parse_rate("30/m") == Rate(0.5) and parse_rate("poisson:3600/h") == Rate(1.0, True)
    assert parse_steps("50,100/s,200x30s") == Steps([50.0, 100.0, 200.0], 30.0)
    assert parse_steps("poisson:5,10x500ms") == Steps([5.0, 10.0], 0.5, True)
    assert parse_ramp("10..500") == Ramp(10.0, 500.0) and parse_ramp("poisson:500..10/s") == Ramp(
        500.0, 10.0, True
    )


@pytest.mark.parametrize(
    "text", ["", "0", "-5", "x", "200/d", "1e3", "nan", "inf", "200 per s", "1000001", "poisson:"]
)
def test_wrong_rates(text: str) -> None:
    with pytest.raises(UsageError, match=r"write it like 200/s"):
        parse_rate(text)


@pytest.mark.parametrize("text", ["", "50,100", "50x", "50x0s", "50x30", "x30s", "50,,100x30s"])
def test_wrong_steps(text: str) -> None:
    with pytest.raises(UsageError):
        parse_steps(text)


@pytest.mark.parametrize("text", ["", "10", "10..", "..10", "10...500x", "0..5"])
def test_wrong_ramps(text: str) -> None:
    with pytest.raises(UsageError):
        parse_ramp(text)


def in_phases(pattern: Rate | Steps | Ramp | Replay, warm_up_s: float, run_s: float) -> dict[str, int]:
    phases = phases_of(pattern, warm_up_s, run_s)
    found = {phase.name: 0 for phase in phases}
    last_s = 0.0
    for time_s in arrivals_of(pattern, warm_up_s, run_s, np.random.default_rng(1)):
        assert time_s >= last_s
        last_s = time_s
        name = next((phase.name for phase in phases if time_s < phase.until_s), None)
        if name is None:
            break
        found[name] += 1
    return found


def test_requests_fall_into_their_phases() -> None:
    assert in_phases(Rate(100.0), 2.0, 5.0) == {"warm-up": 200, "run": 500}
    assert in_phases(Rate(100.0), 0.0, 5.0) == {"run": 500}
    assert in_phases(Rate(100.0, burst=20), 1.0, 5.0) == {"warm-up": 100, "run": 500}
    assert in_phases(Steps([50.0, 100.0, 50.0], 2.0), 1.0, 99.0) == {
        "warm-up": 50,
        "50/s": 100,
        "100/s": 200,
        "50/s (2)": 100,
    }
    climb = in_phases(Ramp(10.0, 110.0), 1.0, 10.0)
    assert climb.pop("warm-up") == 10
    assert len(climb) == 10 and next(iter(climb)) == "10..20/s"
    assert all(abs(count - rate) <= 1 for count, rate in zip(climb.values(), range(15, 115, 10), strict=True))
    assert in_phases(Replay(np.array([0.0, 1.0, 2.5, 2.5, 9.0]), np.zeros(5, int), 2.0), 1.0, 3.0) == {
        "warm-up": 2,
        "run": 2,
    }


def test_poisson_arrivals_have_the_rate_and_are_not_regular() -> None:
    endless = arrivals_of(Rate(200.0, True), 1.0, 49.0, np.random.default_rng(5))
    times = list(itertools.takewhile(lambda time_s: time_s < 50.0, endless))
    assert abs(len(times) - 10_000) < 500
    gaps = np.diff(times)
    assert 0.9 < gaps.std() / gaps.mean() < 1.1


def test_a_closed_loop_has_warm_up_and_run() -> None:
    assert phases_of(Clients(4), 2.0, 30.0) == [("warm-up", 2.0), ("run", 32.0)]


# --- recorded times ----------------------------------------------------------------------------------------------------------


def test_recorded_times_begin_at_zero_and_rise() -> None:
    found = recorded([(1700000010.5, "b"), (1700000009.25, "a"), (float("nan"), "c"), (1700000011.0, "b")])
    assert found.times_s.tolist() == [0.0, 1.25, 1.75] and found.remarks == ()
    assert found.images.tolist() == [1, 0, 0], "what is asked for again is the same image"


def test_whole_seconds_are_spread() -> None:
    found = recorded([(1700000002.0, "a")] * 2 + [(1700000000.0, "a")] * 4)
    assert found.times_s.tolist() == [0.0, 0.25, 0.5, 0.75, 2.0, 2.5]
    assert "whole seconds" in found.remarks[0]


@given(st.lists(st.tuples(st.integers(0, 50).map(float), st.sampled_from("abc")), min_size=2, max_size=60))
def test_spreading_keeps_every_request_in_its_second(requests: list[tuple[float, str]]) -> None:
    found = recorded(requests)
    times_s = [time_s for time_s, _ in requests]
    assert np.floor(found.times_s + 1e-9).tolist() == sorted(time_s - min(times_s) for time_s in times_s)
    assert (np.diff(found.times_s) > 0).all()
    keys = [key for _, key in sorted(requests, key=lambda request: request[0])]
    same = {(key, number) for key, number in zip(keys, found.images.tolist(), strict=True)}
    assert len(same) == len(set(keys)) == len({number for _, number in same})


@pytest.mark.parametrize("times_s", [[], [1.5], [float("nan"), 1.5]])
def test_a_log_without_times_is_refused(times_s: list[float]) -> None:
    with pytest.raises(UsageError, match="no two requests"):
        recorded((time_s, "a") for time_s in times_s)


# --- requests ----------------------------------------------------------------------------------------------------------------

HERE = Endpoint.of("http://127.0.0.1:8000/predict?top_k=1")


def parts(wire: bytes) -> tuple[str, dict[str, str]]:
    first, *lines = wire.decode("latin-1").removesuffix("\r\n\r\n").split("\r\n")
    fields = [line.split(": ", 1) for line in lines]
    assert len({name.lower() for name, _ in fields}) == len(fields)
    return first, {name.lower(): value for name, value in fields}


def test_a_body_is_the_image() -> None:
    shot = as_body(HERE).make(Item(3, "a.jpg", JPEG))
    first, fields = parts(shot.wire)
    assert first == "POST /predict?top_k=1 HTTP/1.1" and shot.body is JPEG and shot.source == 3
    assert fields["host"] == "127.0.0.1:8000" and fields["content-type"] == "image/jpeg"
    assert fields["content-length"] == str(len(JPEG))
    assert (
        parts(as_body(HERE).make(Item(0, "", b"junk")).wire)[1]["content-type"] == "application/octet-stream"
    )


def test_fields_given_take_the_place_of_ours() -> None:
    to = Endpoint.of("http://[::1]/", ["content-type: image/x", "Authorization:Bearer a:b", "X-Empty:"])
    first, fields = parts(as_body(to).make(Item(0, "", JPEG)).wire)
    assert first == "POST / HTTP/1.1" and fields["host"] == "[::1]"
    assert (
        fields["content-type"] == "image/x"
        and fields["authorization"] == "Bearer a:b"
        and fields["x-empty"] == ""
    )


@pytest.mark.parametrize(
    "field",
    [
        "nothing",
        ": x",
        "a b: c",
        "A: b\r\nEvil: c",
        "A: \x00",
        "A: \u20ac",
        "Content-Length: 5",
        "Expect: 100-continue",
    ],
)
def test_wrong_fields(field: str) -> None:
    with pytest.raises(UsageError, match="field"):
        Endpoint.of("http://localhost/", [field])


@pytest.mark.parametrize(
    ("url", "path"),
    [("http://h/a b\u00e9?q=\u00e9 &r=%20", "/a%20b%C3%A9?q=%C3%A9%20&r=%20"), ("http://h", "/")],
)
def test_urls_are_written_as_http_wants_them(url: str, path: str) -> None:
    assert Endpoint.of(url).path == path


@pytest.mark.parametrize("url", ["http://me:secret@h/", "http://b\u00fccher.example/"])
def test_urls_that_cannot_be_written(url: str) -> None:
    with pytest.raises(UsageError) as caught:
        Endpoint.of(url)
    assert "secret" not in str(caught.value)


@given(st.binary(max_size=200) | st.just(b"\r\n--headrace-"), st.text(max_size=20))
def test_a_form_reads_as_it_was_meant(data: bytes, name: str) -> None:
    shot = as_form(HERE, "image").make(Item(0, f"folder/{name}", data))
    form = images_in_form(bytes(shot.body), parts(shot.wire)[1]["content-type"].encode(), 64)
    assert form.single and form.items[0].data == data  # type: ignore[union-attr]
    assert b'name="image"' in bytes(shot.body)


def test_a_url_goes_as_json() -> None:
    shot = as_url(HERE, "image_url").make(Item(0, "http://h/\u00e9.jpg", b""))
    assert orjson.loads(bytes(shot.body)) == {"image_url": "http://h/\u00e9.jpg"}
    assert parts(shot.wire)[1]["content-type"] == "application/json"


# --- what is expected --------------------------------------------------------------------------------------------------------


def test_answers_are_judged() -> None:
    assert expecting("201")(201, [], b"") is None and expecting("201")(200, [], b"") == "wrong_status"
    cat = expecting(r'"label":\s*"cat"')
    assert cat(200, [], b'{"label": "cat"}') is None and cat(200, [], b'{"label": "dog"}') == "wrong_answer"
    assert expecting("x$")(200, [], b"a" * 70_000 + b"x") == "wrong_answer"


@pytest.mark.parametrize("text", ["404", "500", "(", "*"])
def test_wrong_expectations(text: str) -> None:
    with pytest.raises(UsageError, match="--expect"):
        expecting(text)


# --- templates ---------------------------------------------------------------------------------------------------------------


def sent(template: bytes, item: Item) -> tuple[str, dict[str, str], bytes]:
    shot = as_template(HERE, parse_template(template)).make(item)
    return *parts(shot.wire), bytes(shot.body)


AWKWARD = Item(7, 'a b/"\u00e9&?.jpg', b"\x00\xffJPEG")


def test_a_template_is_filled_in() -> None:
    first, fields, body = sent(
        b"POST /v1/{name}?n={number}&u={url} HTTP/1.1\r\nContent-Type: application/json\r\nX-Name: {name}\r\n\r\n"
        b'{"a": {"b": "{image_base64}", "name": "{name}", "other": "{other}"}, "n": {number}}\r\n',
        AWKWARD,
    )
    assert first == "POST /v1/a%20b/%22%C3%A9%26%3F.jpg?n=7&u=a%20b%2F%22%C3%A9%26%3F.jpg HTTP/1.1"
    assert fields["x-name"] == "a%20b/%22%C3%A9%26%3F.jpg" and fields["content-length"] == str(len(body))
    assert orjson.loads(body) == {"a": {"b": "AP9KUEVH", "name": AWKWARD.name, "other": "{other}"}, "n": 7}


def test_bytes_go_into_a_template_as_they_are() -> None:
    assert sent(b"PUT /x\n\n<{image}>\n", AWKWARD)[2] == b"<\x00\xffJPEG>"
    assert (
        sent(
            b"POST /x\nContent-Type: application/x-www-form-urlencoded\n\ni={image_base64}&n={name}",
            Item(0, "a&b", b"\xff" * 4),
        )[2]
        == b"i=%2F%2F%2F%2F%2Fw%3D%3D&n=a%26b"
    )
    first, fields, body = sent(b"GET /x?src={url}\n", AWKWARD)
    assert first.startswith("GET /x?src=a%20b%2F") and body == b"" and "content-length" not in fields


@pytest.mark.parametrize(
    ("template", "wants"),
    [
        (b"POST /\n\n{image}", "bytes"),
        (b"POST /\n\n{image_base64}", "bytes"),
        (b"GET /{url}", "url"),
        (b"GET /\nX-Url: {url}", "url"),
        (b"GET /{name}", "name"),
        (b"GET /", "name"),
    ],
)
def test_a_template_says_what_it_wants(template: bytes, wants: str) -> None:
    assert as_template(HERE, parse_template(template)).wants == wants


@pytest.mark.parametrize(
    ("template", "says"),
    [
        (b"", "begins with"),
        (b"POST", "begins with"),
        (b"POST predict", "begins with"),
        (b"post /", "begins with"),
        (b"HEAD /", "HEAD"),
        (b"POST /{image}", "belongs into the body"),
        (b"POST /\nX: {image_base64}", "belongs into the body"),
        (b"POST /\nno field\n\n", "no header field"),
        (b"POST /\nContent-Length: 3\n\nabc", "written by headrace"),
        (b"POST /\xff", "outside ASCII"),
    ],
)
def test_wrong_templates(template: bytes, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        parse_template(template)


@given(st.binary(max_size=100))
def test_no_template_ends_in_a_traceback(text: bytes) -> None:
    for template in (text, b"POST /\n" + text):
        try:
            as_template(HERE, parse_template(template)).make(AWKWARD)
        except UsageError:
            pass


# --- Open Inference Protocol -------------------------------------------------------------------------------------------------

MODEL = Endpoint.of("http://h/v2/models/m/infer")
OURS = [Input("image", "BYTES", (-1, 1)), Input("prepared", "UINT8", (-1, 8, 6, 3))]
RECIPE = Recipe(width=6, height=8)


@pytest.mark.parametrize("binary", [True, False])
def test_an_encoded_image_is_read_by_our_own_server(binary: bool) -> None:
    shot = as_oip(MODEL, OURS, None, binary=binary).make(Item(0, "", JPEG))
    first, fields = parts(shot.wire)
    assert first == "POST /v2/models/m/infer HTTP/1.1"
    length = fields.get("inference-header-content-length")
    asked = parse_infer(bytes(shot.body), length.encode() if length else None)
    assert asked.binary == binary and encoded_images(asked.inputs[0], 1) == [JPEG]


@pytest.mark.parametrize("binary", [True, False])
def test_prepared_pixels_are_read_by_our_own_server(binary: bool) -> None:
    shot = as_oip(MODEL, OURS, RECIPE, binary=binary).make(Item(0, "", PNG))
    length = parts(shot.wire)[1].get("inference-header-content-length")
    asked = parse_infer(bytes(shot.body), length.encode() if length else None)
    assert prepared_images(asked.inputs[0], (8, 6, 3), 1).shape == (1, 8, 6, 3)


@pytest.mark.parametrize("datatype", ["FP32", "FP16"])
@pytest.mark.parametrize("shape", [(-1, 3, 8, 6), (3, 8, 6), (-1, 3, -1, -1), (1, 8, 6, 3)])
def test_floats_are_as_the_recipe_makes_them(shape: tuple[int, ...], datatype: str) -> None:
    recipe = Recipe(width=6, height=8, mean=(0.5, 0.5, 0.5), std=(0.5, 0.5, 0.5))
    bodies = [
        as_oip(MODEL, [Input("x", datatype, shape)], recipe, binary=binary).make(Item(0, "", PNG)).body
        for binary in (True, False)
    ]
    told = orjson.loads(bytes(bodies[1]))["inputs"][0]
    channels_last = shape[-1] == 3
    assert told["shape"] == ([1] * (len(shape) - 3)) + ([8, 6, 3] if channels_last else [3, 8, 6])
    dtype = np.float32 if datatype == "FP32" else np.float16
    raw = np.frombuffer(bytes(bodies[0])[-144 * np.dtype(dtype).itemsize :], dtype)
    assert np.array_equal(np.array(told["data"], dtype), raw) and -1.0 <= raw.min() < 0.5 < raw.max() <= 1.0


@pytest.mark.parametrize(
    ("inputs", "recipe", "says"),
    [
        ([], None, "takes nothing"),
        ([Input("x", "FP32", (-1, 3, 8, 6))], None, "no BYTES tensor"),
        ([Input("a", "BYTES", (-1,)), Input("b", "BYTES", (-1,))], None, "more than one BYTES"),
        ([Input("a", "BYTES", (-1, 4))], None, "not one image"),
        ([Input("x", "FP32", (-1, 3, 9, 6))], RECIPE, "no UINT8, FP16 or FP32 tensor of the recipe's size"),
        ([Input("x", "INT64", (-1, 3, 8, 6))], RECIPE, "no UINT8, FP16 or FP32"),
        ([Input("x", "FP32", (2, 3, 8, 6))], RECIPE, "no UINT8, FP16 or FP32"),
    ],
)
def test_models_that_take_something_else(inputs: list[Input], recipe: Recipe | None, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        as_oip(MODEL, inputs, recipe, binary=True)


@pytest.mark.parametrize(
    ("path", "model"),
    [
        ("/v2/models/m", "/v2/models/m"),
        ("/v2/models/m/infer", "/v2/models/m"),
        ("/base/v2/models/m/versions/2/infer?x=1", "/base/v2/models/m/versions/2"),
    ],
)
def test_paths_of_models(path: str, model: str) -> None:
    assert model_path(path) == model
    with pytest.raises(UsageError, match="names no model"):
        model_path("/predict")


@pytest.mark.parametrize(
    "text", [b"", b"[]", b"{}", b'{"inputs": 3}', b'{"inputs": [1]}', b'{"inputs": [{"name": "a"}]}', b"\xff"]
)
def test_metadata_that_cannot_be_read(text: bytes) -> None:
    with pytest.raises(UsageError, match="metadata"):
        parse_inputs(text)

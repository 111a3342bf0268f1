"""Images by their headers: what is told of each, whole, cut and damaged; repeats by content; packs, lists and captures."""

from __future__ import annotations

import argparse
import gzip
import json
import os
import struct
from collections import Counter
from pathlib import Path

import pytest

from headrace.cli.verbs import census as verb
from headrace.core.census.facts import facts_of
from headrace.errors import CaptureError, HeadraceError, ImageError, UnsupportedMedia, UsageError
from headrace.records.capture import Manifest
from headrace.records.rows.load import ImageRow, OutcomeRow
from headrace.store.captures.writer import CaptureWriter
from headrace.workflows.census import census
from headrace.workflows.census_sources import Reading, count
from pictures import encoded, exif, picture, small_files

LINE = '10.0.0.1 - - [10/Oct/2025:13:55:{second:02d} +0000] "GET {key} HTTP/1.1" 200 {size} "-" "curl"\n'


def log(path: Path, keys: list[str], size: int = 3_000_000) -> Path:
    path.write_text("".join(LINE.format(second=n % 60, key=key, size=size) for n, key in enumerate(keys)))
    return path


# --- headers -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "data", "expected"),
    [
        (
            "4:2:0",
            encoded(picture(), "JPEG", subsampling="4:2:0"),
            {"subsampling": "4:2:0", "scans": "baseline"},
        ),
        ("4:2:2", encoded(picture(), "JPEG", subsampling="4:2:2"), {"subsampling": "4:2:2"}),
        ("4:4:4", encoded(picture(), "JPEG", subsampling="4:4:4"), {"subsampling": "4:4:4", "colour": "ycc"}),
        ("grey", encoded(picture(mode="L"), "JPEG"), {"subsampling": "grey", "colour": "grey"}),
        ("progressive", encoded(picture(), "JPEG", progressive=True), {"scans": "progressive"}),
        ("cmyk", small_files()["jpeg cmyk"], {"colour": "cmyk"}),
        (
            "turned",
            encoded(picture(), "JPEG", exif=exif(6)),
            {"orientation": "turned", "width": 97, "height": 61},
        ),
        ("png", small_files()["png rgba"], {"scans": None, "subsampling": None, "colour": "rgb + alpha"}),
        ("animated", small_files()["gif animated"], {"frames": "animated", "format": "gif"}),
        ("still", small_files()["webp lossy"], {"frames": "still", "format": "webp"}),
    ],
)
def test_what_a_header_tells(name: str, data: bytes, expected: dict[str, object]) -> None:
    facts = facts_of(name, data, len(data))
    assert {field: getattr(facts, field) for field in expected} == expected
    assert facts.size_bytes == len(data) and facts.pixels == facts.width * facts.height  # type: ignore[operator]


@pytest.mark.parametrize(
    "factors", [(0x11, 0x21, 0x11), (0x41, 0x11, 0x11), (0x21, 0x11, 0x12), (0x31, 0x21, 0x21)]
)
def test_odd_sampling_factors_have_a_name_too(factors: tuple[int, int, int]) -> None:
    data = bytearray(encoded(picture(), "JPEG", subsampling="4:4:4"))
    at = data.index(b"\xff\xc0") + 10
    for component, factor in enumerate(factors):
        data[at + 1 + 3 * component] = factor
    assert facts_of("", data, 0).subsampling == ("4:1:1" if factors[0] == 0x41 else "other")


@pytest.mark.parametrize("name", sorted(small_files()))
def test_an_image_cut_anywhere_is_told_of_or_refused(name: str) -> None:
    data = small_files()[name]
    full = facts_of(name, data, len(data))
    for cut in range(0, len(data), max(1, len(data) // 150)):
        try:
            facts = facts_of(name, data[:cut], len(data))
        except (ImageError, UnsupportedMedia):
            continue
        assert (facts.format, facts.width, facts.height) == (full.format, full.width, full.height)


# --- folders, packs, lists ---------------------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two different JPEGs, a copy of one, one of the same size in bytes with other content, a PNG, and three that cannot be read."""
    place = tmp_path / "images"
    (place / "deep").mkdir(parents=True)
    jpeg = encoded(picture(400, 300), "JPEG")
    (place / "a.jpg").write_bytes(jpeg)
    (place / "deep" / "copy.JPG").write_bytes(jpeg)
    (place / "other.jpg").write_bytes(jpeg[:-20] + bytes(20))
    (place / "b.jpg").write_bytes(encoded(picture(800, 600), "JPEG", progressive=True))
    (place / "c.png").write_bytes(encoded(picture(64, 48), "PNG"))
    (place / "cut.jpg").write_bytes(jpeg[:100])
    (place / "text.png").write_text("no image")
    (place / "empty.gif").write_bytes(b"")
    (place / "notes.txt").write_text("not looked at")
    return place


def test_a_folder_is_counted_and_what_cannot_be_read_is_told(folder: Path) -> None:
    counted = count([folder], Reading())
    assert counted.makeup is not None and counted.traffic is None
    assert counted.makeup.images == 5 and counted.repeated == 1
    assert counted.makeup.kinds["format"] == {"jpeg": 4, "png": 1}
    assert counted.makeup.kinds["scans"] == {"baseline": 3, "progressive": 1}
    assert counted.makeup.sizes["pixels"].quantile(1) == 480_000 and counted.largest == str(folder / "b.jpg")
    assert counted.unreadable == {"unsupported_media": 2, "undecodable": 1}
    assert {Path(example.split(": ")[0]).name for example in counted.examples} == {
        "cut.jpg",
        "text.png",
        "empty.gif",
    }


def test_lists_and_packs_say_the_same_as_their_folder(folder: Path) -> None:
    files = sorted(path for path in folder.rglob("*") if path.suffix not in ("", ".txt"))
    list_file = folder.parent / "some.lst"
    list_file.write_text("".join(f"{path.relative_to(folder.parent)}\n" for path in files))
    pack = folder.parent / "some.rec"
    pack.write_bytes(b"".join(record(path.read_bytes()) for path in files if path.stat().st_size))
    by_folder, by_list, by_pack = (count([place], Reading()) for place in (folder, list_file, pack))
    assert by_list.makeup is not None and by_pack.makeup is not None and by_folder.makeup is not None
    for other in (by_list, by_pack):
        assert other.makeup is not None and other.makeup.kinds == by_folder.makeup.kinds
        assert other.repeated == 1 and other.makeup.sizes["bytes"].values.tolist() == (
            by_folder.makeup.sizes["bytes"].values.tolist()
        )
    assert by_list.unreadable == by_folder.unreadable


def record(data: bytes) -> bytes:
    body = struct.pack("<IfQQ", 0, 0.0, 0, 0) + data
    return struct.pack("<II", 0xCED7230A, len(body)) + body + bytes(-len(body) % 4)


def test_a_header_past_the_first_bytes_is_read_on(tmp_path: Path) -> None:
    data = encoded(picture(50, 40), "JPEG")
    segment = b"\xff\xe9" + (65_535).to_bytes(2, "big") + bytes(65_533)
    path = tmp_path / "long.jpg"
    path.write_bytes(data[:2] + 20 * segment + data[2:])
    counted = count([path], Reading())
    assert counted.makeup is not None and counted.makeup.sizes["pixels"].quantile(1) == 2000
    assert counted.unreadable == {}


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_without_permission_is_one_unreadable_image(folder: Path) -> None:
    (folder / "a.jpg").chmod(0)
    assert count([folder], Reading()).unreadable["unreadable"] == 1


def test_an_image_without_a_suffix_is_an_image(folder: Path) -> None:
    path = folder / "photo"
    path.write_bytes((folder / "a.jpg").read_bytes())
    counted = count([path], Reading())
    assert counted.makeup is not None and counted.makeup.images == 1


# --- captures ----------------------------------------------------------------------------------------------------------------


def capture(folder: Path, requests: list[int], statuses: list[int | None] | None = None) -> Path:
    """A load run that sent images 0 (12 MP JPEG), 1 (1 MP PNG) and 2 (a URL whose bytes nobody knows)."""
    manifest = Manifest(headrace="0", made_by="load", began_wall_s=0.0, began_monotonic_s=0.0, boot_id=None)
    with CaptureWriter.create(folder, manifest) as writer:
        writer.add(
            [
                ImageRow(0, "a.jpg", "jpeg", 3_000_000, 4000, 3000),
                ImageRow(1, "b.png", "png", 900_000, 1000, 1000),
                ImageRow(2, "http://x/c", None, None, None, None),
            ]
        )
        for number, source in enumerate(requests):
            status = statuses[number] if statuses else 200
            writer.add([OutcomeRow(number, "run", source, number / 10, None, None, status, None, 0, 0)])
        writer.flush()
    return folder


def test_a_load_run_counts_images_as_often_as_they_were_sent(tmp_path: Path) -> None:
    counted = count(
        [capture(tmp_path / "run", [0] * 150 + [1] * 50 + [2] * 10, [200] * 200 + [None] * 10)], Reading()
    )
    assert counted.makeup is not None and counted.traffic is not None
    assert counted.makeup.images == 3 and counted.makeup.kinds["format"] == {"jpeg": 150, "png": 50}
    assert counted.traffic.keys.requests == 210 and counted.traffic.images == 3
    assert counted.traffic.arrivals is not None and counted.traffic.arrivals.mean_per_s == pytest.approx(10)


def test_a_cut_capture_is_counted_up_to_the_cut_and_one_without_requests_is_refused(tmp_path: Path) -> None:
    place = capture(tmp_path / "run", [0, 1] * 20_000)
    table = place / "outcomes.arrows"
    table.write_bytes(table.read_bytes()[:-1000])
    counted = count([place], Reading())
    assert counted.traffic is not None and 0 < counted.traffic.keys.requests < 40_000
    assert any("outcomes.arrows" in remark for remark in counted.remarks)
    with pytest.raises(UsageError, match="no requests"):
        count([capture(tmp_path / "idle", [])], Reading())
    (place / "manifest.json").write_text("{")
    with pytest.raises(CaptureError):
        count([place], Reading())


# --- together ----------------------------------------------------------------------------------------------------------------


def test_a_test_set_that_repeats_what_production_does_not_is_told(tmp_path: Path) -> None:
    production = log(tmp_path / "access.log", [f"/{n}.jpg" for n in range(400)])
    test = log(tmp_path / "test.log", [f"/{n % 200}.jpg" for n in range(2000)])
    report = census([production], against=[test])
    assert report.findings[0].startswith(
        "The test set is not like production: 0 % of production's requests repeat an image, 50.0 % of the test set's."
    ), "over the first 400 of each"
    assert report.findings[1] == "A cache would gain nothing: 0 % of requests repeat an image."


def test_a_load_run_with_one_image_over_and_over_is_told(tmp_path: Path) -> None:
    production = log(tmp_path / "access.log", [f"/{n}.jpg" for n in range(400)])
    report = census([production], against=[capture(tmp_path / "run", [0] * 500)])
    assert report.findings[0].endswith(
        "0 % of production's requests repeat an image, 99.8 % of the test set's."
    )


def test_a_folder_of_images_may_hold_a_manifest_of_its_own(folder: Path) -> None:
    (folder / "manifest.json").write_text("{}")
    assert count([folder], Reading()).makeup is not None


def test_a_capture_against_a_folder(tmp_path: Path, folder: Path) -> None:
    report = census([capture(tmp_path / "run", [0, 1] * 100)], against=[folder])
    properties = Counter(difference.property for difference in report.differences)
    assert properties.keys() == {"pixels", "bytes", "format"}
    assert report.counted.place == str(tmp_path / "run")


def test_a_log_of_posted_images_is_told_so(tmp_path: Path) -> None:
    path = tmp_path / "access.log"
    path.write_text(LINE.format(second=1, key="/predict", size=300).replace("GET", "POST") * 500)
    report = census([path])
    assert (
        report.cache is None
        and "nothing can be said" in report.findings[0]
        and "--fields url=NAME" in report.findings[0]
    )


# --- the verb ----------------------------------------------------------------------------------------------------------------


def run(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> str:
    parser = argparse.ArgumentParser()
    verb.flags(parser)
    assert verb.run(parser.parse_args([str(argument) for argument in arguments])) == 0
    out, err = capsys.readouterr()
    assert err == ""
    return out


def test_the_page_has_the_finding_first(
    tmp_path: Path, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = log(tmp_path / "access.log", [f"/{n % 40}.jpg" for n in range(1000)])
    lines = run(capsys, path, "--entry-bytes", "147KiB").splitlines()
    assert lines[0] == (
        "A cache of 40 images (5.7 MiB) would answer 96.0 % of requests; none can answer more than 96.0 %, since the others ask for an "
        "image for the first time."
    )
    assert any(line.split() == ["40", "5.7", "MiB", "96.0", "%", "96.0", "%", "96.0", "%"] for line in lines)
    assert run(capsys, folder).startswith("5 images: 0.12 MP and")
    side_by_side = run(capsys, folder, "--against", folder / "c.png")
    assert "production: " in side_by_side and "pixels: median" in side_by_side


def test_the_json_is_complete_and_plain(
    tmp_path: Path, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = log(tmp_path / "access.log", [f"/{n % 40}.jpg" for n in range(1000)])
    value = json.loads(run(capsys, path, "--json", "--policy", "sieve"))
    assert value["format"] == 1 and len(value["findings"]) == 2 and value["against"] is None
    assert value["cache"]["exact"] and value["cache"]["ceiling"] == {
        "value": pytest.approx(0.96),
        "half_width": 0.0,
    }
    assert set(value["cache"]["sizes"][0]["hits"]) == {"lru", "sieve"}
    assert value["counted"]["requests"]["top"][0]["requests"] == 25
    assert value["counted"]["sizes"]["bytes"]["p50"] == pytest.approx(3_000_000, rel=0.002)
    both = json.loads(run(capsys, folder, "--json", "--against", folder))
    assert both["differences"][0]["finding"] == "alike" and both["counted"]["images"] == 5


def test_a_recipe_gives_the_bytes_of_an_entry(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = log(tmp_path / "access.log", [f"/{n % 40}.jpg" for n in range(200)])
    (tmp_path / "recipe.toml").write_text('[recipe]\nwidth = 100\nheight = 50\ncolour = "grey"\n')
    value = json.loads(run(capsys, path, "--json", "--recipe", tmp_path / "recipe.toml"))
    assert value["cache"]["entry_bytes"] == 5000
    with pytest.raises(UsageError, match="one of them"):
        run(capsys, path, "--recipe", tmp_path / "recipe.toml", "--entry-bytes", "5kB")


def test_options_of_reading(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    keys = [key for n in range(300) for key in (f"/img/{n % 10}?v={n}", "/healthz")]
    path = log(tmp_path / "access.log", keys)

    def requests(*options: str) -> tuple[int, int]:
        found = json.loads(run(capsys, path, "--json", *options))["counted"]["requests"]
        return found["requests"], found["images"]

    assert requests() == (600, 301)
    assert requests("--only", "^/img/") == (300, 300)
    assert requests("--only", "^/img/", "--strip-query") == (300, 10)
    assert requests("--most", "100") == (100, 51)


def test_strangers_do_not_steer_the_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = run(capsys, log(tmp_path / "access.log", ["/\x1b[2J\x9b\u202e.jpg"] * 200))
    assert all(letter.isprintable() or letter == "\n" for letter in page)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["absent"], "does not exist"),
        (["empty"], "holds no image"),
        (["access.log", "empty"], "cannot be counted together"),
        (["access.log", "--only", "("], "regular expression"),
        (["access.log", "--only", "zzz"], "no request with 'zzz'"),
        (["access.log", "--fields", "x=y"], "--fields"),
        (["access.log", "--recipe", "absent.toml"], "absent.toml"),
        (["access.log", "--against", "absent"], "does not exist"),
        (["cut.gz"], "cut.gz"),
    ],
)
def test_wrong_use_is_one_sentence(
    arguments: list[str],
    says: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("empty").mkdir()
    log(Path("access.log"), ["/a"] * 10)
    Path("cut.gz").write_bytes(gzip.compress(b"x" * 1000)[:12])
    with pytest.raises(HeadraceError) as caught:
        run(capsys, *arguments)
    assert says in str(caught.value) and caught.value.exit_code in (64, 65) and "\n" not in str(caught.value)

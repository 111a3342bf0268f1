"""Leaving out scans: the file stays a JPEG, what is kept is kept exactly, what is odd is left alone, what is broken is told."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
import simplejpeg

from headrace.core.image import jpeg_scans
from headrace.core.image.compare import compare
from headrace.core.image.formats import Malformed
from headrace.core.image.formats.jpeg import SOS, segments
from headrace.core.image.header import read_header
from headrace.errors import ImageError
from headrace.records.recipe import Recipe
from jpeg_coefficients import Script, coefficients, read, written
from pictures import apart, assets_or_none, awkward_named, encoded, picture, prepared, reference_of


def reduced(data: bytes, eighths: int) -> bytes | None:
    return jpeg_scans.reduced(data, read_header(data), eighths)


def progressive(mode: str = "RGB", size: tuple[int, int] = (61, 45), **options: object) -> bytes:
    return encoded(picture(*size).convert(mode), "JPEG", **{"progressive": True, "quality": 90, **options})


def scans(data: bytes) -> list[tuple[int, bytes, int]]:
    """(position, header, end of its data) of every scan."""
    found, at = [], 2
    while True:
        last = list(segments(data, at))[-1]
        if last.marker != SOS:
            return found
        following = re.compile(rb"\xff[\x01-\xcf\xd8-\xfe]").search(data, last.end)
        assert following is not None
        found.append((last.start - 4, data[last.start : last.end], following.start()))
        at = following.start()


FILES = {
    "4:4:4": progressive(subsampling=0),
    "4:2:2": progressive(subsampling=1),
    "4:2:0": progressive(subsampling=2),
    "grey": progressive("L"),
    "one block": progressive(size=(8, 8)),
    "one pixel": progressive(size=(1, 1)),
    "one row": progressive(size=(300, 3)),
    "quality 30": progressive(quality=30),
}


@pytest.mark.parametrize("eighths", [1, 2, 4])
@pytest.mark.parametrize("name", FILES)
def test_kept_coefficients_are_exact(name: str, eighths: int) -> None:
    """DC: the same. AC that the decode reads: the first scan's bits, no guess. All others: declared zero."""
    data = FILES[name]
    smaller = reduced(data, eighths)
    assert smaller is not None
    before, after = coefficients(data), coefficients(smaller)
    parts, steps = read(data)
    assert before.keys() == after.keys()
    for index, (component, part) in enumerate(parts.items()):
        assert np.array_equal(before[component][..., 0], after[component][..., 0])
        kept = after[component]
        shift = 2 if index == 0 else 1
        first_bits = np.sign(before[component]) * (
            np.abs(before[component]) // (steps[part.table] << shift) * (steps[part.table] << shift)
        )
        last = 63 if index else {1: 0, 2: 5, 4: 63}[eighths]
        if index and eighths == 1 and name in ("4:4:4", "4:2:2"):
            last = 0
        within = kept[..., 1 : last + 1]
        assert np.array_equal(within, first_bits[..., 1 : last + 1]), component
        assert not kept[..., last + 1 :].any()


@pytest.mark.parametrize("eighths", [1, 2, 4])
@pytest.mark.parametrize("name", FILES)
def test_the_result_is_a_jpeg_without_a_warning(name: str, eighths: int) -> None:
    smaller = reduced(FILES[name], eighths)
    assert smaller is not None
    header, before = read_header(smaller), read_header(FILES[name])
    assert (header.width, header.height, header.sampling) == (before.width, before.height, before.sampling)
    colour = "GRAY" if header.channels == 1 else "RGB"
    size = (-(-header.width * eighths // 8), -(-header.height * eighths // 8))
    pixels = simplejpeg.decode_jpeg(smaller, colour, min_width=size[0], min_height=size[1], strict=True)
    assert pixels.shape[:2] == size[::-1]
    full = simplejpeg.decode_jpeg(FILES[name], colour, min_width=size[0], min_height=size[1], strict=True)
    assert apart(pixels, full) < (15 if name == "quality 30" else 6)


def test_scans_are_dropped() -> None:
    data = progressive(size=(640, 480), quality=92)
    left = []
    for eighths in (4, 2, 1):
        smaller = reduced(data, eighths)
        assert smaller is not None
        left.append((len(scans(smaller)), len(smaller)))
    assert len(scans(data)) == 10
    assert [count for count, _ in left] == [
        6,
        6,
        5,
    ]  # two of DC, three first bands and the empty one for the rest of luma
    assert left[0][1] < 0.7 * len(data)
    assert left[2][1] < left[1][1] < left[0][1]


@pytest.mark.parametrize("eighths", [1, 2, 4])
def test_no_refinement_of_ac_is_left(eighths: int) -> None:
    smaller = reduced(progressive(size=(200, 150)), eighths)
    assert smaller is not None
    for _, head, _ in scans(smaller):
        first, approximation = head[-3], head[-1]
        assert first == 0 or approximation == 0


def test_metadata_is_left_out_and_colour_is_not() -> None:
    data = progressive(exif=b"Exif\0\0" + bytes(500), icc_profile=bytes(3000), comment=b"hello")
    smaller = reduced(data, 2)
    assert smaller is not None
    assert b"Exif" not in smaller and b"ICC_PROFILE" not in smaller and b"hello" not in smaller
    rgb = progressive(keep_rgb=True, size=(96, 64), subsampling=0)
    assert read_header(rgb).colour == "rgb"
    kept = reduced(rgb, 2)
    if kept is not None:
        assert read_header(kept).colour == "rgb"


# --- other scripts of scans ---------------------------------------------------------------------------------------------------

ONE_BAND: Script = [([1, 2, 3], 0, 0, 0), ([1], 1, 63, 0), ([2], 1, 63, 0), ([3], 1, 63, 0)]
BANDS: Script = [
    ([1, 2, 3], 0, 0, 0),
    ([1], 1, 5, 0),
    ([2], 1, 5, 0),
    ([3], 1, 5, 0),
    ([1], 6, 63, 0),
    ([2], 6, 63, 0),
    ([3], 6, 63, 0),
]
SEPARATE_DC: Script = [([1], 0, 0, 0), ([3], 0, 0, 0), ([2], 0, 0, 0), *BANDS[1:]]
HIGH_BAND_FIRST: Script = [([1, 2, 3], 0, 0, 0), ([1], 6, 63, 0), ([1], 1, 5, 0), *BANDS[2:4], *BANDS[5:]]
SHIFTED_APART: Script = [([1, 2, 3], 0, 0, 0), ([1], 1, 63, 0), ([2], 1, 63, 1), ([3], 1, 63, 2)]
DC_ONLY: Script = [([1, 2, 3], 0, 0, 0)]


def by_script(script: Script, size: tuple[int, int] = (96, 64), before: bytes = b"") -> bytes:
    parts, steps = read(progressive(size=size, subsampling=0))
    return written(parts, steps, size, script, before)


def test_the_referee_reads_what_it_writes() -> None:
    original = coefficients(progressive(size=(96, 64), subsampling=0))
    for script in (ONE_BAND, BANDS, SEPARATE_DC, HIGH_BAND_FIRST):
        assert all(
            np.array_equal(original[n], values) for n, values in coefficients(by_script(script)).items()
        )
        simplejpeg.decode_jpeg(by_script(script), "RGB", strict=True)


@pytest.mark.parametrize("script", [ONE_BAND, BANDS, SEPARATE_DC], ids=["one band", "bands", "separate DC"])
@pytest.mark.parametrize("eighths", [1, 2, 4])
def test_spectral_selection_alone(script: Script, eighths: int) -> None:
    """Nothing was shifted, so what is kept is complete. At 1/4 the decoder reads a little outside the corner that is kept."""
    data = by_script(script)
    smaller = reduced(data, eighths)
    assert smaller is not None
    sizes = {"min_width": 96 * eighths // 8, "min_height": 64 * eighths // 8}
    full = simplejpeg.decode_jpeg(data, "RGB", **sizes, strict=True)
    got = simplejpeg.decode_jpeg(smaller, "RGB", **sizes, strict=True)
    assert apart(got, full) < 1.5 if eighths == 2 and script is not ONE_BAND else np.array_equal(got, full)


@pytest.mark.parametrize("eighths", [1, 2, 4])
def test_dc_alone_is_left_as_it_is_or_declared_complete(eighths: int) -> None:
    smaller = reduced(by_script(DC_ONLY), eighths)
    assert smaller is not None
    assert all(not values[..., 1:].any() for values in coefficients(smaller).values())


def test_a_high_band_sent_first() -> None:
    data = by_script(HIGH_BAND_FIRST)
    assert reduced(data, 4) is None
    smaller = reduced(data, 2)
    assert smaller is not None
    simplejpeg.decode_jpeg(smaller, "RGB", min_width=24, min_height=16, strict=True)


def test_a_table_shared_at_different_shifts_is_left_alone() -> None:
    assert reduced(by_script(SHIFTED_APART), 4) is None
    assert np.isfinite(prepared(by_script(ONE_BAND), Recipe(width=16, height=16))).all()


UNUSUAL = {
    "restart interval": by_script(BANDS, before=b"\xff\xdd\0\4\0\7"),
    "table sent twice": by_script(BANDS, before=b"\xff\xdb\0\x43\0" + bytes([9]) * 64),
    "two frames": by_script(BANDS, before=b"\xff\xc2\0\x0b\x08\0\x40\0\x60\1\1\x11\0"),
    "baseline": encoded(picture(96, 64), "JPEG"),
    "too many scans": by_script([*BANDS, *([([1], 1, 5, 0)] * 130)]),
}


@pytest.mark.parametrize("name", UNUSUAL)
def test_unusual_files_are_left_alone(name: str) -> None:
    assert reduced(UNUSUAL[name], 2) is None


def test_arithmetic_coding_is_refused_by_the_header() -> None:
    data = progressive().replace(b"\xff\xc2", b"\xff\xca", 1)
    with pytest.raises(ImageError, match="arithmetic"):
        read_header(data)


def test_separate_baseline_scans_are_left_alone() -> None:
    assert reduced(awkward_named("q85_420_non_interleaved.jpg"), 2) is None


# --- truncated ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["4:2:0", "4:4:4", "grey"])
def test_truncation_anywhere_is_an_error(name: str) -> None:
    """At every scan's beginning and end, in its header, in the middle of its data, and just before the end."""
    data = FILES[name]
    places = {len(data) - 1, len(data) - 2}
    for start, head, end in scans(data):
        places |= {start, start + 2, start + 5, start + 4 + len(head), (start + end) // 2, end - 1, end}
    for place in sorted(places):
        with pytest.raises((Malformed, ImageError)):
            reduced(data[:place], 2)
        with pytest.raises(ImageError):
            prepared(data[:place], Recipe(width=8, height=8))


def test_truncation_of_a_larger_file_at_every_kilobyte() -> None:
    data = progressive(size=(640, 480))
    for place in range(1000, len(data) - 1, 1000):
        with pytest.raises(ImageError, match="JPEG"):
            prepared(data[:place], Recipe(width=60, height=60))


def test_tail_behind_the_end_is_no_harm() -> None:
    data = FILES["4:2:0"]
    assert reduced(data + b"\xff\xda tail \xff\xd8" * 9, 2) == reduced(data, 2)


# --- on photographs -----------------------------------------------------------------------------------------------------------


def large(position: slice) -> list[Path]:
    found = assets_or_none()
    return list(found.large_progressive)[position] if found else []


@pytest.mark.parametrize("path", large(slice(0, None, 5)), ids=lambda path: path.name)
def test_error_on_photographs(path: Path) -> None:
    data = path.read_bytes()
    recipe = Recipe(width=384, height=384)
    smaller = reduced(data, 2)
    assert smaller is not None and len(smaller) < 0.4 * len(data)
    difference = compare(prepared(data, recipe), reference_of(data, recipe))
    assert difference.mean <= 0.9
    assert difference.p999 <= 10


@pytest.mark.parametrize("path", large(slice(1, 2)), ids=lambda path: path.name)
@pytest.mark.parametrize(("target", "eighths"), [(160, 1), (768, 4)])
def test_error_at_other_scales(path: Path, target: int, eighths: int) -> None:
    data = path.read_bytes()
    recipe = Recipe(width=target, height=target)
    smaller = reduced(data, eighths)
    assert smaller is not None and len(smaller) < 0.6 * len(data)
    difference = compare(prepared(data, recipe), reference_of(data, recipe))
    assert difference.mean <= 0.9
    assert difference.p999 <= 10

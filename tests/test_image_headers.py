"""Header readers under attack: whole, cut at every byte, with a tail, and spoiled. Two errors are allowed, nothing else."""

from __future__ import annotations

import struct
import warnings
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from headrace.core.image.decode_plan import Limits, plan_decode
from headrace.core.image.header import read_header
from headrace.errors import ImageError, ImageTooLarge, UnsupportedMedia
from headrace.records.image import Header
from headrace.records.recipe import Recipe
from pictures import assets_or_none, awkward, encoded, picture, prepared, small_files

RECIPE = Recipe(width=384, height=384)
DEFAULTS = Limits(200_000_000, 2**28)


def header_or_none(data: bytes) -> Header | None:
    try:
        return read_header(data)
    except (UnsupportedMedia, ImageError):
        return None


# --- whole, cut, with a tail -------------------------------------------------------------------------------------------------

WHOLE = {
    "jpeg baseline": {"orientation": 6, "colour": "ycc", "sampling": ((2, 2), (1, 1), (1, 1))},
    "jpeg progressive": {"progressive": True, "colour": "ycc"},
    "jpeg grey": {"channels": 1, "colour": "grey"},
    "jpeg cmyk": {"channels": 4, "colour": "cmyk"},
    "png rgb": {"orientation": 3, "colour": "rgb"},
    "png rgba": {"alpha": True, "channels": 4},
    "png palette": {"alpha": True, "colour": "palette"},
    "png grey16": {"bits": 16, "colour": "grey"},
    "png bilevel": {"bits": 1, "colour": "grey"},
    "png animated": {"frames": 2},
    "gif": {"frames": 1, "colour": "palette"},
    "gif animated": {"frames": 2},
    "webp lossy": {"orientation": 1, "frames": 1},
    "webp turned": {"orientation": 6},
    "webp lossless alpha": {"alpha": True},
    "webp animated": {"frames": 2},
    "tiff raw": {"orientation": 8, "frames": 1, "bits": 8, "colour": "rgb"},
    "tiff deflate": {"frames": 1},
    "tiff big": {"bits": 8},
    "tiff pages": {"frames": 2},
    "bmp rgb": {"colour": "rgb"},
    "bmp palette": {"colour": "palette"},
    "avif": {"alpha": False},
    "avif alpha": {"alpha": True},
}


@pytest.mark.parametrize("name", small_files())
def test_whole(name: str) -> None:
    header = read_header(small_files()[name])
    assert header.format == name.split()[0]
    assert (header.width, header.height) == (48, 31)
    assert {key: getattr(header, key) for key in WHOLE[name]} == WHOLE[name]


@pytest.mark.parametrize("name", small_files())
def test_cut_at_every_byte(name: str) -> None:
    """A prefix either is refused or says what the whole says: nothing is guessed from what has not arrived."""
    data = small_files()[name]
    whole = read_header(data)
    for end in range(min(len(data), 4096)):
        assert header_or_none(data[:end]) in (None, whole), end


@pytest.mark.parametrize("name", small_files())
@pytest.mark.parametrize(
    "tail", [b"\0", b"\xff\xd8\xff\xc0" * 20, bytes(5000)], ids=["zero", "markers", "zeros"]
)
def test_with_a_tail(name: str, tail: bytes) -> None:
    data = small_files()[name]
    assert read_header(data + tail) == read_header(data)


# --- spoiled -----------------------------------------------------------------------------------------------------------------

changes = st.lists(
    st.tuples(
        st.sampled_from(["flip", "insert", "delete", "replace"]),
        st.floats(0, 1, exclude_max=True),
        st.binary(min_size=1, max_size=9),
    ),
    min_size=1,
    max_size=5,
)


def spoiled(data: bytes, how: list[tuple[str, float, bytes]]) -> bytes:
    for way, where, extra in how:
        at = int(where * min(len(data), 600))
        if way == "flip":
            data = data[:at] + bytes([data[at] ^ extra[0]]) + data[at + 1 :] if at < len(data) else data
        elif way == "insert":
            data = data[:at] + extra + data[at:]
        elif way == "delete":
            data = data[:at] + data[at + len(extra) :]
        else:
            data = data[:at] + extra + data[at + len(extra) :]
    return data


@settings(max_examples=500, deadline=None)
@given(name=st.sampled_from(sorted(small_files())), how=changes)
def test_spoiled(name: str, how: list[tuple[str, float, bytes]]) -> None:
    header = header_or_none(spoiled(small_files()[name], how))
    if header is not None:
        assert header.width > 0 and header.height > 0
        assert 1 <= header.orientation <= 8
        assert header.frames >= 1


MAGIC = st.sampled_from(sorted({data[:n] for data in small_files().values() for n in (4, 8, 12, 16, 20)}))


@settings(max_examples=400, deadline=None)
@given(magic=MAGIC, rest=st.binary(max_size=300))
def test_noise_behind_a_magic(magic: bytes, rest: bytes) -> None:
    header_or_none(magic + rest)


@pytest.mark.parametrize("data", [b"", b"\0", b"\xff", b"B", b"BM", b"<html>", b"%PDF-1.7", bytes(64)])
def test_no_image(data: bytes) -> None:
    with pytest.raises((UnsupportedMedia, ImageError)):
        read_header(data)


def test_unknown_bytes_are_named() -> None:
    with pytest.raises(UnsupportedMedia, match=r"7 bytes, starting 3c 68 74 6d 6c 3e 21"):
        read_header(b"<html>!")


# --- bombs: refused by the header alone --------------------------------------------------------------------------------------


def jpeg_claiming(width: int, height: int) -> bytes:
    data = bytearray(encoded(picture(48, 31), "JPEG"))
    frame = data.find(b"\xff\xc0")
    struct.pack_into(">HH", data, frame + 5, height, width)
    return bytes(data)


def gif_claiming(screen: tuple[int, int], frame: tuple[int, int]) -> bytes:
    """44 bytes with a colour table of two, one frame, no picture data to speak of."""
    table = b"\x80\0\0" + b"\0\0\0\xff\xff\xff"
    descriptor = b"\x2c" + struct.pack("<HHHHB", 0, 0, *frame, 0)
    return b"GIF89a" + struct.pack("<HH", *screen) + table + descriptor + b"\x02\x02\x4c\x01\0;" + bytes(8)


def bmp_claiming(width: int, height: int) -> bytes:
    return b"BM" + struct.pack("<IHHIIiiHHIIiiII", 54, 0, 0, 54, 40, width, height, 1, 24, 0, 0, 0, 0, 0, 0)


def png_claiming(width: int, height: int) -> bytes:
    return (
        b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR"
        + struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
        + bytes(4)
        + bytes(4)
        + b"IDAT"
    )


BOMBS = {
    "jpeg 65500x65500": jpeg_claiming(65500, 65500),
    "gif screen": gif_claiming((65535, 65535), (1, 1)),
    "gif frame": gif_claiming((1, 1), (65535, 65535)),
    "bmp 6,000,000 MP": bmp_claiming(2_000_000, 3_000_000),
    "bmp from the top": bmp_claiming(2_000_000, -3_000_000),
    "png 16384x16384": png_claiming(16384, 16384),
    "png one row": png_claiming(2**31 - 1, 1),
}


@pytest.mark.parametrize("name", BOMBS)
def test_bomb_is_refused_from_its_header(name: str) -> None:
    header = read_header(BOMBS[name])
    with pytest.raises(ImageTooLarge, match="megapixels"):
        plan_decode(header, RECIPE, "fast", True, DEFAULTS)


def test_pixels_below_the_limit_and_memory_above() -> None:
    header = read_header(png_claiming(12_000, 12_000))
    with pytest.raises(ImageTooLarge, match="max_decode_bytes"):
        plan_decode(header, RECIPE, "fast", True, DEFAULTS)


def test_real_bombs() -> None:
    for path in awkward():
        if path.name.startswith("1638"):
            with pytest.raises(ImageTooLarge, match="megapixels"):
                prepared(path.read_bytes(), RECIPE)


def test_the_pixels_behind_the_header_are_not_looked_at() -> None:
    """The same header, whatever follows it: a reader that walked on would see the difference."""
    data = encoded(picture(640, 480), "JPEG")
    start = data.find(b"\xff\xda") + 14
    whole = read_header(data)
    assert read_header(data[:start]) == whole
    assert read_header(data[:start] + b"\xff\xc0\0\x11" * 1000) == whole


# --- headers that would keep a reader busy -----------------------------------------------------------------------------------

BUSY = {
    "jpeg fill": b"\xff\xd8" + b"\xff" * 2**22,
    "jpeg restarts": b"\xff\xd8" + b"\xff\xd0" * 2**21,
    "jpeg segments": b"\xff\xd8" + b"\xff\xe5\0\2" * 2**20,
    "gif comments": b"GIF89a\1\0\1\0\0\0\0\x21\xfe" + b"\1a" * 2**21,
    "gif extensions": b"GIF89a\1\0\1\0\0\0\0" + b"\x21\xfe\0" * 2**20,
    "png chunks": png_claiming(8, 8)[:33] + b"\0\0\0\0tEXtabcd" * 2**18,
    "bmff boxes": b"\0\0\0\x1cftypavif" + bytes(16) + b"\0\0\0\x08free" * 2**19,
}


@pytest.mark.parametrize("name", BUSY)
def test_walks_are_bounded(name: str) -> None:
    """Megabytes of tiny parts are refused; that no walk goes through all of them is what the limits in the readers are for."""
    with pytest.raises(ImageError, match="broken"):
        read_header(BUSY[name])


def test_webp_chunks_are_bounded() -> None:
    chunks = b"ABCD\0\0\0\0" * 2**18
    start = b"WEBPVP8X\x0a\0\0\0\x08\0\0\0\1\0\0\1\0\0"
    header = read_header(b"RIFF" + struct.pack("<I", len(start + chunks)) + start + chunks)
    assert (header.width, header.orientation) == (2, 1)


# --- TIFF: counts and offsets ------------------------------------------------------------------------------------------------


def tiff(entries: list[tuple[int, int, int, int]], count: int | None = None, following: int = 0) -> bytes:
    """Little-endian, directory at byte 8; entries are (tag, kind, count, value)."""
    body = b"".join(struct.pack("<HHII", *entry) for entry in entries)
    return (
        b"II*\0\x08\0\0\0"
        + struct.pack("<H", len(entries) if count is None else count)
        + body
        + struct.pack("<I", following)
    )


SIZE = [(256, 4, 1, 20), (257, 4, 1, 10)]


def test_tiff_that_points_at_itself() -> None:
    assert read_header(tiff(SIZE, following=8)).frames == 2


@pytest.mark.parametrize(
    "data",
    [
        tiff(SIZE, count=65535),
        tiff([]),
        tiff([(256, 4, 2**32 - 1, 2**32 - 1), (257, 4, 1, 1)]),
        tiff([(256, 4, 1, 0), (257, 4, 1, 10)]),
        b"II*\0" + struct.pack("<I", 2**32 - 1),
        b"II+\0\x08\0\0\0" + struct.pack("<Q", 2**64 - 1),
        b"II+\0\x08\0\0\0" + struct.pack("<Q", 2**63),
        b"II+\0\x08\0\0\0\x10\0\0\0\0\0\0\0" + struct.pack("<QHHQQ", 1, 256, 16, 2**61, 2**63),
    ],
    ids=["count", "no tags", "values", "zero", "offset", "offset 2^64", "offset 2^63", "value offset 2^63"],
)
def test_tiff_with_absurd_numbers(data: bytes) -> None:
    with pytest.raises(ImageError, match="TIFF"):
        read_header(data)


def test_tiff_tag_nobody_wants_may_point_anywhere() -> None:
    assert read_header(tiff([*SIZE, (271, 2, 99, 2**31), (40000, 3, 99, 2**31)])).width == 20


def test_tiff_with_tiles_beyond_the_picture() -> None:
    """A decoder allocates whole tiles: a small picture with one enormous tile is a bomb."""
    assert read_header(tiff([*SIZE, (322, 4, 1, 512), (323, 4, 1, 512)])).width == 20
    with pytest.raises(ImageError, match="megapixels each"):
        read_header(tiff([*SIZE, (322, 4, 1, 30_000), (323, 4, 1, 30_000)]))


# --- AVIF and HEIC boxes -----------------------------------------------------------------------------------------------------


def box(kind: bytes, payload: bytes, size: int | None = None) -> bytes:
    return struct.pack(">I", len(payload) + 8 if size is None else size) + kind + payload


FTYP = box(b"ftyp", b"avif\0\0\0\0avifmif1")
ISPE = box(b"ispe", struct.pack(">III", 0, 300, 200))


def test_box_sizes() -> None:
    inner = box(b"iprp", box(b"ipco", ISPE))
    meta = b"\0\0\0\0" + inner
    to_the_end = FTYP + box(b"meta", meta, size=0)
    long_form = FTYP + struct.pack(">I4sQ", 1, b"meta", len(meta) + 16) + meta
    for data in (FTYP + box(b"meta", meta), to_the_end, long_form):
        header = read_header(data)
        assert (header.format, header.width, header.height) == ("avif", 300, 200)


@pytest.mark.parametrize(
    "data",
    [
        FTYP,
        FTYP + struct.pack(">I4s", 4, b"meta"),
        FTYP + struct.pack(">I4sQ", 1, b"meta", 2**63),
        FTYP + struct.pack(">I4sQ", 1, b"meta", 3),
        FTYP + box(b"meta", b"\0\0\0\0" + ISPE, size=2**32 - 1),
        FTYP + box(b"meta", b"\0\0\0\0" + box(b"ispe", bytes(12))),
        FTYP + box(b"meta", b"\0\0\0\0" * 3) * 5000,
    ],
    ids=["nothing", "size 4", "size 2^63", "long size 3", "meta cut off", "size 0x0", "thousands"],
)
def test_broken_boxes(data: bytes) -> None:
    with pytest.raises(ImageError):
        read_header(data)


def test_largest_size_counts() -> None:
    """Thumbnails and tiles have sizes, too; the memory that is promised is that of the largest."""
    items = (
        box(b"ispe", struct.pack(">III", 0, 64, 64)) + ISPE + box(b"ispe", struct.pack(">III", 0, 128, 90))
    )
    header = read_header(FTYP + box(b"meta", b"\0\0\0\0" + box(b"iprp", box(b"ipco", items))))
    assert (header.width, header.height) == (300, 200)


# --- against Pillow ----------------------------------------------------------------------------------------------------------


def by_pillow(path: Path) -> Header | None:
    """What Pillow says; None when it does not open the file."""
    pytest.importorskip("pillow_heif").register_heif_opener()
    try:
        with warnings.catch_warnings(), Image.open(path) as image:
            warnings.simplefilter("ignore")
            turn = image.getexif().get(0x0112, 1)
            name = {"heif": "heic", "mpo": "jpeg"}.get(str(image.format).lower(), str(image.format).lower())
            return Header(
                format=name,
                width=image.width,
                height=image.height,
                orientation=turn if 1 <= turn <= 8 else 1,
                frames=min(2, getattr(image, "n_frames", 1)),
                alpha=image.has_transparency_data,
                icc=bool(image.info.get("icc_profile")),
                progressive=bool(image.info.get("progressive") or image.info.get("interlace")),
            )
    except (OSError, SyntaxError):
        return None


def test_awkward_files_are_here() -> None:
    if assets_or_none() is None:
        pytest.skip("the awkward files are not here; `python -m headrace.lab.assets` fetches them")
    assert len(awkward()) > 150


@pytest.mark.parametrize("path", awkward(), ids=lambda path: path.name)
def test_awkward_against_pillow(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", None)
    theirs, mine = by_pillow(path), header_or_none(path.read_bytes())
    if theirs is None or mine is None:
        assert theirs is None, f"Pillow opens what is refused: {theirs}"
        return
    if theirs.format == "heic":
        # One file holds tiles, thumbnails and depth maps, and the decoder crops: ours is the upper bound.
        assert mine.format == "heic"
        assert mine.pixels >= theirs.pixels
        assert mine.alpha >= theirs.alpha
        return
    shared = ("format", "width", "height", "orientation", "alpha", "icc")
    assert {key: getattr(mine, key) for key in shared} == {key: getattr(theirs, key) for key in shared}
    assert min(2, mine.frames) == theirs.frames
    several_scans = "interleaved" in path.name
    assert mine.progressive == (theirs.progressive or several_scans)


def test_frames_beyond_two_are_counted_where_the_header_says() -> None:
    image = picture(20, 20)
    data = encoded(image, "PNG", save_all=True, append_images=[image.rotate(90 * n) for n in range(1, 4)])
    header = read_header(data)
    assert replace(header, frames=4) == header

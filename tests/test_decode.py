"""Bytes to the model's input: every format, layout and orientation arrives the same; what is broken is refused as itself."""

from __future__ import annotations

import json
import struct
import subprocess
import sys
import warnings
from functools import lru_cache
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, ImageCms, ImageOps

from headrace.core.image import codec_jpeg, codec_pillow, decode
from headrace.core.image.canvas import FreshCanvas
from headrace.core.image.decode_plan import Limits, plan_decode
from headrace.core.image.header import read_header
from headrace.errors import ImageError, ImageTooLarge, RequestError, UnsupportedMedia
from headrace.records.image import Encoded
from headrace.records.recipe import Recipe
from pictures import (
    LIMITS,
    UPRIGHT_TO_STORED,
    apart,
    assets,
    awkward,
    awkward_named,
    decoded,
    encoded,
    picture,
    prepared,
    reference_of,
    small_files,
    turned,
)

RECIPE = Recipe(width=96, height=64)
EXACT = Recipe(width=96, height=64, oversampling=100.0)


# --- limits ------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("limits", [Limits(1000, 2**28), Limits(10**9, 1000)], ids=["pixels", "memory"])
@pytest.mark.parametrize("name", small_files())
def test_limits_refuse_before_a_codec_is_called(
    name: str, limits: Limits, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*_: object) -> None:
        raise AssertionError("a codec was called")

    monkeypatch.setattr(codec_jpeg, "decode", never)
    monkeypatch.setattr(codec_pillow, "decode", never)
    with pytest.raises(ImageTooLarge):
        decoded(small_files()[name], RECIPE, limits=limits)


def test_a_file_larger_than_its_header_is_refused() -> None:
    """The second IHDR is the one the decoder obeys."""
    data = encoded(picture(48, 31), "PNG")
    larger = encoded(picture(480, 310), "PNG")
    with pytest.raises(ImageError):
        decoded(data[:33] + larger[8:], RECIPE)


PEAK = """
import json, re, sys
from pathlib import Path
import numpy as np
from headrace.core.image.canvas import FreshCanvas
from headrace.core.image.decode import decode
from headrace.core.image.decode_plan import Limits, plan_decode
from headrace.core.image.header import read_header
from headrace.core.image.resize import Resizer
from headrace.errors import RequestError
from headrace.records.image import Encoded
from headrace.records.recipe import Recipe

def peak():
    return int(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1]) * 1024

recipe = Recipe(width=384, height=384, alpha=sys.argv[2])
def once(data):
    header = read_header(data)
    plan = plan_decode(header, recipe, sys.argv[1], True, Limits(10**9, 10**12))
    try:
        pixels = decode(Encoded(data), header, plan, recipe, FreshCanvas)
        Resizer(recipe).write(pixels, np.zeros((384, 384, 3), np.uint8))
    except RequestError:
        pass
    return plan.bytes_needed
out = []
for name in sys.argv[3:]:
    data = Path(name).read_bytes()
    Path("/proc/self/clear_refs").write_text("5")
    before = peak()
    out.append((name, once(data), peak() - before, len(data)))
print(json.dumps(out))
"""
SLACK = 6 * 2**20
"""Scratch of codec and resizer, and what the allocator keeps."""


def peaks(fidelity: str, alpha: str, paths: list[Path]) -> list[tuple[str, int, int, int]]:
    """(file, promised bytes, grown by, file size) of decodes in a process of their own."""
    if not Path("/proc/self/clear_refs").exists():
        pytest.skip("peak memory is read from Linux' /proc")
    command = [sys.executable, "-c", PEAK, fidelity, alpha, *map(str, paths)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=100)
    return [tuple(row) for row in json.loads(done.stdout)]


@lru_cache
def files_of_a_megapixel() -> dict[str, bytes]:
    y, x = np.mgrid[0:1000, 0:1400]
    planes = [(x * 3 + y) % 256, (x + y * 2) % 256, (x * y // 50) % 256, (x + y) % 256]
    waves = np.stack(planes, -1).astype(np.uint8)
    rgba = Image.fromarray(waves)
    rgb = rgba.convert("RGB")
    grey16 = Image.fromarray(waves[..., 0].astype(np.uint16) * 257)
    palette = rgb.convert("P")
    return {
        "a.png": encoded(rgba, "PNG", compress_level=1),
        "p.png": encoded(palette, "PNG", transparency=3),
        "rgb.webp": encoded(rgb, "WEBP", quality=50, method=0),
        "rgba.webp": encoded(rgba, "WEBP", quality=50, method=0),
        "rgb.avif": encoded(rgb, "AVIF", speed=10, quality=50, subsampling="4:4:4"),
        "rgba.avif": encoded(rgba, "AVIF", speed=10, quality=50),
        "turned.tif": encoded(rgb, "TIFF", compression="tiff_lzw", tiffinfo={274: 6}),
        "grey16.tif": encoded(grey16, "TIFF", compression="tiff_lzw"),
        "p.gif": encoded(palette, "GIF"),
        "rgb.bmp": encoded(rgb, "BMP"),
        "rgb.jpg": encoded(rgb, "JPEG"),
        "cmyk.jpg": encoded(rgb.convert("CMYK"), "JPEG"),
        "444.jpg": encoded(rgb, "JPEG", progressive=True, subsampling=0),
    }


@pytest.mark.parametrize("alpha", ["drop", "#ffffff"])
def test_memory_stays_within_the_promise(tmp_path: Path, alpha: str) -> None:
    files = files_of_a_megapixel()
    for name, data in files.items():
        (tmp_path / name).write_bytes(data)
    for name, promised, grown, size in peaks("exact", alpha, [tmp_path / name for name in files]):
        assert grown <= promised + SLACK + 2 * size, name


def test_memory_of_large_awkward_files() -> None:
    names = (
        "9643x10328.jpg",
        "heif_other__pug.heic",
        "heif_special__aux_YCbCr.heic",
        "jxl__flower__flower_alpha.png",
    )
    paths = [path for path in awkward() if path.name in names]
    if not paths:
        pytest.skip("the awkward files are not here; `python -m headrace.lab.assets` fetches them")
    for name, promised, grown, size in peaks("fast", "drop", paths):
        assert grown <= promised + SLACK + 2 * size, name


def test_several_baseline_scans_count_as_memory() -> None:
    """A decoder of separate scans keeps all coefficients, progressive or not."""
    data = awkward_named("444_non_interleaved.jpg")
    header = read_header(data)
    assert plan_decode(header, RECIPE, "fast", True, LIMITS).bytes_needed > header.pixels * 6


# --- orientation -------------------------------------------------------------------------------------------------------------

LOSSLESS = {
    "PNG": {},
    "TIFF": {},
    "TIFF lzw": {"compression": "tiff_lzw"},
    "WEBP": {"lossless": True, "exact": True},
}


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("kind", LOSSLESS)
def test_orientation_lossless(kind: str, orientation: int) -> None:
    upright = picture()
    data = turned(orientation, kind.split()[0], upright, **LOSSLESS[kind])
    assert read_header(data).orientation == orientation
    recipe = Recipe(width=upright.width, height=upright.height)
    assert np.array_equal(prepared(data, recipe), np.asarray(upright))
    assert np.array_equal(reference_of(data, recipe), np.asarray(upright))


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("kind", ["JPEG", "AVIF"])
@pytest.mark.parametrize("fidelity", ["fast", "exact"])
def test_orientation_lossy(kind: str, orientation: int, fidelity: str) -> None:
    upright = picture(384, 240)
    options = {"quality": 95} if kind == "JPEG" else {"quality": 90, "speed": 9}
    data = turned(orientation, kind, upright, **options)
    straight = turned(1, kind, upright, **options)
    recipe = Recipe(width=64, height=48)
    assert apart(prepared(data, recipe, fidelity), prepared(straight, recipe, fidelity)) < 1.5


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("kind", ["JPEG", "PNG", "TIFF", "WEBP"])
def test_orientation_ignored_by_recipe(kind: str, orientation: int) -> None:
    options = {"lossless": True} if kind == "WEBP" else {}
    data = turned(orientation, kind, picture(), **options)
    stored = (61, 97) if orientation >= 5 else (97, 61)
    recipe = Recipe(width=stored[0], height=stored[1], orientation="ignore")
    turn = UPRIGHT_TO_STORED[orientation]
    expected = picture() if turn is None else picture().transpose(turn)
    assert apart(prepared(data, recipe), np.asarray(expected)) < 4


@pytest.mark.parametrize("fit", ["stretch", "center_crop", "letterbox"])
def test_orientation_as_pillow_applies_it(fit: str) -> None:
    recipe = Recipe(width=64, height=48, fit=fit, crop_fraction=0.875)
    for orientation in range(1, 9):
        data = turned(orientation, "JPEG", picture(200, 120), quality=95)
        with Image.open(BytesIO(data)) as image:
            upright = encoded(ImageOps.exif_transpose(image), "PNG")
        assert apart(prepared(data, recipe, "exact"), reference_of(upright, recipe)) < 0.6


# --- the one photograph in all layouts of JPEG -------------------------------------------------------------------------------

COARSE = ("luma_subsample", "rgb_subsample_blue")
"""Layouts that lost detail before headrace saw them."""


def flower_layouts() -> list[Path]:
    return [path for path in awkward() if "flower.png.im_q85" in path.name]


@pytest.mark.parametrize("fidelity", ["fast", "exact"])
@pytest.mark.parametrize("path", flower_layouts(), ids=lambda path: path.name.partition("im_q85_")[2])
def test_layouts_of_one_photograph_agree(path: Path, fidelity: str) -> None:
    recipe = Recipe(width=384, height=384)
    got = prepared(path.read_bytes(), recipe, fidelity)
    if not path.name.endswith("gray.jpg"):
        original = reference_of(assets().jxl_flower[0].read_bytes(), recipe)
        coarse = path.name.endswith(tuple(f"{name}.jpg" for name in COARSE))
        assert apart(got, original) < (3.0 if coarse else 1.5)
    bound = 0.15 if fidelity == "exact" else 1.4 if path.name.endswith("progr.jpg") else 0.9
    assert apart(got, reference_of(path.read_bytes(), recipe)) < bound


@pytest.mark.parametrize("fidelity", ["fast", "exact"])
@pytest.mark.parametrize("ending", ["420_non", "420_partially", "444_non", "444_partially"])
def test_separate_scans(ending: str, fidelity: str) -> None:
    data = awkward_named(f"q85_{ending}_interleaved.jpg")
    recipe = Recipe(width=100, height=100)
    assert apart(prepared(data, recipe, fidelity), reference_of(data, recipe)) < (
        0.9 if fidelity == "fast" else 0.15
    )


@pytest.mark.parametrize("progressive", [False, True])
@pytest.mark.parametrize("mode", ["RGB", "L", "CMYK"])
@pytest.mark.parametrize("size", [(960, 640), (961, 643), (1007, 999)])
def test_jpeg_modes_and_sizes(mode: str, progressive: bool, size: tuple[int, int]) -> None:
    """Sizes that are no multiple of the reduction: the decoder rounds up, the picture must not move."""
    image = picture(*size).convert(mode)
    data = encoded(image, "JPEG", quality=90, progressive=progressive)
    assert apart(prepared(data, RECIPE, "fast"), reference_of(data, RECIPE)) < 1.0
    assert apart(prepared(data, RECIPE, "exact"), reference_of(data, RECIPE)) < 0.15


def test_ycck_and_cmyk_photographs() -> None:
    for ending in ("01-cmyk.jpg", "cmyk-icc.jpg", "01-cmyk-orientation-exif.jpg"):
        data = awkward_named(ending)
        assert read_header(data).colour == "cmyk"
        assert apart(prepared(data, RECIPE, "exact"), reference_of(data, RECIPE)) < 0.3


def test_fast_decodes_less() -> None:
    data = encoded(picture(1600, 1200), "JPEG")
    small, full = decoded(data, RECIPE, "fast"), decoded(data, RECIPE, "exact")
    assert (small.image.size, small.shrink) == ((200, 150), 1 / 8)
    assert (full.image.size, full.shrink) == ((1600, 1200), 1.0)


@pytest.mark.parametrize("width", range(1000, 1017))
def test_general_codec_decodes_as_little_as_planned(width: int) -> None:
    data = encoded(picture(1016, 640).crop((0, 0, width, 640)).convert("CMYK"), "JPEG")
    pixels = decoded(data, Recipe(width=60, height=40), "fast")
    assert pixels.shrink == 1 / 8
    assert pixels.image.size == (-(-width // 8), 80)


# --- other formats -----------------------------------------------------------------------------------------------------------

SAME = Recipe(width=97, height=61)
GREY = Recipe(width=97, height=61, colour="grey")


@pytest.mark.parametrize("options", [{}, {"optimize": True}, {"compress_level": 0}], ids=str)
def test_png_is_exact(options: dict[str, object]) -> None:
    assert np.array_equal(prepared(encoded(picture(), "PNG", **options), SAME), np.asarray(picture()))


def test_channel_order() -> None:
    bgr = prepared(encoded(picture(), "PNG"), Recipe(width=97, height=61, colour="bgr"))
    assert np.array_equal(bgr[..., ::-1], np.asarray(picture()))


def test_bilevel_palette_and_grey() -> None:
    bilevel = picture(97, 61, "L").convert("1")
    assert np.array_equal(prepared(encoded(bilevel, "PNG"), GREY)[..., 0], np.asarray(bilevel.convert("L")))
    palette = picture().quantize(50)
    assert np.array_equal(prepared(encoded(palette, "PNG"), SAME), np.asarray(palette.convert("RGB")))
    grey = picture(97, 61, "L")
    assert np.array_equal(prepared(encoded(grey, "PNG"), SAME)[..., 1], np.asarray(grey))


@pytest.mark.parametrize("kind", ["PNG", "TIFF"])
def test_grey_of_16_bits_is_scaled_not_clipped(kind: str) -> None:
    high = np.linspace(0, 65535, 97 * 61).reshape(61, 97).astype(np.uint16)
    got = prepared(encoded(Image.fromarray(high), kind), GREY)[..., 0]
    assert np.array_equal(got, (high >> 8).astype(np.uint8))
    assert len(np.unique(got)) == 256


def test_awkward_16_bits() -> None:
    for ending in (
        "L_16__128x128.png",
        "RGB_16__128x128.png",
        "gradient_msb_16bperchannel.tif",
        "gradient_lsb_16bperchannel.tif",
    ):
        got = prepared(awkward_named(ending), Recipe(width=64, height=64))
        assert got.min() < 250, ending
    both = [
        prepared(awkward_named(f"gradient_{order}_16bperchannel.tif"), RECIPE) for order in ("msb", "lsb")
    ]
    assert np.array_equal(*both)


def test_float_pixels_are_refused_with_the_reason() -> None:
    data = encoded(Image.fromarray(np.linspace(0, 1, 600, dtype=np.float32).reshape(20, 30)), "TIFF")
    with pytest.raises(ImageError, match=r"floating-point|32 bits per channel"):
        decoded(data, RECIPE)


@pytest.mark.parametrize("kind", ["PNG", "WEBP", "TIFF", "AVIF"])
def test_alpha_by_recipe(kind: str) -> None:
    colours = np.full((61, 97, 4), (200, 40, 80, 255), np.uint8)
    colours[:, 48:, 3] = 0
    colours[:, :20, 3] = 128
    options = {
        "WEBP": {"lossless": True, "exact": True},
        "AVIF": {"quality": 100, "subsampling": "4:4:4"},
    }.get(kind, {})
    data = encoded(Image.fromarray(colours), kind, **options)
    dropped = prepared(data, SAME).astype(int)
    assert abs(dropped[:, :46] - (200, 40, 80)).max() <= 3
    white = prepared(data, Recipe(width=97, height=61, alpha="#ffffff")).astype(int)
    assert white[:, 52:].min() >= 252
    assert abs(white[:, 24:44] - (200, 40, 80)).max() <= 3
    assert abs(white[:, 3:16] - (227, 147, 167)).max() <= 3
    black = prepared(data, Recipe(width=97, height=61, alpha="#000000"))
    assert black[:, 52:].max() <= 3


def test_alpha_of_palettes_and_key_colours() -> None:
    square = Image.new("P", (97, 61), 1)
    square.putpalette([0, 0, 0, 200, 40, 80])
    square.paste(0, (0, 0, 48, 61))
    blend = Recipe(width=97, height=61, alpha="#00ff00")
    for kind in ("PNG", "GIF"):
        got = prepared(encoded(square, kind, transparency=0), blend)
        assert tuple(got[30, 10]) == (0, 255, 0)
        assert tuple(got[30, 80]) == (200, 40, 80)
    keyed = prepared(encoded(square.convert("RGB"), "PNG", transparency=(0, 0, 0)), blend)
    assert tuple(keyed[30, 10]) == (0, 255, 0)
    assert tuple(prepared(encoded(square, "PNG", transparency=0), SAME)[30, 10]) == (0, 0, 0)


def test_interlaced() -> None:
    data = awkward_named("rgba-interlaced.png")
    assert read_header(data).progressive
    assert apart(prepared(data, RECIPE), reference_of(data, RECIPE)) < 0.3
    gif = encoded(picture().quantize(60), "GIF", interlace=1)
    assert np.array_equal(
        prepared(gif, SAME), prepared(encoded(picture().quantize(60), "GIF", interlace=0), SAME)
    )


@pytest.mark.parametrize("kind", ["GIF", "PNG", "WEBP", "TIFF"])
def test_first_frame_of_many(kind: str) -> None:
    first, second = picture(), ImageOps.invert(picture())
    options = {"WEBP": {"lossless": True}, "GIF": {"loop": 0}}.get(kind, {})
    data = encoded(first, kind, save_all=True, append_images=[second], **options)
    assert read_header(data).frames == 2
    assert apart(prepared(data, SAME), np.asarray(first)) < (6 if kind == "GIF" else 0.01)


@pytest.mark.parametrize("kind", ["BMP", "TIFF", "WEBP", "AVIF"])
def test_other_formats_against_the_pixels(kind: str) -> None:
    options = {"WEBP": {"lossless": True}, "AVIF": {"quality": 100, "subsampling": "4:4:4"}}.get(kind, {})
    assert apart(prepared(encoded(picture(), kind, **options), SAME), np.asarray(picture())) < 1


@pytest.mark.parametrize("compression", ["raw", "tiff_lzw", "tiff_adobe_deflate", "packbits", "jpeg"])
def test_tiff_compressions(compression: str) -> None:
    data = encoded(
        picture(), "TIFF", compression=compression, **({"quality": 95} if compression == "jpeg" else {})
    )
    assert apart(prepared(data, SAME), np.asarray(picture())) < (6 if compression == "jpeg" else 0.01)


def test_bmp_run_lengths_are_refused_with_the_reason() -> None:
    data = bytearray(encoded(picture().quantize(9), "BMP"))
    struct.pack_into("<I", data, 30, 1)
    with pytest.raises(ImageError, match="run-length"):
        read_header(bytes(data))


def test_multi_picture_jpeg_takes_the_first() -> None:
    other = ImageOps.invert(picture(200, 120))
    data = encoded(picture(200, 120), "MPO", save_all=True, append_images=[other])
    assert read_header(data).format == "jpeg"
    alone = encoded(picture(200, 120), "JPEG")
    assert apart(prepared(data, RECIPE), prepared(alone, RECIPE)) < 0.01


# --- HEIC: an extra ----------------------------------------------------------------------------------------------------------


def test_heic() -> None:
    pytest.importorskip("pillow_heif")
    data = awkward_named("image.heic")
    got = prepared(data, Recipe(width=256, height=256))
    assert got.std() > 0


def test_heic_is_turned_once() -> None:
    heif = pytest.importorskip("pillow_heif")
    heif.register_heif_opener()
    upright = picture(128, 96)
    for orientation in (1, 3, 6, 8):
        data = turned(orientation, "HEIF", upright, quality=95)
        assert apart(prepared(data, Recipe(width=128, height=96)), np.asarray(upright)) < 4, orientation


def test_heic_without_its_extra_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    data = b"\0\0\0\x18ftypheic\0\0\0\0heicmif1"
    inner = struct.pack(">I4sIII", 20, b"ispe", 0, 64, 64)
    ipco = struct.pack(">I4s", 8 + len(inner), b"ipco") + inner
    iprp = struct.pack(">I4s", 8 + len(ipco), b"iprp") + ipco
    data += struct.pack(">I4sI", 12 + len(iprp), b"meta", 0) + iprp
    monkeypatch.setitem(sys.modules, "pillow_heif", None)
    monkeypatch.delitem(Image.OPEN, "HEIF", raising=False)
    with pytest.raises(UnsupportedMedia, match=r"headrace\[heic\]"):
        decoded(data, RECIPE)


# --- colour profiles ---------------------------------------------------------------------------------------------------------

BY_PROFILE = Recipe(width=97, height=61, icc="srgb")


def test_srgb_profile_changes_nothing() -> None:
    profile = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
    for kind, bound in (("PNG", 1.0), ("JPEG", 1.5)):
        data = encoded(picture(), kind, icc_profile=profile)
        assert read_header(data).icc
        assert apart(prepared(data, BY_PROFILE, "exact"), prepared(data, SAME, "exact")) < bound


def test_wide_profile_is_converted_only_when_asked() -> None:
    data = awkward_named("P3-sRGB-color-bars.png")
    ignored, converted = prepared(data, SAME), prepared(data, BY_PROFILE)
    assert apart(ignored, reference_of(data, SAME)) < 0.3
    assert apart(converted, ignored) > 2
    assert apart(converted, reference_of(data, BY_PROFILE)) < 2


def test_wide_profile_in_a_jpeg() -> None:
    with Image.open(BytesIO(awkward_named("P3-sRGB-color-bars.png"))) as image:
        profile = image.info["icc_profile"]
    data = encoded(picture(388, 244), "JPEG", icc_profile=profile, quality=95)
    plain = encoded(picture(388, 244), "JPEG", quality=95)
    assert apart(prepared(data, SAME), prepared(plain, SAME)) < 0.01
    assert apart(prepared(data, BY_PROFILE), prepared(plain, SAME)) > 1


def test_broken_profile_is_ignored() -> None:
    data = encoded(picture(), "PNG", icc_profile=b"no profile" * 20)
    assert np.array_equal(prepared(data, BY_PROFILE), np.asarray(picture()))


# --- broken files ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [name for name in small_files() if name.startswith("jpeg")])
def test_every_prefix_of_a_jpeg_is_refused(name: str) -> None:
    data = small_files()[name]
    recipe = Recipe(width=24, height=16)
    for end in range(len(data) - 1):
        with pytest.raises((ImageError, UnsupportedMedia)):
            prepared(data[:end], recipe, "exact" if name == "jpeg cmyk" else "fast")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", [name for name in small_files() if not name.startswith("jpeg")])
def test_prefixes_of_other_formats(name: str) -> None:
    """Cut in the picture data: refused, or (formats whose tail is not pixels) the whole picture."""
    data = small_files()[name]
    recipe = Recipe(width=48, height=31)
    whole = prepared(data, recipe)
    for end in range(0, len(data), max(1, len(data) // 150)):
        try:
            got = prepared(data[:end], recipe)
        except RequestError:
            continue
        assert np.array_equal(got, whole), end


@pytest.mark.parametrize("name", [name for name in small_files() if "animated" not in name])
def test_trailing_garbage_is_no_harm(name: str) -> None:
    data = small_files()[name]
    recipe = Recipe(width=48, height=31)
    assert np.array_equal(prepared(data + b"\xff\0garbage" * 50, recipe), prepared(data, recipe))


def test_stray_bytes_between_segments_are_no_harm() -> None:
    data = encoded(picture(640, 480), "JPEG", quality=85)
    frame = data.find(b"\xff\xc0")
    stray = data[:frame] + b"\0\0\0" + data[frame:]
    padded = data[:-2] + b"\0\0\0\0" + data[-2:]
    assert np.array_equal(prepared(stray, RECIPE), prepared(data, RECIPE))
    assert np.array_equal(prepared(padded, RECIPE), prepared(data, RECIPE))


def test_stray_bytes_hide_no_damage() -> None:
    data = encoded(picture(640, 480), "JPEG", quality=85)
    frame = data.find(b"\xff\xc0")
    stray = data[:frame] + b"\0\0\0" + data[frame:]
    with pytest.raises(ImageError, match="truncated or corrupt"):
        prepared(stray[: len(stray) // 2], RECIPE)
    with pytest.raises(ImageError, match="truncated or corrupt"):
        prepared(stray[: len(stray) // 2] + b"\xff\xd9", RECIPE)


def test_truncated_and_corrupt_files() -> None:
    for ending in (
        "BlueSquare_truncated.jpg",
        "heif_corrupted__corrupted.hif",
        "heif_corrupted__corrupted.heic",
    ):
        with pytest.raises(RequestError):
            prepared(awkward_named(ending), RECIPE)


@settings(max_examples=400, deadline=None)
@given(
    name=st.sampled_from(sorted(small_files())),
    where=st.lists(st.floats(0, 1, exclude_max=True), min_size=1, max_size=4),
    value=st.integers(1, 255),
)
def test_spoiled_files_raise_request_errors_only(name: str, where: list[float], value: int) -> None:
    data = bytearray(small_files()[name])
    for share in where:
        data[int(share * len(data))] ^= value
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            prepared(bytes(data), Recipe(width=24, height=16))
        except RequestError:
            pass


def test_memory_taken_is_given_back_after_an_error() -> None:
    data = encoded(picture(640, 480), "JPEG")
    cut, taken, returned = data[: len(data) // 2], [], []

    class Counted(FreshCanvas):
        def __init__(self, width: int, height: int, channels: int) -> None:
            super().__init__(width, height, channels)
            taken.append(width * height * channels)

        def release(self) -> None:
            returned.append(self.memory.nbytes)

    header = read_header(data)
    plan = plan_decode(header, RECIPE, "fast", True, LIMITS)
    with pytest.raises(ImageError):
        decode.decode(Encoded(cut), header, plan, RECIPE, Counted)
    assert taken == returned == [320 * 240 * 4]


# --- all awkward files -------------------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("path", awkward(), ids=lambda path: path.name)
def test_awkward_file_is_prepared_or_refused(path: Path) -> None:
    recipe = Recipe(width=64, height=64, fit="letterbox", alpha="#808080", icc="srgb")
    try:
        got = prepared(path.read_bytes(), recipe)
    except RequestError as problem:
        assert str(problem)
        return
    assert got.shape == (64, 64, 3)


# --- what a socket was read into ---------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("path", awkward(), ids=lambda path: path.name)
def test_a_bytearray_is_read_like_bytes(path: Path) -> None:
    def outcome(data: bytes | bytearray) -> object:
        try:
            header = read_header(data)
            return header, prepared(data, Recipe(width=32, height=32)).tobytes()
        except RequestError as problem:
            return problem.code, str(problem)

    data = path.read_bytes()
    if len(data) < 2_000_000:
        assert outcome(bytearray(data)) == outcome(data)

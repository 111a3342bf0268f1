"""Hostile images: small files of every format, and seeded ways to spoil them.

Input number `n` of a seed is the same bytes on every machine that has the same corpus; the corpus made here needs no
downloaded file, so a find can be repeated from (seed, n) alone.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Callable
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

import numpy as np
from PIL import Image

MAGIC = {
    "jpeg": (b"\xff\xd8\xff\xe0", b"\xff\xd8\xff\xe1", b"\xff\xd8\xff\xdb"),
    "png": (b"\x89PNG\r\n\x1a\n", b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR"),
    "gif": (b"GIF89a", b"GIF87a"),
    "webp": (b"RIFF\xff\xff\0\0WEBPVP8 ", b"RIFF\xff\xff\0\0WEBPVP8L", b"RIFF\xff\xff\0\0WEBPVP8X"),
    "tiff": (b"II*\0\x08\0\0\0", b"MM\0*\0\0\0\x08", b"II+\0\x08\0\0\0", b"MM\0+\0\x08\0\0"),
    "bmp": (b"BM",),
    "avif": (b"\0\0\0\x1cftypavif", b"\0\0\0\x1cftypavis"),
    "heic": (b"\0\0\0\x1cftypheic",),
}
_MAX_SEED_BYTES = 64 * 1024
_ENDINGS = {
    ".jpg",
    ".jpeg",
    ".png",
    ".gif",
    ".webp",
    ".tif",
    ".tiff",
    ".bmp",
    ".avif",
    ".heic",
    ".heif",
    ".hif",
}


@dataclass(frozen=True, slots=True)
class Seed:
    """A whole file to spoil."""

    name: str
    data: bytes

    @property
    def format(self) -> str:
        return format_by_magic(self.data)


def format_by_magic(data: bytes) -> str:
    """The format the first bytes claim, also where the rest is broken."""
    if data[4:8] == b"ftyp":
        return "avif" if data[8:11] == b"avi" else "heic"
    return next(
        (name for name, starts in MAGIC.items() if data.startswith(tuple(one[:4] for one in starts))), "none"
    )


@dataclass(frozen=True, slots=True)
class Hostile:
    """One input of a run."""

    number: int
    made_from: str
    data: bytes


def picture(width: int, height: int, mode: str = "RGB") -> Image.Image:
    """A smooth picture with some noise: every coefficient of a JPEG occurs, and files stay small."""
    y, x = np.mgrid[0:height, 0:width].astype(np.float32)
    noise = np.random.default_rng(width * 10_007 + height).normal(0, 6, (height, width, 4)).astype(np.float32)
    waves = [128 + 90 * np.sin(x / (5 + 3 * n) + n) * np.cos(y / (7 + 2 * n)) for n in range(4)]
    pixels = Image.fromarray(np.clip(np.stack(waves, -1) + noise, 0, 255).astype(np.uint8), "RGBA")
    return pixels if mode == "RGBA" else pixels.convert("RGB").convert(mode)


def encoded(image: Image.Image, kind: str, **options: object) -> bytes:
    out = BytesIO()
    image.save(out, kind, **options)
    return out.getvalue()


def made_corpus() -> list[Seed]:
    """Small files of every format Pillow writes here."""
    rgb, grey, rgba = picture(97, 61), picture(97, 61, "L"), picture(97, 61, "RGBA")
    grey16 = Image.fromarray(np.arange(97 * 61, dtype=np.uint16).reshape(61, 97) * 11)
    exif = Image.Exif()
    exif[0x0112] = 6
    jpegs: dict[str, bytes] = {
        "baseline_420": encoded(rgb, "JPEG", quality=85, exif=exif),
        "baseline_444_restart": encoded(rgb, "JPEG", quality=85, subsampling=0, restart_marker_rows=1),
        "progressive_420": encoded(rgb, "JPEG", quality=85, progressive=True),
        "progressive_422": encoded(rgb, "JPEG", quality=85, progressive=True, subsampling=1),
        "progressive_large": encoded(picture(640, 480), "JPEG", quality=60, progressive=True),
        "progressive_grey": encoded(grey, "JPEG", quality=85, progressive=True),
        "cmyk": encoded(picture(64, 48, "CMYK"), "JPEG", quality=85),
    }
    others: dict[str, bytes] = {
        "png/rgb": encoded(rgb, "PNG"),
        "png/rgba_exif": encoded(rgba, "PNG", exif=exif),
        "png/palette": encoded(rgb.quantize(17), "PNG", transparency=3),
        "png/grey16": encoded(grey16, "PNG"),
        "png/bilevel": encoded(grey.convert("1"), "PNG"),
        "png/animated": encoded(rgb, "PNG", save_all=True, append_images=[rgb.rotate(90)]),
        "gif/animated": encoded(rgb, "GIF", save_all=True, append_images=[rgb.rotate(90)], loop=0),
        "gif/interlaced": encoded(rgb, "GIF", interlace=1, transparency=2),
        "webp/lossy_exif": encoded(rgb, "WEBP", quality=70, exif=exif),
        "webp/lossless_alpha": encoded(rgba, "WEBP", lossless=True),
        "webp/animated": encoded(rgb, "WEBP", save_all=True, append_images=[rgb.rotate(90)]),
        "tiff/raw": encoded(rgb, "TIFF"),
        "tiff/raw_turned": encoded(rgb, "TIFF", tiffinfo={274: 6}),
        "tiff/lzw": encoded(rgb, "TIFF", compression="tiff_lzw"),
        "tiff/deflate_grey16": encoded(grey16, "TIFF", compression="tiff_adobe_deflate"),
        "tiff/jpeg": encoded(rgb, "TIFF", compression="jpeg"),
        "tiff/big": encoded(rgb, "TIFF", big_tiff=True),
        "tiff/fax": encoded(grey.convert("1"), "TIFF", compression="group4"),
        "bmp/rgb": encoded(rgb, "BMP"),
        "bmp/palette": encoded(rgb.quantize(9), "BMP"),
        "avif/rgb": encoded(rgb, "AVIF", quality=60, speed=9),
        "avif/rgba_exif": encoded(rgba, "AVIF", quality=60, speed=9, exif=exif),
    }
    seeds = {f"jpeg/{name}": data for name, data in jpegs.items()} | others
    return [Seed(name, data) for name, data in sorted(seeds.items())]


def read_corpus(folders: list[Path]) -> list[Seed]:
    """The small images below `folders`."""
    paths = sorted(
        path for folder in folders for path in folder.rglob("*") if path.suffix.lower() in _ENDINGS
    )
    return [
        Seed(path.name, path.read_bytes()) for path in paths if 0 < path.stat().st_size <= _MAX_SEED_BYTES
    ]


def hostile(seed: int, number: int, corpus: list[Seed]) -> Hostile:
    """Input `number` of the run with this seed."""
    dice = random.Random(f"{seed}/{number}")
    if dice.random() < 0.08:
        kind = dice.choice(sorted(MAGIC))
        body = dice.randbytes(dice.choice((0, 3, 40, 400, 4000)))
        return Hostile(number, f"{kind} magic and noise", dice.choice(MAGIC[kind]) + body)
    of_format = dice.choice(sorted({one.format for one in corpus}))
    chosen = dice.choice([one for one in corpus if one.format == of_format])
    data = bytearray(chosen.data)
    for _ in range(dice.choice((1, 1, 1, 1, 1, 2, 4))):
        data = dice.choice(_WAYS)(data, dice, corpus)
    return Hostile(number, chosen.name, bytes(data))


def _flip_bits(data: bytearray, dice: random.Random, corpus: list[Seed]) -> bytearray:
    for _ in range(dice.choice((1, 1, 1, 2, 8))):
        if data:
            data[_position(data, dice)] ^= 1 << dice.randrange(8)
    return data


def _truncate(data: bytearray, dice: random.Random, corpus: list[Seed]) -> bytearray:
    return data[: dice.randrange(len(data) + 1)]


def _splice(data: bytearray, dice: random.Random, corpus: list[Seed]) -> bytearray:
    kin = [one for one in corpus if one.data[:3] == data[:3]]
    other = dice.choice(kin if kin and dice.random() < 0.7 else corpus).data
    at, start = _position(data, dice), dice.randrange(len(other))
    piece = other[start : start + dice.choice((4, 40, 400, 4000))]
    return data[:at] + piece + data[at + dice.choice((0, len(piece))) :]


def _repeat(data: bytearray, dice: random.Random, corpus: list[Seed]) -> bytearray:
    start = _position(data, dice)
    piece = data[start : start + dice.choice((1, 2, 16, 256))]
    return data[:start] + piece * dice.choice((2, 10, 100)) + data[start:]


def _delete(data: bytearray, dice: random.Random, corpus: list[Seed]) -> bytearray:
    start = _position(data, dice)
    return data[:start] + data[start + dice.choice((1, 2, 4, 30, 300)) :]


def _set_number(data: bytearray, dice: random.Random, corpus: list[Seed]) -> bytearray:
    """A length, count, offset or size field becomes small, huge or off by a little."""
    form = dice.choice(("<H", ">H", "<I", ">I"))
    size = struct.calcsize(form)
    if len(data) < size:
        return data
    at = min(_position(data, dice), len(data) - size)
    (old,) = struct.unpack_from(form, data, at)
    most = 256**size - 1
    edge = dice.choice(
        (0, 1, old + 1, old - 1, old * 2, 16_384, 65_500, 30_000, most, most // 2, most // 2 + 1)
    )
    struct.pack_into(form, data, at, edge & most)
    return data


_SIZE_FIELDS: dict[bytes, tuple[tuple[int, str], ...]] = {
    b"\x89PNG": ((16, ">I"), (20, ">I")),
    b"GIF8": ((6, "<H"), (8, "<H")),
    b"RIFF": ((24, "<H"), (26, "<H"), (28, "<H")),
    b"BM": ((18, "<i"), (22, "<i")),
}


def _set_size(data: bytearray, dice: random.Random, corpus: list[Seed]) -> bytearray:
    """Width or height of the picture as the header tells it."""
    fields = next((where for magic, where in _SIZE_FIELDS.items() if data.startswith(magic)), ())
    if data.startswith(b"\xff\xd8"):
        frame = max(data.find(b"\xff\xc0"), data.find(b"\xff\xc2"))
        fields = ((frame + 5, ">H"), (frame + 7, ">H")) if frame >= 0 else ()
    elif data[4:8] == b"ftyp":
        box = data.find(b"ispe")
        fields = ((box + 8, ">I"), (box + 12, ">I")) if box >= 0 else ()
    for at, form in fields:
        if at + 4 <= len(data) and dice.random() < 0.7:
            size = dice.choice((0, 1, 2, 61, 98, 500, 4000, 9000, 16_000, 32_767))
            struct.pack_into(form, data, at, size)
    return data


def _position(data: bytearray, dice: random.Random) -> int:
    """Anywhere, with a liking for the beginning, where headers are."""
    reach = dice.choice((32, 256, len(data), len(data)))
    return dice.randrange(max(1, min(reach, len(data))))


_WAYS: tuple[Callable[[bytearray, random.Random, list[Seed]], bytearray], ...] = (
    _flip_bits,
    _flip_bits,
    _truncate,
    _splice,
    _repeat,
    _delete,
    _set_number,
    _set_number,
    _set_size,
)

"""The files of each workload, made from the fetched photographs and kept in the asset cache."""

from __future__ import annotations

from collections.abc import Callable
from io import BytesIO
from pathlib import Path

from PIL import Image

from headrace.lab.assets import load
from headrace.records.recipe import Recipe

RECIPES = {
    "384": Recipe(width=384, height=384),
    "224crop": Recipe(width=224, height=224, fit="center_crop", crop_fraction=0.875),
    "224": Recipe(width=224, height=224),
}
"""What a dense-prediction model takes; the usual ImageNet evaluation; a plain stretch."""

SIZE = (4000, 3000)
LOW_BYTES, HIGH_BYTES = 3_000_000, 4_200_000
"""What a phone writes for 12 megapixels of a detailed scene."""


def workload(name: str) -> list[bytes]:
    """The encoded images of a workload, read into memory."""
    folder = load().root / "bench" / name
    make = WORKLOADS[name]
    if not (folder / "complete").is_file():
        folder.mkdir(parents=True, exist_ok=True)
        for number, path in enumerate(_sources(name)):
            suffix = ".png" if name == "png" else ".jpg"
            (folder / f"{number:02}{suffix}").write_bytes(make(path))
        (folder / "complete").touch()
    return [path.read_bytes() for path in sorted(folder.glob("*.*"))]


def _sources(name: str) -> list[Path]:
    sources = list(load().large_baseline)
    return sources[:3] if name == "png" else sources[:8]


def _upright(path: Path) -> Image.Image:
    image = Image.open(path).convert("RGB")
    size = SIZE if image.width >= image.height else SIZE[::-1]
    return image.resize(size, Image.Resampling.LANCZOS)


def _phone_sized(path: Path, progressive: bool) -> bytes:
    """The lowest quality from 92 up whose file is at least LOW_BYTES; 4:2:0."""
    image, data = _upright(path), b""
    for quality in (92, 94, 95, 96, 97, 98):
        buffer = BytesIO()
        image.save(buffer, "JPEG", quality=quality, subsampling="4:2:0", progressive=progressive)
        if data and buffer.tell() > HIGH_BYTES:
            break
        data = buffer.getvalue()
        if len(data) >= LOW_BYTES:
            break
    return data


def _small(path: Path) -> bytes:
    buffer = BytesIO()
    _upright(path).resize((256, 256), Image.Resampling.LANCZOS).save(buffer, "JPEG", quality=90)
    return buffer.getvalue()


def _png(path: Path) -> bytes:
    buffer = BytesIO()
    _upright(path).save(buffer, "PNG", compress_level=3)
    return buffer.getvalue()


WORKLOADS: dict[str, Callable[[Path], bytes]] = {
    "baseline": lambda path: _phone_sized(path, False),
    "progressive": lambda path: _phone_sized(path, True),
    "small": _small,
    "png": _png,
}
TITLES = {
    "baseline": "12 MP baseline JPEG",
    "progressive": "12 MP progressive JPEG",
    "small": "256x256 JPEG",
    "png": "12 MP PNG",
}

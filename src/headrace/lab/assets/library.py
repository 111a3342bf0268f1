"""The assets as the rest of headrace sees them: paths, and what the pictures show."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from headrace.errors import AssetError
from headrace.lab.assets import catalogue
from headrace.lab.assets.files import cache_root
from headrace.lab.assets.manifest import Manifest


@dataclass(frozen=True)
class Assets:
    """Everything in the cache. Every tuple is sorted by name, so that a seeded choice is the same everywhere.

    `photos` are natural photographs that decode without surprises, the 12 MP ones included; `awkward` are the files
    that do not. `answers` gives the model's right first answer by path. `jxl_flower` is one photograph in all layouts
    a JPEG can have, and the PNG they were made from; it is empty where Debian's packages could not be had.
    """

    root: Path
    model: Path
    recipe: Path
    labels: Path
    photos: tuple[Path, ...]
    large_baseline: tuple[Path, ...]
    large_progressive: tuple[Path, ...]
    small: tuple[Path, ...]
    large_png: tuple[Path, ...]
    answers: Mapping[str, str]
    awkward: tuple[Path, ...]
    jxl_flower: tuple[Path, ...]


def load() -> Assets:
    """The complete cache, sizes checked (`python -m headrace.lab.assets` repairs). Raises AssetError when it is not."""
    root = cache_root()
    manifest = Manifest.read(root)
    files = manifest.files()
    if not manifest.complete:
        raise AssetError(
            f"the demonstration assets in {root} are incomplete; run `make setup`, which fetches them"
        )
    for name, record in files.items():
        if not record.same_size(root / name):
            raise AssetError(f"{root / name} is missing or damaged; run `make setup`, which repairs it")
    return _collect(root, sorted(files))


def _collect(root: Path, names: list[str]) -> Assets:
    def below(*prefixes: str) -> tuple[Path, ...]:
        return tuple(root / name for name in names if name.startswith(prefixes))

    answers = json.loads((root / catalogue.ANSWERS).read_text("utf-8"))
    return Assets(
        root=root,
        model=root / catalogue.MODEL,
        recipe=root / catalogue.RECIPE,
        labels=root / catalogue.LABELS,
        photos=below(catalogue.NATURAL, catalogue.LARGE_BASELINE),
        large_baseline=below(catalogue.LARGE_BASELINE),
        large_progressive=below(catalogue.LARGE_PROGRESSIVE),
        small=below(catalogue.SMALL),
        large_png=below(catalogue.LARGE_PNG),
        answers=MappingProxyType({str(root / name): label for name, label in answers.items()}),
        awkward=below(catalogue.AWKWARD),
        jxl_flower=below(catalogue.JXL_FLOWER),
    )

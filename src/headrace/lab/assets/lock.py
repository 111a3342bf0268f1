"""The lock file: which packages may be fetched, in which version, with which bytes."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Literal

Kind = Literal["wheel", "sdist", "debian"]


@dataclass(frozen=True)
class Package:
    """One pinned package. `sha256` is of the downloaded archive."""

    name: str
    version: str
    kind: Kind
    sha256: str

    def __str__(self) -> str:
        return f"{self.name} {self.version}"


@cache
def packages() -> tuple[Package, ...]:
    """Every package of the lock file, in its order."""
    text = resources.files(__package__).joinpath("assets.lock").read_text("utf-8")
    return tuple(Package(**entry) for entry in tomllib.loads(text)["package"])

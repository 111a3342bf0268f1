"""`headrace recipe`."""

from __future__ import annotations

import argparse
from pathlib import Path


def flags(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("file", type=Path, metavar="FILE")


def run(options: argparse.Namespace) -> int:
    from headrace.core.recipes.toml import to_toml
    from headrace.store.recipe_files import load_recipe

    print(to_toml(load_recipe(options.file)), end="")
    return 0

"""The verbs: one file each, one line each in the table, in the order of `--help`."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from typing import NamedTuple

from headrace.cli.verbs import parity, plan, recipe, record, serve, settings


class Verb(NamedTuple):
    """What the command line knows of a verb."""

    help: str
    describe: str
    flags: Callable[[argparse.ArgumentParser], None]
    """Adds its flags."""
    run: Callable[[argparse.Namespace], int]
    """Does it; the exit code."""


VERBS: Mapping[str, Verb] = {
    "serve": Verb(
        "serve a model over HTTP",
        "Serve an ONNX image model over HTTP until SIGTERM.",
        serve.flags,
        serve.run,
    ),
    "plan": Verb(
        "the operations of a plan, each with its measured cost",
        "List every operation from bytes to prediction: where it runs, what it costs, what could be done about it.",
        plan.flags,
        plan.run,
    ),
    "parity": Verb(
        "how far fast preparation is from the reference, on your images and your model",
        "Compare fast and exact preparation with full decode and antialiased Pillow resize: pixels, and the model's answers.",
        parity.flags,
        parity.run,
    ),
    "record": Verb(
        "watch a service from outside, into a capture",
        "Sample the machine, the processes of a service, its GPUs and its stages, without root and without touching it.",
        record.flags,
        record.run,
    ),
    "settings": Verb(
        "list every setting",
        "List every setting with its default, bounds and meaning.",
        settings.flags,
        settings.run,
    ),
    "recipe": Verb(
        "show a recipe as TOML, also from a preprocessor_config.json or a timm config.json",
        "Read a recipe in any known form and print it as TOML.",
        recipe.flags,
        recipe.run,
    ),
}
